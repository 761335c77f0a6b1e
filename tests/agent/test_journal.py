"""The journal of a run: what ended is never done again after a crash, and what may have been done is asked about."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.scripted import Scripted, call
from ringfence import Agent, AlwaysApprover, NeverApprover, Sandbox, SandboxConfig
from ringfence.errors import AgentError, ArgumentError, ConfigError, TraceError

pytestmark = pytest.mark.live("namespaces")

HERE = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(workspace.parent / "state"))
    return workspace.parent / "state" / "agent"


def test_a_run_killed_in_the_middle_goes_on_and_does_no_finished_call_again(workspace: Path, folder: Path) -> None:
    program = """
import sys, anyio
sys.path.insert(0, sys.argv[1])
from agent.scripted import Scripted, call
from ringfence import Agent, SandboxConfig
script = Scripted(
    call("bash", {"command": "echo first >> log"}),
    call("bash", {"command": "echo second >> log; sleep 60"}),
    "never",
)
async def main():
    async with Agent(script.model, tools=["bash"], config=SandboxConfig(workspace=sys.argv[2])) as agent:
        await agent.run("go")
anyio.run(main)
"""
    child = subprocess.Popen([sys.executable, "-c", program, str(HERE), str(workspace)])
    try:
        _until(lambda: "second" in _text(workspace / "log"), child)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    (written,) = folder.iterdir()
    run_id = written.stem
    assert written.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700

    async def resumed(**given: Any) -> tuple[Any, Scripted]:
        script = Scripted(call("bash", {"command": "wrong"}), "wrong", "done after all")
        async with Agent(script.model, tools=["bash"], config=SandboxConfig(workspace=workspace)) as agent:
            return await agent.resume(run_id, **given), script

    asking, script = anyio.run(resumed)
    assert asking.needs_input and asking.stop_reason == "outcome_unknown"
    assert (asking.pending.name, json.loads(json.dumps(asking.pending.arguments))["command"][:11]) == ("bash", "echo second")
    assert not script.seen
    result, script = anyio.run(lambda: resumed(unknown="skip"))
    assert (result.status, result.output) == ("completed", "done after all")
    assert "[exited]" in script.told[0] and script.told[1].startswith("[outcome_unknown]")
    assert script.prompts[0] == "go" and script.prompts[1].startswith("[resumed]")
    assert (workspace / "log").read_text() == "first\nsecond\n"
    again, script = anyio.run(resumed)
    assert again == result and not script.seen


async def test_a_cancelled_call_is_done_again_where_that_is_said_or_its_tool_is_idempotent(workspace: Path, box: Sandbox) -> None:
    done: list[str] = []
    cancelled: list[anyio.CancelScope] = []

    async def work(what: str) -> str:
        """Work."""
        done.append(what)
        if len(done) == 1:
            cancelled[-1].cancel()
            await anyio.sleep_forever()
        return f"did {what}"

    for idempotent, given, approver, outcome in (
        (True, {}, None, "did it"),
        (False, {"unknown": "again"}, None, "did it"),
        (False, {}, AlwaysApprover(), "did it"),
        (False, {}, NeverApprover(), "[outcome_unknown]"),
        (False, {"unknown": "skip"}, AlwaysApprover(), "[outcome_unknown]"),
    ):
        done.clear()
        script = Scripted(call("work", {"what": "it"}), "ok")
        async with Agent(script.model, sandbox=box, approver=approver) as agent:
            agent.tools.register(work, idempotent=idempotent)
            with anyio.CancelScope() as scope:
                cancelled.append(scope)
                await agent.run("go")
            result = await agent.resume(_last(workspace), **given)
        assert result.ok, result
        assert script.told[0].startswith(outcome)
        assert len(done) == (2 if outcome == "did it" else 1)


async def test_a_last_line_that_was_cut_is_as_if_it_were_not_written(workspace: Path, box: Sandbox, folder: Path) -> None:
    script = Scripted(call("bash", {"command": "echo x >> log"}), "over")
    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        run_id = (await agent.run("go")).run_id
        written = folder / f"{run_id}.jsonl"
        lines = written.read_bytes().splitlines(keepends=True)
        kinds = [json.loads(line)["kind"] for line in lines]
        assert kinds == ["start", "response", "call", "answer", "response", "end"]
        written.write_bytes(b"".join(lines[:5]) + lines[5][:-3])
        assert (await agent.resume(run_id)).ok
        assert written.read_bytes() == b"".join(lines)
        written.write_bytes(b"".join(lines[:3]) + lines[3][:20])
        assert (await agent.resume(run_id)).needs_input
        written.write_bytes(lines[0] + lines[1][:30])
        assert (await agent.resume(run_id)).ok
        assert (workspace / "log").read_text() == "x\nx\n"
        written.write_bytes(lines[0] + b"{]\n" + lines[2])
        with pytest.raises(AgentError, match="damaged"):
            await agent.resume(run_id)
        written.write_bytes(b"")
        with pytest.raises(AgentError, match="nothing of it was done"):
            await agent.resume(run_id)
        for wrong in ("../../etc/passwd", run_id[:-1] + "x", "20200101-000000-000000000000"):
            with pytest.raises(ArgumentError):
                await agent.resume(wrong)


async def test_one_run_is_resumed_by_one_at_a_time(workspace: Path, box: Sandbox) -> None:
    refused: list[str] = []

    async def meanwhile() -> str:
        """Resume meanwhile."""
        with pytest.raises(AgentError, match="just now"):
            await agent.resume(_last(workspace))
        refused.append("yes")
        return "ok"

    async with Agent(Scripted(call("meanwhile"), "ok").model, tools=[meanwhile], sandbox=box) as agent:
        assert (await agent.run("go")).ok
    assert refused == ["yes"]


async def test_a_journal_is_closed_to_boxes_and_to_others(workspace: Path, box: Sandbox, folder: Path) -> None:
    own = workspace / "runs"
    async with Agent(Scripted("ok").model, journal=own) as agent:
        assert (await agent.run("go")).ok
    assert len(list(own.iterdir())) == 1 and not folder.exists()
    with pytest.raises(ConfigError):
        async with Sandbox(SandboxConfig(workspace=workspace)):
            pass
    own.chmod(0o755)
    async with Agent(Scripted("ok").model, journal=own) as agent:
        with pytest.raises(TraceError, match="open to others"):
            await agent.run("go")
    async with Agent(Scripted("ok").model, journal=False) as agent:
        run_id = (await agent.run("go")).run_id
        with pytest.raises(ArgumentError):
            await agent.resume(run_id)


def _last(workspace: Path) -> str:
    return max((workspace.parent / "state" / "agent").iterdir(), key=lambda each: each.stat().st_mtime_ns).stem


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _until(holds: Any, child: subprocess.Popen[bytes]) -> None:
    import time

    end = time.monotonic() + 60
    while not holds():
        assert child.poll() is None and time.monotonic() < end
        os.sched_yield()
        time.sleep(0.02)
