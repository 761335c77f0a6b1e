"""What happened is in the trace when the call returns: boxes, runs, how they ended, what was refused, what they wrote."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import ringfence
from ringfence import PermissionManager, errors, sync
from ringfence.outcome import Exited
from ringfence.permission.questions import Answer, Question
from ringfence.sync import SandboxConfig, SandboxLimits
from ringfence.trace import Trace
from ringfence.trace.reader import Reader, RunRecord
from ringfence.trace.verify import verify

pytestmark = pytest.mark.live("namespaces")


def runs(path: str) -> list[RunRecord]:
    """All runs, the oldest first."""
    with Reader(path) as reader:
        assert verify(reader).ok
        return reader.runs()[::-1]


def test_each_run_of_a_box_is_there_when_its_call_returns(path: str, workspace: Path) -> None:
    with Trace() as trace, sync.Sandbox(SandboxConfig(workspace=workspace), trace=trace) as box:
        result = box.run(["sh", "-c", "echo out; echo err >&2; exit 3"], input="in", timeout=20)
        (run,) = runs(path)
        assert result.notes == () and result.exit_code == 3
        assert run.ended is not None and run.begun.body["argv"] == ["sh", "-c", "echo out; echo err >&2; exit 3"]
        assert (run.begun.out, run.ended.out, run.ended.err) == (b"in", b"out\n", b"err\n")
        assert run.ended.body["outcome"] == {"type": "Exited", "code": 3} and run.begun.body["timeout_seconds"] == 20
        assert run.ended.body["stdout"]["bytes"] == 4 and run.ended.body["usage"]["wall_seconds"] > 0
        assert run.tier == "namespaces" and run.enforcement["filesystem"] == str(box.enforcement.filesystem)
        assert run.box is not None and run.box.body["policy_hash"] == result.policy_hash
        box.execute("print(1)")
        box.execute_command("echo $0 | cat")
    code, line = runs(path)[1:]
    assert (code.begun.body["text"], code.begun.body["language"], code.begun.body["kind"]) == ("print(1)", "python", "code")
    assert (line.begun.body["argv"], line.begun.body["kind"]) == (["echo $0 | cat"], "command")
    with Reader(path) as reader:
        kinds = [row.kind for row in reader.rows()]
        assert kinds == ["trace", "box", "run", "end", "run", "end", "run", "end", "gone"]
        assert any(step.startswith(f"mount {workspace}") for step in reader.plan(run.box.body["plan"]))


async def test_awaited_runs_and_started_commands_are_recorded_too(path: str) -> None:
    with Trace() as trace:
        async with ringfence.Sandbox(trace=trace) as box:
            await box.run(["true"])
            async with await box.spawn(["sh", "-c", "echo one; echo two >&2"]) as process:
                assert b"".join([piece async for piece in process.stdout]) == b"one\n"
                await process.wait()
            async with await box.spawn(["sleep", "60"]):
                pass
    plain, spawned, closed = runs(path)
    assert plain.ended is not None and plain.ended.body["outcome"] == {"type": "Exited", "code": 0}
    assert spawned.ended is not None and (spawned.begun.body["kind"], spawned.ended.out) == ("spawn", b"one\n")
    assert closed.ended is not None and closed.ended.body["error"] == "cancelled"


def test_a_run_that_ringfence_failed_at_is_recorded_with_its_error(path: str) -> None:
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        with pytest.raises(errors.OutsideError):
            box.run(["true"], cwd="/etc")
        with pytest.raises(ZeroDivisionError):
            box.run(["echo", "x"], on_stdout=lambda data: 1 // 0)
    assert [run.ended.body["error"] for run in runs(path) if run.ended] == ["path-outside", "callback"]


def test_denials_and_caps_are_recorded_as_the_result_has_them(path: str, workspace: Path) -> None:
    limits = SandboxLimits(wall_seconds=0.3)
    with Trace() as trace, sync.Sandbox(SandboxConfig(workspace=workspace, limits=limits), trace=trace) as box:
        refused = box.execute_command("echo x > /etc/zz")
        late = box.run(["sleep", "60"])
    first, second = runs(path)
    assert refused.denials and [each["target"] for each in first.denials] == [each.target for each in refused.denials]
    assert second.ended is not None and late.timed_out
    assert second.ended.body["outcome"]["type"] == "CapHit" and second.ended.body["outcome"]["kind"] == "wall"


def test_what_was_asked_and_answered_is_recorded_and_what_was_refused_too(path: str) -> None:
    class Person:
        def ask(self, question: Question) -> Answer:
            return Answer("no" if "bad" in question.what else "once", "a person")

    with Trace() as trace, sync.Sandbox(trace=trace, permissions=PermissionManager(), approver=Person()) as box:
        box.run(["ls", "-la"])
        with pytest.raises(errors.NotPermittedError):
            box.run(["touch", "bad"])
        with pytest.raises(errors.NotPermittedError):
            box.spawn(["touch", "bad too"])
    granted, refused, spawned = runs(path)
    assert granted.ended is not None and [each.body["choice"] for each in granted.questions] == ["once"]
    assert (
        refused.ended is not None and refused.ended.body["error"] == "not-permitted" and refused.questions[0].body["choice"] == "no"
    )
    assert spawned.ended is not None and spawned.ended.body["error"] == "not-permitted"


def test_a_run_that_was_granted_one_right_more_is_recorded_with_its_second_box(path: str, workspace: Path, tmp_path: Path) -> None:
    class Person:
        def ask(self, question: Question) -> Answer:
            return Answer("once")

    outside = tmp_path / "outside" / "data"
    outside.parent.mkdir(mode=0o755)
    outside.write_text("what lies outside")
    config = SandboxConfig(workspace=workspace, escalation="one_time_approval")
    with Trace() as trace, sync.Sandbox(config, trace=trace, approver=Person()) as box:
        result = box.execute_command(f"cat {outside}")
    assert result.ok and "It ran twice" in result.notes[0]
    with Reader(path) as reader:
        assert [row.kind for row in reader.rows()] == [
            "trace",
            "box",
            "run",
            "question",
            "box",
            "run",
            "end",
            "gone",
            "end",
            "gone",
        ]
    outer, inner = runs(path)
    assert outer.questions[0].body["kind"] == "escalation" and outer.ended is not None and inner.ended is not None
    assert "It ran twice" in outer.ended.body["notes"][0] and inner.begun.body["kind"] == "command"
    assert inner.box is not None and inner.box.body["config"]["read_only"] == [str(outside)]


def test_long_output_is_kept_at_both_ends_with_its_true_length(path: str) -> None:
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        box.run(["sh", "-c", "echo begin; head -c 3000000 /dev/zero; echo end"])
    (run,) = runs(path)
    assert run.ended is not None and run.ended.out is not None
    assert run.ended.out.startswith(b"begin\n") and run.ended.out.endswith(b"end\n") and len(run.ended.out) == 1 << 16
    assert run.ended.body["stdout"]["bytes"] == 3000010


def test_the_file_and_its_folder_are_their_owners_alone_whatever_the_umask(path: str, state: Path) -> None:
    before = os.umask(0)
    try:
        with Trace() as trace, sync.Sandbox(trace=trace) as box:
            box.run(["true"])
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in state.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"trace.db": 0o600, "trace.db-wal": 0o600, "trace.db-shm": 0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_box_without_a_trace_makes_no_file(state: Path) -> None:
    with sync.Sandbox() as box:
        assert box.run(["true"]).outcome == Exited(0)
    assert not state.exists()
