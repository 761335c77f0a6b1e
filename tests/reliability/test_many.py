"""Over many runs, large outputs and hostile leftovers nothing grows, nothing blocks and nothing is left."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

import ringfence
from ringfence.errors import SandboxLostError
from ringfence.outcome import Exited
from ringfence.process import zygote
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

RUNS = 300


def held() -> tuple[int, int, int]:
    """Descriptors, children and mounts, and no more threads than one: those that trio keeps end by themselves."""
    limit = time.monotonic() + 15
    while threading.active_count() > 1 and time.monotonic() < limit:
        time.sleep(0.05)
    assert threading.active_count() == 1
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    mounts = Path("/proc/self/mountinfo").read_text().count("\n")
    return len(os.listdir("/proc/self/fd")), len(children), mounts


def test_short_commands_are_always_complete(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert {box.run(["echo", "hello"]).stdout for _ in range(RUNS)} == {"hello\n"}
        assert len(box.run(["head", "-c", "1000001", "/dev/zero"]).stdout_bytes) == 1_000_001


def test_many_runs_leave_descriptors_threads_children_and_mounts_as_they_were(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        box.execute_command("true & true & exit 0")
        box.run(["sleep", "0.5"])  # what was left behind has ended before it, so its pipes stay for the next command
        before = held()
        for _ in range(RUNS):
            box.execute_command("true & true & exit 0")
        for _ in range(10):
            assert box.run(["sleep", "9"], timeout=0.05).timed_out
        box.run(["sleep", "0.5"])
        assert held() == before
        zombies = box.execute_command("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l")
        if tier == "namespaces":
            assert zombies.stdout == "0\n"


def test_many_boxes_leave_descriptors_threads_children_and_mounts_as_they_were(tier: str) -> None:
    def one() -> None:
        with Sandbox(SandboxConfig(tier=tier)) as box:
            assert box.run(["true"]).ok

    one()
    before = held()
    for _ in range(60):
        one()
    assert held() == before


def test_many_runs_at_once_in_one_box_each_get_their_own_output(tier: str) -> None:
    found: list[str] = []

    async def main() -> None:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:

            async def one(number: int) -> None:
                found.append((await box.run(["echo", str(number)])).stdout)

            async with anyio.create_task_group() as group:
                for number in range(120):
                    group.start_soon(one, number)

    anyio.run(main)
    assert sorted(found, key=int) == [f"{number}\n" for number in range(120)]


def test_a_flood_of_output_is_kept_in_bounds_with_its_head_and_tail(tier: str) -> None:
    limits = SandboxLimits(output_bytes=1000)
    with Sandbox(SandboxConfig(tier=tier, limits=limits)) as box:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = box.execute_command("echo first; yes | head -c 300M; echo last")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.truncated
    assert result.stdout.startswith("first\n")
    assert result.stdout.endswith("last\n")
    assert result.output.omitted == result.usage.stdout_bytes - 1000
    assert grown < 32 * 1024  # KiB


def test_bytes_that_are_no_text_come_back_as_they_are(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        result = box.execute_command(r"printf '\377\376\000ok\n'; printf '\303' >&2")
    assert result.stdout_bytes == b"\xff\xfe\x00ok\n"
    assert result.stderr_bytes == b"\xc3"
    assert "ok" in result.stdout


@pytest.mark.parametrize("line", ["cat", "read x; echo $?", "python3 -c 'input()'", "sort", "git commit"])
def test_a_command_that_reads_gets_an_end_and_not_a_wait(tier: str, line: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert isinstance(box.execute_command(line, timeout=20).outcome, Exited)


def test_input_of_any_size_reaches_a_command_and_one_that_does_not_read_ends_all_the_same(tier: str) -> None:
    data = os.urandom(1 << 20) * 6
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["wc", "-c"], input=data).stdout.strip() == str(len(data))
        assert box.run(["true"], input=data).ok


def test_a_callback_that_raises_ends_the_run_and_is_raised(tier: str) -> None:
    def refuse(data: bytes) -> None:
        raise ZeroDivisionError

    with Sandbox(SandboxConfig(tier=tier)) as box:
        with pytest.raises(ZeroDivisionError):
            box.run(["sh", "-c", "echo x; sleep 60"], on_stdout=refuse)
        assert box.run(["echo", "next"]).stdout == "next\n"


HOSTILE_TREE = r"""
ln -s / rootlink; ln -s .. up; ln -s loop loop; ln -s self/x self; mkfifo pipe
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
mkdir -p a/b c d; touch a/b/f d/f; chmod 000 a/b a; chmod 555 c; chmod 500 d
python3 - <<'END'
import os
for name in (b'a\nb', b'-rf', b' ', b'"q"', b"it's", b'\xff\xfe', b'*', '\u00e9'.encode(), b'\x1b[31m', b'n' * 255):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
END
"""


def test_links_loops_and_hostile_names_are_listed_once_and_do_not_block_the_end(tier: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep")
    victim.chmod(0o600)
    with Sandbox(SandboxConfig(tier=tier)) as box:
        result = box.execute_command(HOSTILE_TREE + f"ln -s {victim} stdout.txt", timeout=30)
        assert result.ok, result.stderr
        names = box.list_files()
        assert len(names) == len(set(names))
        for name in (
            b"a\nb",
            b"-rf",
            b" ",
            b'"q"',
            b"it's",
            b"\xff\xfe",
            b"*",
            b"\x1b[31m",
            b"n" * 255,
            b"rootlink",
            b"pipe",
            b"sock",
        ):
            assert names.count(os.fsdecode(name)) == 1
        for name in ("a\nb", "-rf", " ", os.fsdecode(b"\xff\xfe")):
            assert box.read_file(name) == ""
        workdir = box.workdir
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("keep", 0o600)
    assert not os.path.exists(workdir)


def test_a_zygote_that_is_killed_is_a_lost_box_and_the_next_box_has_another() -> None:
    with Sandbox() as box:
        assert box.run(["true"]).ok
        os.kill(zygote.current().pid, 9)
        with pytest.raises(SandboxLostError):
            box.run(["sleep", "60"], timeout=20)
    with Sandbox() as box:
        assert box.run(["echo", "again"]).stdout == "again\n"


def test_a_box_whose_first_process_is_killed_is_lost_with_the_output_so_far(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        pid = box._open().box.pid

        def kill(data: bytes) -> None:
            os.kill(pid, 9)

        with pytest.raises(SandboxLostError) as lost:
            box.run(["sh", "-c", "echo so far; sleep 60"], on_stdout=kill, timeout=30)
        assert lost.value.stdout == b"so far\n"
        with pytest.raises(SandboxLostError):
            box.run(["true"])


LONG_TMPDIR = """
import os, sys, tempfile
os.environ["TMPDIR"] = folder = tempfile.mkdtemp() + "/" + "d" * 130
os.makedirs(folder)
tempfile.tempdir = None
from ringfence.sync import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:
    manager = "import multiprocessing as m\\nif __name__ == '__main__':\\n    print(len(m.Manager().list([1])))"
    print(box.execute(manager).stdout, end="")
import shutil
shutil.rmtree(os.path.dirname(folder))
"""


def test_a_long_temporary_folder_of_the_caller_breaks_no_socket() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG_TMPDIR, "namespaces"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_what_a_caller_still_holds_of_an_ended_box_is_not_taken_for_another(tier: str) -> None:
    kept: list[int] = []
    try:
        for _ in range(3):
            with Sandbox(SandboxConfig(tier=tier)) as ended:
                box = ended._open().box
                kept += [os.dup(box.pidfd), os.dup(box.timer)]  # as a caller does that has not looked yet
            with Sandbox(SandboxConfig(tier=tier)) as first, Sandbox(SandboxConfig(tier=tier)) as second:
                assert first.run(["true"]).ok and second.run(["true"]).ok
    finally:
        for descriptor in kept:
            os.close(descriptor)
