"""spawn(terminal=...): a terminal made inside the box, on both surfaces."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import anyio
import pytest

import ringfence
from ringfence import errors
from ringfence.outcome import CapHit, Exited, Signaled
from ringfence.sync import Process, Sandbox, SandboxConfig

SIZE = (30, 100)
SECONDS = 20.0


def everything(process: Process) -> bytes:
    shown = b""
    while data := process.stdout.read(65536):
        shown += data
    return shown


def wait_for(process: Process, what: str) -> None:
    limit = time.monotonic() + SECONDS
    while not getattr(process, what):
        assert time.monotonic() < limit, what
        process.poll()
        time.sleep(0.01)


def test_the_terminal_has_a_name_a_size_and_job_control(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sh", "-c", "tty; stty size; echo $TERM; read line; echo got $line"], terminal=SIZE) as process:
            process.stdin.write(b"hello\n")
            shown = everything(process).decode()
            assert process.wait().outcome == Exited(0)
    assert "/dev/pts/" in shown and "30 100" in shown and "xterm-256color" in shown and "got hello" in shown


def test_a_command_without_one_has_pipes(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["tty"]).stdout == "not a tty\n"
        with box.spawn(["true"]) as process, pytest.raises(errors.ArgumentError, match="no terminal"):
            process.resize(10, 10)


def test_it_is_resized_while_the_command_runs(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sh", "-c", "read line; stty size"], terminal=SIZE) as process:
            process.resize(11, 22)
            process.stdin.write(b"\n")
            assert b"11 22" in everything(process)
            process.wait()
            process.resize(5, 5)  # after its end: nothing


def test_control_c_and_control_z_do_what_they_do_at_any_terminal(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sleep", "100"], terminal=SIZE) as process:
            process.stdin.write(b"\x1a")
            wait_for(process, "stopped")
            process.send_signal(signal.SIGCONT)
            assert not process.stopped
            process.stdin.write(b"\x03")
            assert process.wait().outcome == Signaled(signal.SIGINT)


def test_a_command_that_is_not_there_is_said_as_ever(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box, pytest.raises(errors.CommandNotFoundError):
        box.spawn(["no-such-program"], terminal=SIZE)


def test_the_deadline_ends_what_runs_at_a_terminal_with_its_jobs(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        line = "set -m; sleep 301 & nohup sleep 302 & sleep 303"
        with box.spawn(["bash", "-c", line], terminal=SIZE, timeout=1) as process:
            assert isinstance(process.wait().outcome, CapHit)
        left = box.execute_command("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout
        assert tier == "process" or "sleep 30" not in left


def test_who_closes_it_ends_a_stopped_command(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sleep", "304"], terminal=SIZE) as process:
            process.stdin.write(b"\x1a")
            wait_for(process, "stopped")
        assert process.returncode is None
        assert "304" not in {word for each in box.ps() for word in each.argv}


@pytest.mark.parametrize("size", [(0, 10), (10, 70000), (1.5, 2), "ab", (1,), (True, 5)])
def test_a_size_that_no_terminal_has_is_refused_before_anything_runs(size: object) -> None:
    with Sandbox() as box, pytest.raises(errors.ArgumentError):
        box.spawn(["true"], terminal=size)  # type: ignore[arg-type]


async def test_the_awaited_streams_end_where_the_terminal_does(tier: str, workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(tier=tier, workspace=workspace)) as box:
        async with await box.spawn(["sh", "-c", "read line; echo $line; stty size"], terminal=SIZE) as process:
            await process.stdin.send(b"typed\n")
            shown = b""
            with anyio.fail_after(SECONDS):
                async for data in process.stdout:
                    shown += data
            assert (await process.wait()).outcome == Exited(0)
    assert shown.count(b"typed") == 2 and b"30 100" in shown  # echoed, and written


def test_pseudo_terminals_work_for_what_runs_inside(tier: str) -> None:
    line = 'script -qec tty /dev/null; python3 -c \'import pty; pty.spawn(["echo", "hi"])\''
    with Sandbox(SandboxConfig(tier=tier)) as box:
        result = box.execute_command(line)
    assert "/dev/pts/" in result.stdout and "hi" in result.stdout
