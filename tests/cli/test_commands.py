"""The command line as a person or a script meets it: real processes, real pipes, a real terminal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

OURS = 125


def ringfence(*argv: str, cwd: Path, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ringfence", *argv]
    given = {"input": data} if data is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=60, check=False, **given)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("code", [0, 1, 7, 124, 125, 255])
def test_the_exit_status_is_the_commands(tmp_path: Path, code: int) -> None:
    done = ringfence("run", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"out\n", b"err\n")


def test_a_signal_shows_as_a_shell_shows_it(tmp_path: Path) -> None:
    assert ringfence("run", "--", "sh", "-c", "kill -TERM $$", cwd=tmp_path).returncode == 128 + 15


def test_a_limit_a_missing_program_and_a_closed_one_have_their_own_statuses(tmp_path: Path) -> None:
    late = ringfence("run", "--timeout", "0.3", "--", "sleep", "30", cwd=tmp_path)
    assert (late.returncode, b"wall limit" in late.stderr) == (124, True)
    assert ringfence("run", "--", "no-such-program", cwd=tmp_path).returncode == 127
    (tmp_path / "closed").write_text("#!/bin/sh\n")
    assert ringfence("run", "--", "./closed", cwd=tmp_path).returncode == 126


def test_caps_of_a_policy_are_told_in_units_and_only_where_they_were_met(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\nresources: {memory_gib: {limit: 0.0625}, max_processes: 40, disk_gib: 1}\n")
    within = ringfence("run", "--policy", "p.yaml", "--", "true", cwd=tmp_path)
    assert (within.returncode, within.stderr) == (0, b"")
    program = "/usr/bin/python3 -c 'b = bytearray(1 << 30)'"
    over = ringfence("run", "--policy", "p.yaml", "--", "sh", "-c", f"exec {program}", cwd=tmp_path)
    assert (over.returncode, b"reached its memory limit of 64 MiB" in over.stderr) == (OURS - 1, True)
    child = ringfence("run", "--policy", "p.yaml", "--", "sh", "-c", f"{program}; echo survived", cwd=tmp_path)
    assert (child.returncode, child.stdout) == (0, b"survived\n")
    assert b"cap memory refused by resources.memory_gib.limit: 0.0625" in child.stderr


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--workspace", "/"), b"workspace"),
        (("--workspace", "/no/such/folder"), b"No such file"),
        (("--tier", "docker"), b"not built"),
        (("--tier", "magic"), b"magic"),
        (("--timeout", "-1"), b"positive"),
    ],
)
def test_a_failure_of_ours_is_125_and_says_what_to_do(tmp_path: Path, argv: tuple[str, ...], named: bytes) -> None:
    done = ringfence("run", *argv, "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == OURS
    assert named in done.stderr
    assert done.stderr.startswith(b"ringfence: ")
    assert not (tmp_path / "ran").exists()


def test_what_is_piped_in_is_read_and_bytes_come_out_as_they_are(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    assert ringfence("run", "--", "cat", cwd=tmp_path, data=data).stdout == data


def test_a_reader_that_is_gone_ends_the_command_without_a_complaint(tmp_path: Path) -> None:
    line = f"{sys.executable} -m ringfence run -- yes | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"y\n", b"", 141)


def test_what_the_box_has_for_itself_and_what_it_planted_are_lines_on_standard_error(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    assert ringfence("run", "--", "git", "status", "--short", cwd=tmp_path).stderr == b""
    done = ringfence("run", "--", "sh", "-c", "git config user.name x; git init -q sub", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [
        f"ringfence: planted {tmp_path}/sub/.git: a new repository",
        f"ringfence: {tmp_path}/.git/config was changed in the box only; the host's is as it was",
        "ringfence: may be taken over: user.name",
    ]
    policy = tmp_path.parent / "refuse.yaml"
    policy.write_text("version: 1\non_planted: refuse\n")
    refused = ringfence(
        "run", "--policy", str(policy), "--workspace", str(tmp_path), "--", "git", "init", "-q", "two", cwd=tmp_path
    )
    assert refused.returncode == OURS
    assert b"two/.git" in refused.stderr


@pytest.mark.parametrize("command", [("run", "--", "touch"), ("run", "--json", "--", "touch"), ("python",)])
def test_what_was_refused_is_one_line_with_what_would_allow_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    program = tmp_path / "program.py"
    program.write_text("open('/usr/rf-new', 'w')\n")
    done = ringfence(*command, str(program) if command == ("python",) else "/usr/rf-new", cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert last == "ringfence: write /usr/rf-new refused by the system's folders"
    netted = ringfence("run", "--", "sh", "-c", "curl -sS http://denied.test/; exit 3", cwd=tmp_path)
    assert netted.returncode == 3
    allowed = "allowed by network.allow: [denied.test]"
    assert netted.stderr.decode().splitlines()[-1] == f"ringfence: net denied.test:80 refused by network.default; {allowed}"


def test_a_device_as_input_is_not_read(tmp_path: Path) -> None:
    line = f"{sys.executable} -m ringfence run -- cat < /dev/zero"
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=60, check=False).stdout == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one_and_nothing_else_is_taken_for_it(tmp_path: Path, closed: str) -> None:
    line = f"{sys.executable} -m ringfence run --timeout 20 -- sh -c 'cat; echo out; echo err >&2; touch ran; exit 3' {closed}"
    given = {} if "<" in closed else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=60, check=False, **given)  # type: ignore[call-overload]
    assert (done.returncode, (tmp_path / "ran").exists()) == (3, True)
    assert done.stdout == (b"" if " >&-" in f" {closed}" else b"out\n")
    assert done.stderr == (b"" if "2>&-" in closed else b"err\n")


def test_output_that_cannot_be_written_is_a_failure_of_ours_that_names_it(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "ringfence", "run", "--", "echo", "x"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == OURS
    assert done.stderr.startswith(b"ringfence: standard output cannot be written: No space left on device.")


def test_a_pipe_that_another_program_made_non_blocking_loses_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [sys.executable, "-m", "ringfence", "run", "--", "head", "-c", "3000000", "/dev/zero"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=writing, stdin=subprocess.DEVNULL)
    os.close(writing)
    with open(reading, "rb") as pipe:
        select.select([pipe], [], [], 60)
        time.sleep(0.2)  # for the pipe to be full; the assertion holds either way
        assert len(pipe.read()) == 3_000_000
    assert process.wait(60) == 0


def test_the_outcome_as_json_keeps_its_type_apart_from_the_kind_of_a_cap(tmp_path: Path) -> None:
    late = json.loads(ringfence("run", "--json", "--timeout", "0.3", "--", "sleep", "30", cwd=tmp_path).stdout)
    assert (late["outcome"]["type"], late["outcome"]["kind"], late["exit_code"]) == ("CapHit", "wall", None)
    assert json.loads(ringfence("run", "--json", "--", "true", cwd=tmp_path).stdout)["outcome"] == {"type": "Exited", "code": 0}


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_interrupt_ends_the_tree_and_is_status_130(tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ringfence", "run", *options, "--", "sh", "-c", "touch began; sleep 60; touch went-on"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    limit = time.monotonic() + 60
    while not (tmp_path / "began").exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert (process.returncode, (tmp_path / "went-on").exists()) == (130, False)


def test_the_current_folder_is_the_workspace(tmp_path: Path) -> None:
    done = ringfence("run", "--", "sh", "-c", "pwd; touch made", cwd=tmp_path)
    assert done.stdout.decode().strip() == os.path.realpath(tmp_path)
    assert (tmp_path / "made").exists()


def test_python_runs_a_file_or_code_and_ends_as_the_program_does(tmp_path: Path) -> None:
    assert ringfence("python", "-c", "print(40 * 10)", cwd=tmp_path).stdout == b"400\n"
    (tmp_path / "program.py").write_text("import sys; print('from a file'); sys.exit(3)")
    done = ringfence("python", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, b"from a file\n")
    assert ringfence("python", "missing.py", cwd=tmp_path).returncode == OURS


@pytest.mark.parametrize("command", [(), ("run",), ("python",)])
def test_every_command_has_help_with_an_example(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = ringfence(*command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert not command or b"example: ringfence " in done.stdout


def test_the_module_imports_nothing_from_the_folder_where_it_is_called(tmp_path: Path) -> None:
    for name in ("argparse", "msgspec", "yaml", "json", "ctypes"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    for argv in (("run", "--policy", "policy.yaml", "--json", "--", "true"), ("check", "policy.yaml"), ("explain",)):
        assert ringfence(*argv, cwd=tmp_path).returncode == 0
    assert not (tmp_path / "ran").exists()
    subprocess.run([sys.executable, "-m", "timeit", "-n1", "-r1", "import msgspec"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "ran").exists()  # as another program's module does, called there


def test_one_policy_has_one_hash_whatever_command_says_it(tmp_path: Path) -> None:
    told = [ringfence(*command, cwd=tmp_path).stdout for command in (("run", "--json", "--", "true"), ("explain", "--json"))]
    assert len({re.search(rb'"(?:policy_)?hash": ?"([0-9a-f]{64})"', text)[1] for text in told}) == 1  # type: ignore[index]
