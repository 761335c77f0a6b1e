"""The calls of a box mean what they say, with and without await, on asyncio and trio."""

from __future__ import annotations

import asyncio
import importlib.resources
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import errors, sync
from ringfence.outcome import CapHit, Exited, Signaled
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("namespaces")


async def test_every_call_works_with_await(workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.workdir == str(workspace) and box.backend == "namespaces"
        assert (await box.run(["echo", "a"])).stdout == "a\n"
        assert (await box.execute_command("cat | wc -c", stdin="four")).stdout.strip() == "4"
        assert (await box.execute("print(40 * 10)")).stdout == "400\n"
        assert await box.write_file("d/f", "text") == str(workspace / "d/f")
        assert await box.read_file("d/f") == "text" and await box.list_files() == ["d/f"]
        assert box.resolve_path("d/f") == str(workspace / "d/f")
        async with await box.spawn(["cat"]) as process:
            await process.stdin.send(b"through")
            await process.stdin.aclose()
            assert await process.stdout.receive() == b"through"
            assert (await process.wait()).ok and process.returncode == 0
        with pytest.raises(errors.CommandFailedError):
            await box.run(["false"], check=True)
    await box.cleanup()
    with pytest.raises(errors.SandboxClosedError):
        await box.run(["true"])
    assert (await ringfence.run(["pwd"])).stdout == "/workspace\n"


def test_both_surfaces_have_the_same_calls_with_the_same_arguments() -> None:
    for ours, theirs in ((ringfence.Sandbox, sync.Sandbox), (ringfence.run, sync.run)):
        if inspect.isfunction(ours):
            assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
            continue
        names = [name for name in vars(ours) if not name.startswith("_")]
        assert sorted(names) == sorted(name for name in vars(theirs) if not name.startswith("_"))
        for name in names:
            one, other = getattr(ours, name), getattr(theirs, name)
            if callable(one):
                assert [*inspect.signature(one).parameters.items()][1:] == [*inspect.signature(other).parameters.items()][1:], name


def test_a_box_used_from_another_loop_is_refused(workspace: Path) -> None:
    async def open_one() -> ringfence.Sandbox:
        return await ringfence.Sandbox(SandboxConfig(workspace=workspace)).__aenter__()

    async def use(box: ringfence.Sandbox) -> None:
        await box.run(["touch", "made"])

    async def own() -> None:
        async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
            await use(box)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        box = first.run(open_one())
        with pytest.raises(errors.WrongLoopError):
            second.run(use(box))
        assert not (workspace / "made").exists()
        first.run(use(box))
        first.run(box.cleanup())
        second.run(own())
    assert (workspace / "made").exists()


async def test_the_blocking_surface_works_inside_a_running_loop_and_from_threads(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["echo", "in a loop"]).stdout == "in a loop\n"
        said: list[str] = []
        threads = [threading.Thread(target=lambda n=n: said.append(box.run(["echo", str(n)]).stdout)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == [f"{n}\n" for n in range(8)]


@pytest.mark.parametrize("data", ["text ☃", b"\x00\xff bytes", "", b"", "x" * (1 << 20)])
def test_input_arrives_byte_for_byte(data: str | bytes, box: Sandbox) -> None:
    expected = data.encode() if isinstance(data, str) else data
    assert box.run(["cat"], input=data).raise_for_status().stdout_bytes == expected
    assert box.execute_command("cat", stdin=data).raise_for_status().stdout_bytes == expected


def test_without_input_a_command_reads_nothing(box: Sandbox) -> None:
    assert box.run(["cat"], timeout=20).raise_for_status().stdout == ""


def test_a_variable_of_one_call_is_not_in_the_next(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, environment={"KEPT": "box", "BOTH": "box"})) as box:
        shell = ["sh", "-c", "echo $KEPT $BOTH $ONCE"]
        assert box.run(shell, env={"ONCE": "call", "BOTH": "call"}).stdout == "box call call\n"
        assert box.run(shell).stdout == "box box\n"
        code = "import os; print(*(os.environ.get(n) for n in ('KEPT', 'BOTH', 'ONCE')))"
        assert [box.execute(code).stdout for _ in range(3)] == ["box box None\n"] * 3
        box.execute_command("export ONCE=1 BOTH=2; cd /tmp; umask 0")
        assert box.run(shell).stdout == "box box\n" and box.run(["pwd"]).stdout == f"{workspace}\n"


def test_check_raises_what_raise_for_status_raises_and_keeps_the_result(box: Sandbox) -> None:
    result = box.run(["sh", "-c", "echo out; echo err >&2; exit 4"])
    with pytest.raises(subprocess.CalledProcessError) as caught:
        box.run(["sh", "-c", "echo out; echo err >&2; exit 4"], check=True)
    assert caught.value.returncode == 4 == result.exit_code
    assert isinstance(caught.value, errors.CommandFailedError)
    assert (caught.value.result.stdout, caught.value.result.stderr) == ("out\n", "err\n")
    with pytest.raises(FileNotFoundError) as missing:
        box.run(["no-such-program"], check=True)
    assert isinstance(missing.value, errors.CommandNotFoundError) and "no-such-program" in str(missing.value)
    with pytest.raises(TimeoutError) as late:
        box.run(["sleep", "60"], check=True, timeout=0.2)
    assert isinstance(late.value, errors.CapExceededError)
    assert box.run(["true"], check=True).ok


def test_a_timeout_shortens_the_limit_of_the_box_and_never_lengthens_it(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, limits=SandboxLimits(wall_seconds=0.4))) as box:
        for timeout, expected in ((0.2, 0.2), (50, 0.4), (None, 0.4)):
            for result in (
                box.run(["sleep", "60"], timeout=timeout),
                box.execute_command("sleep 60", timeout=timeout),
                box.execute("import time; time.sleep(60)", timeout=timeout),
            ):
                assert isinstance(result.outcome, CapHit) and result.timed_out and result.exit_code is None
                assert (result.outcome.kind, result.outcome.limit) == ("wall", expected)
        with box.spawn(["sleep", "60"], timeout=50) as process:
            assert process.wait().timed_out


def test_pieces_of_output_are_given_as_they_come(box: Sandbox) -> None:
    got: list[tuple[str, bytes]] = []
    result = box.run(
        ["sh", "-c", "echo one; echo two >&2"],
        on_stdout=lambda piece: got.append(("out", piece)),
        on_stderr=lambda piece: got.append(("err", piece)),
    )
    assert sorted(got) == [("err", b"two\n"), ("out", b"one\n")] and result.stdout == "one\n"


def test_a_spawned_process_has_streams_a_number_and_an_end(box: Sandbox) -> None:
    with box.spawn(["sh", "-c", "read line; echo got $line; echo no >&2; exit 5"], env={"A": "b"}) as process:
        assert process.returncode is None and process.pid > 1
        process.stdin.write(b"hello\n")
        assert process.stdout.read() == b"got hello\n" and process.stderr.read() == b"no\n"
        result = process.wait()
        assert result.outcome == Exited(5) and process.returncode == 5 and process.wait() is result
        process.terminate()
        process.kill()


@pytest.mark.parametrize("how", ["terminate", "kill", "send_signal"])
def test_a_spawned_process_is_signalled(how: str, box: Sandbox) -> None:
    numbers = {"terminate": signal.SIGTERM, "kill": signal.SIGKILL, "send_signal": signal.SIGUSR1}
    with box.spawn(["sleep", "100"]) as process:
        getattr(process, how)(*([signal.SIGUSR1] if how == "send_signal" else []))
        assert process.wait().outcome == Signaled(numbers[how]) and process.returncode == -numbers[how]


def test_leaving_the_block_of_a_spawned_process_ends_its_tree(box: Sandbox) -> None:
    with box.spawn(["sh", "-c", "sleep 4321 & setsid sleep 4321 & echo ready; wait"]) as process:
        assert process.stdout.readline() == b"ready\n"
        box.execute_command("until [ $(pgrep -fc '^sleep 4321') = 2 ]; do :; done", timeout=30).raise_for_status()
    assert box.run(["pgrep", "-fc", "^sleep 4321"]).stdout.strip() == "0"


def test_a_handle_outlives_its_box_and_says_that_it_was_closed(tier: str, workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, tier=tier)) as box:
        running, ended = box.spawn(["sleep", "1000"]), box.spawn(["true"])
        assert ended.wait().ok
    for ask in (running.poll, running.wait):
        with pytest.raises(errors.SandboxClosedError, match="was closed while"):
            ask()
    assert ended.poll() == 0 and running.stdout.read() == b""
    for handle in (running, ended):
        handle.kill()
        handle.close()


async def test_a_handle_outlives_its_box_with_await_too(workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        process = await box.spawn(["sleep", "1000"])
    with pytest.raises(errors.SandboxClosedError, match="was closed while"):
        await process.wait()
    await process.aclose()


def test_spawn_raises_where_nothing_was_started(box: Sandbox, workspace: Path) -> None:
    (workspace / "plain").write_text("")
    with pytest.raises(errors.CommandNotFoundError):
        box.spawn(["no-such-program"])
    with pytest.raises(errors.CommandNotStartedError):
        box.spawn(["./plain"])


def test_paths_are_resolved_to_what_the_box_may_read_or_write(workspace: Path, tmp_path: Path) -> None:
    reads, writes = tmp_path / "reads", tmp_path / "writes"
    for folder in (tmp_path, reads, writes):
        folder.mkdir(exist_ok=True)
    (workspace / "inner").symlink_to("file")
    (workspace / "outer").symlink_to(reads.parent)
    with Sandbox(SandboxConfig(workspace=workspace, read_only=[reads], writable=[writes])) as box:
        assert box.resolve_path("a/../file", write=True) == str(workspace / "file") == box.resolve_path(workspace / "file")
        assert box.resolve_path("inner", write=True) == str(workspace / "inner")
        assert box.resolve_path(reads / "x") == str(reads / "x") and box.resolve_path(writes / "x", write=True) == str(writes / "x")
        for path, write in ((reads / "x", True), ("../x", False), ("/etc/passwd", False), ("outer/x", False), ("/usr/x", True)):
            with pytest.raises(errors.OutsideError) as caught:
                box.resolve_path(path, write=write)
            assert isinstance(caught.value, PermissionError)


def test_a_read_only_box_writes_nowhere_in_its_workspace(workspace: Path) -> None:
    (workspace / "kept").write_text("kept")
    for mode, allowed in (("read-only", False), ("workspace-write", True)):
        with Sandbox(SandboxConfig(workspace=workspace, mode=mode)) as box:
            assert box.run(["sh", "-c", "echo x > made"]).ok is allowed
            assert box.read_file("kept") == "kept" and box.run(["sh", "-c", "echo x > $HOME/f && echo x > /tmp/f"]).ok
            if allowed:
                box.write_file("kept", "changed")
            else:
                with pytest.raises(errors.OutsideError):
                    box.write_file("kept", "changed")
    assert (workspace / "kept").read_text() == "changed"


def test_files_of_both_sides_are_one_world(box: Sandbox, workspace: Path) -> None:
    path = box.write_file("deep/er/file.txt", "é\r\n☃")
    assert Path(path).read_bytes() == "é\r\n☃".encode() and box.run(["cat", path]).stdout == "é\r\n☃"
    box.write_file(path, b"shorter")
    box.execute("import os; os.makedirs('p'); open('p/made', 'w').write('by a program'); os.symlink('/etc', 'away')")
    assert box.read_file("p/made") == "by a program" and box.read_file("deep/er/file.txt") == "shorter"
    assert box.list_files() == ["away", "deep/er/file.txt", "p/made"]
    (workspace / "bytes").write_bytes(b"\xff")
    assert box.read_file("bytes") == "\ufffd"


def test_new_files_are_named_in_the_result(box: Sandbox) -> None:
    result = box.run(["sh", "-c", "mkdir d; echo x > d/new; echo x > other"])
    assert result.files_created == ("d/new", "other")
    assert box.run(["sh", "-c", "echo y > other"]).files_created == ()


@pytest.mark.parametrize("way", ["end", "error", "failure to run"])
@pytest.mark.parametrize("tier", ["namespaces", "process"])
def test_an_ephemeral_workspace_is_gone_on_every_way_out(way: str, tier: str) -> None:
    workdir = ""
    try:
        with Sandbox(SandboxConfig(tier=tier)) as box:
            workdir = box.workdir
            box.write_file("kept?", "no")
            assert box.list_files() == ["kept?"]
            if way == "error":
                raise ZeroDivisionError
            if way == "failure to run":
                box.run([])
    except (ZeroDivisionError, errors.ArgumentError):
        pass
    assert not os.path.exists(os.path.join(workdir, "kept?"))
    assert tier == "namespaces" or not os.path.exists(workdir)


def test_one_run_has_a_box_of_its_own(workspace: Path) -> None:
    assert sync.run(["sh", "-c", "pwd; echo x > f; ls"]).stdout == "/workspace\nf\n"
    assert sync.run(["ls"]).stdout == ""
    sync.run(["touch", "made"], config=SandboxConfig(workspace=workspace), check=True)
    assert (workspace / "made").exists()
    with pytest.raises(errors.CommandFailedError):
        sync.run(["false"], check=True)


def test_results_say_what_held_and_what_was_used(box: Sandbox) -> None:
    result = box.run(["sh", "-c", "echo out; echo err >&2"])
    assert result.backend == "namespaces" and len(result.policy_hash) == 64 and not result.truncated and result.denials == ()
    assert result.enforcement.memory.level != "none" and result.enforcement.network.level == "full"
    assert (result.usage.stdout_bytes, result.usage.stderr_bytes) == (4, 4) and result.execution_time_ms > 0
    assert result.signal is None and not result.memory_exceeded and result.raise_for_status() is result


def test_the_package_is_typed_and_light_to_import() -> None:
    assert importlib.resources.files("ringfence").joinpath("py.typed").is_file()
    code = "import ringfence, sys; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ringfence" in loaded
    for heavy in ("anyio", "trio", "asyncio", "click", "msgspec", "typing_extensions"):
        assert repr(heavy) not in loaded


def test_cleanup_may_be_called_again_and_ends_what_runs(workspace: Path) -> None:
    box = Sandbox(SandboxConfig(workspace=workspace)).__enter__()
    process: Any = box.spawn(["sleep", "300"])
    began = time.monotonic()
    box.cleanup()
    box.cleanup()
    process.close()
    assert time.monotonic() - began < 20
