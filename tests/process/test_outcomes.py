"""How a command ended is read from what it cannot write: exit codes, signals, caps and failed starts are told apart."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.outcome import CapHit, Exited, NotStarted, Reason, Signaled
from ringfence.policy.config import SandboxLimits
from ringfence.process import classify
from ringfence.process.messages import Ended, Failed
from ringfence.sync import Sandbox, SandboxConfig


@pytest.mark.parametrize("code", [0, 1, 2, 124, 125, 126, 127, 137, 143, 255])
def test_an_exit_code_is_an_exit_code_whatever_its_number(box: Sandbox, code: int) -> None:
    result = box.execute_command(f"exit {code}")
    assert (result.outcome, result.exit_code, result.signal) == (Exited(code), code, None)
    assert not result.timed_out
    assert not result.memory_exceeded


@pytest.mark.parametrize("number", [1, 2, 6, 9, 11, 15, 24])
def test_a_signal_that_a_command_sends_itself_is_a_signal(box: Sandbox, number: int) -> None:
    result = box.run(["sh", "-c", f"kill -{number} $$"])
    assert (result.outcome, result.exit_code, result.signal) == (Signaled(number), None, number)


def test_a_program_that_uses_up_its_cpu_time_hits_that_cap(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(cpu_seconds=1))) as box:
        result = box.execute("while True: pass", timeout=60)
        assert isinstance(result.outcome, CapHit)
        assert (result.outcome.kind, result.outcome.limit) == ("cpu", 1)
        with pytest.raises(TimeoutError):
            result.raise_for_status()
        assert box.run(["sh", "-c", "kill -XCPU $$"]).outcome == Signaled(24)
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(cpu_seconds=None))) as box:
        assert box.execute("import time\nwhile time.process_time() < 1.3: pass", timeout=60).ok


def test_more_files_than_the_limit_cannot_be_opened(tier: str) -> None:
    code = "held = [open('/dev/null') for _ in range(64)]"
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(open_files=32))) as box:
        assert "Too many open files" in box.execute(code).stderr
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.execute(code).ok


def test_a_limit_cannot_be_raised_from_inside(tier: str) -> None:
    raise_it = (
        "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n    print('raised')\n"
        "except ValueError: print('kept')"
    )
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(open_files=64))) as box:
        if tier == "namespaces":
            assert [box.execute(raise_it).stdout for _ in range(3)] == ["kept\n"] * 3
            assert box.execute_command("ulimit -n 4096 && echo raised || echo kept").stdout == "kept\n"
        assert box.execute_command("ulimit -n 32 && ulimit -n").stdout == "32\n"


def test_a_command_that_lowers_a_limit_of_its_own_at_once_has_started(box: Sandbox) -> None:
    lowers = "ulimit -t 1; ulimit -n 20; ulimit -n; exit 3"
    ends = [box.run(["sh", "-c", lowers]) for _ in range(30)]
    assert {(each.outcome, each.stdout) for each in ends} == {(Exited(3), "20\n")}


def files_that_do_not_start(folder: Path) -> None:
    (folder / "noexec.sh").write_text("#!/bin/sh\n")
    (folder / "missing.sh").write_text("#!/no/such/interpreter\n")
    (folder / "garbage").write_bytes(b"\0\1\2\3garbage")
    (folder / "folder").mkdir()
    for name in ("missing.sh", "garbage"):
        (folder / name).chmod(0o755)


REASONS = {
    "nope": Reason.NOT_FOUND,
    "./nope": Reason.NOT_FOUND,
    "./noexec.sh": Reason.NOT_EXECUTABLE,
    "./missing.sh": Reason.MISSING_INTERPRETER,
    "./folder": Reason.IS_A_DIRECTORY,
    "./garbage": Reason.BAD_FORMAT,
}


@pytest.mark.parametrize(("name", "reason"), REASONS.items(), ids=REASONS.keys())
def test_exec_failure_has_a_reason_and_no_exit_code(tier: str, tmp_path: Path, name: str, reason: Reason) -> None:
    files_that_do_not_start(tmp_path)
    with Sandbox(SandboxConfig(tier=tier, workspace=tmp_path)) as box:
        result = box.run([name])
        assert isinstance(result.outcome, NotStarted)
        assert (result.outcome.reason, result.exit_code, result.ok) == (reason, None, False)
        with pytest.raises(errors.CommandNotStartedError) as raised:
            result.raise_for_status()
        assert isinstance(raised.value, FileNotFoundError) == (reason is Reason.NOT_FOUND)
        (tmp_path / "fine.sh").write_text("#!/bin/sh\necho fine\n")
        (tmp_path / "fine.sh").chmod(0o755)
        assert box.run(["./fine.sh"]).stdout == "fine\n"
        assert box.execute_command("nope").exit_code == 127


def test_raise_for_status_returns_a_good_result_and_raises_the_cousin_of_each_bad_one(box: Sandbox) -> None:
    good = box.run(["true"])
    assert good.raise_for_status() is good
    with pytest.raises(subprocess.CalledProcessError) as failed:
        box.run(["sh", "-c", "echo out; exit 3"], check=True)
    assert (failed.value.returncode, failed.value.output) == (3, "out\n")
    with pytest.raises(subprocess.CalledProcessError) as signalled:
        box.execute_command("kill -TERM $$").raise_for_status()
    assert signalled.value.returncode == -15
    with pytest.raises(TimeoutError) as late:
        box.run(["sleep", "9"], timeout=0.2).raise_for_status()
    assert isinstance(late.value, errors.CapExceededError)


ENDED = {
    "exit 137": (Ended(137 << 8, 0, 0, 0.1, "", None, 7), Exited(137)),
    "SIGKILL of its own": (Ended(9, 0.1, 0.1, 0.2, "", None, 7), Signaled(9)),
    "SIGXCPU of its own": (Ended(24, 0.1, 0.1, 0.2, "", None, 7), Signaled(24)),
    "SIGXCPU at the limit": (Ended(24, 4.0, 1.0, 5.1, "", None, 7), CapHit("cpu", 5, 5.0, "rlimit")),
    "SIGKILL past the limit": (Ended(9, 5.1, 1.0, 6.2, "", None, 7), CapHit("cpu", 5, 6.1, "rlimit")),
    "exit past the limit": (Ended(0, 5.0, 1.0, 6.2, "", None, 7), Exited(0)),
    "SIGXFSZ without a limit": (Ended(25, 0, 0, 0.1, "", None, 7), Signaled(25)),
    "killed by us": (Ended(9, 0, 0, 0.1, "killed", None, 7), Signaled(9)),
    "deadline": (Ended(9, 0, 0, 2.1, "deadline", None, 7), CapHit("wall", 2.0, 2.1, "deadline of the call")),
}


@pytest.mark.parametrize(("ended", "outcome"), ENDED.values(), ids=ENDED.keys())
def test_an_end_is_classified_by_its_status_and_what_was_spent(ended: Ended, outcome: object) -> None:
    assert classify.of_ended(ended, SandboxLimits(cpu_seconds=5), 2.0, (), 0) == outcome


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (Failed(2, "exec", "x", 0, "", 0), Reason.NOT_FOUND),
        (Failed(2, "exec", "x", 0o100755, "", 0), Reason.MISSING_INTERPRETER),
        (Failed(13, "exec", "x", 0o100644, "", 0), Reason.NOT_EXECUTABLE),
        (Failed(13, "exec", "x", 0o040755, "", 0), Reason.IS_A_DIRECTORY),
        (Failed(8, "exec", "x", 0o100755, "", 0), Reason.BAD_FORMAT),
        (Failed(7, "exec", "x", 0o100755, "", 0), Reason.TOO_LARGE),
        (Failed(11, "exec", "x", 0o100755, "", 0), Reason.NO_PROCESS),
        (Failed(12, "exec", "x", 0o100755, "", 0), Reason.NO_RESOURCES),
        (Failed(2, "cwd", "x", 0, "", 0), Reason.BAD_CWD),
    ],
)
def test_a_failed_start_is_classified_by_errno_and_what_is_there(failed: Failed, reason: Reason) -> None:
    outcome = classify.of_failed(failed, None)
    assert isinstance(outcome, NotStarted)
    assert outcome.reason is reason
