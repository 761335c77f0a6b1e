"""Agent: a model with tools over one box; whatever it does wrong is an answer to it, and how a run ended is a value."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from agent.scripted import Scripted, call
from ringfence import (
    Agent,
    AgentEvent,
    AgentLimits,
    Answer,
    CallbackApprover,
    NeverApprover,
    PermissionManager,
    Question,
    Sandbox,
    SandboxConfig,
    ToolRegistry,
)
from ringfence.errors import AgentError, ArgumentError, ConfigError, SandboxClosedError
from ringfence.hooks import HookContext, HookEvent, HookManager

pytestmark = pytest.mark.live("namespaces")


@pytest.fixture(autouse=True)
def state_folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = workspace.parent / "state"
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(folder))
    monkeypatch.delenv("RINGFENCE_MODEL", raising=False)
    return folder


async def test_the_model_calls_tools_in_the_box_until_it_is_done(box: Sandbox, workspace: Path) -> None:
    script = Scripted(call("bash", {"command": "echo hello > made; ls"}), call("read", {"path": "made"}), "There is one file.")
    async with Agent(script.model, tools=["bash", "read"], sandbox=box, instructions="Be short.") as agent:
        assert agent.tools.sandbox is box
        result = await agent.run("List the files.")
    assert result.raise_for_status() is result
    assert (result.status, result.stop_reason, result.output) == ("completed", "end", "There is one file.")
    assert "made" in script.told[0] and script.told[0].startswith("[exited]")
    assert "hello" in script.told[1]
    assert script.prompts == ["List the files."]
    assert script.info is not None and script.info.instructions == "Be short."
    assert [tool.name for tool in script.info.function_tools] == ["bash", "read"]
    assert (result.usage.requests, result.usage.calls) == (3, 2)
    assert result.usage.total_tokens > 0
    assert (workspace / "made").read_text() == "hello\n"
    assert (await box.run(["true"])).ok  # it is the caller's, and still open


async def test_the_agent_hooks_see_the_commands_and_are_taken_back(box: Sandbox) -> None:
    seen: list[HookContext] = []
    script = Scripted(call("run_bash", {"command": "echo seen"}), "done")
    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        agent.hooks.on(HookEvent.SANDBOX_EXEC, seen.append)
        await agent.run("go")
    assert [each.data["text"] for each in seen] == ["echo seen"]
    assert box.hooks is None
    own = HookManager()
    box.hooks = own
    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        assert agent.hooks is own
    assert box.hooks is own


async def test_without_a_sandbox_it_makes_one_at_the_first_call_and_another_when_that_is_lost(workspace: Path) -> None:
    started: list[Any] = []

    def kill(messages: list[Any]) -> Any:
        box = agent.tools.sandbox
        assert box is not None
        signal.pidfd_send_signal(box._open().box.pidfd, signal.SIGKILL)
        return call("bash", {"command": "cat ~/kept || echo gone"})

    script = Scripted(
        call("bash", {"command": "echo 1 > ~/kept"}), kill, call("bash", {"command": "cat ~/kept || echo gone"}), "ok"
    )
    async with Agent(script.model, tools=["bash"], config=SandboxConfig(workspace=workspace)) as agent:
        agent.hooks.on(HookEvent.SANDBOX_START, started.append)
        assert agent.tools.sandbox is None
        assert (await agent.run("hello")).ok
        own = agent.tools.sandbox
        assert own is not None
    assert "[sandbox_lost]" in script.told[1]
    assert "[sandbox_replaced]" in script.told[2] and "gone" in script.told[2]
    assert len(started) == 2
    with pytest.raises(SandboxClosedError):
        await own.run(["true"])
    with pytest.raises(SandboxClosedError):
        await agent.run("again")


async def test_a_registry_of_another_sandbox_is_refused(box: Sandbox) -> None:
    tools = ToolRegistry(["bash"], sandbox=Sandbox())
    with pytest.raises(ValueError, match="another sandbox"):
        Agent("test", tools=tools, sandbox=box)
    with pytest.raises(ArgumentError):
        Agent("test", sandbox=box, config=SandboxConfig())


async def test_no_model_is_an_error_at_run_that_says_so(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="RINGFENCE_MODEL"):
        await Agent(sandbox=box).run("hello")
    with pytest.raises(ConfigError, match=r"nonsense"):
        await Agent("nonsense").run("hello")
    with pytest.raises(ConfigError, match="package"):
        await Agent("groq:x").run("hello")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        await Agent("openai:x").run("hello")


async def test_what_the_model_does_wrong_is_a_readable_answer(box: Sandbox) -> None:
    wrong = [
        call("bsh", {"command": "ls"}, "1"),
        call("bash", {"comand": "ls"}, "2"),
        call("bash", '{"command": ', "3"),
        call("bash", {"command": "exit 3"}, "4"),
        call("fails", None, "5"),
    ]

    def fails() -> str:
        """Fails."""
        raise KeyError("what")

    script = Scripted(wrong, "sorry")
    async with Agent(script.model, tools=["bash", fails], sandbox=box) as agent:
        assert (await agent.run("go")).ok
    unknown, misspelled, cut, nonzero, raised = script.told
    assert "Did you mean bash?" in unknown
    assert "arguments of 'bash' are wrong" in misspelled and "arguments of 'bash' are wrong" in cut
    assert "returned 3" in nonzero
    assert "KeyError" in raised


async def test_many_calls_at_once_are_carried_out_in_order_and_those_beyond_the_bound_are_not(
    box: Sandbox, workspace: Path
) -> None:
    calls = [call("bash", {"command": f"echo {at} >> log"}, f"c{at}") for at in range(40)]
    script = Scripted(calls, "done")
    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        result = await agent.run("go")
    assert (workspace / "log").read_text().split() == [str(at) for at in range(32)]
    assert all("not carried out" in text for text in script.told[32:]) and len(script.told) == 40
    assert result.usage.calls == 32


async def test_a_model_that_loops_is_stopped_and_one_that_waits_for_something_is_not(box: Sandbox) -> None:
    async with Agent(Scripted(call("bash", {"command": "echo same"})).model, tools=["bash"], sandbox=box) as agent:
        result = await agent.run("go")
    assert (result.status, result.stop_reason, result.usage.requests) == ("limited", "loop", 8)
    assert result.limited and not result.ok
    waits = call("bash", {"command": "echo x >> n; wc -l < n"})
    async with Agent(Scripted(*[waits] * 12, "ok").model, tools=["bash"], sandbox=box) as agent:
        assert (await agent.run("go")).ok
    async with Agent(Scripted(waits).model, tools=["bash"], sandbox=box, limits=AgentLimits(turns=3)) as agent:
        result = await agent.run("go")
    assert (result.stop_reason, result.usage.requests) == ("turns", 3)


async def test_an_empty_answer_is_asked_about_once_and_then_the_run_failed() -> None:
    script = Scripted("", "here")
    assert (await Agent(script.model).run("go")).output == "here"
    assert "[empty_answer]" in script.prompts[1]
    result = await Agent(Scripted("").model).run("go")
    assert (result.status, result.stop_reason) == ("failed", "empty")
    with pytest.raises(AgentError) as raised:
        result.raise_for_status()
    assert raised.value.result is result


async def test_a_slow_model_a_failing_one_and_one_that_refuses_end_the_run_each_in_its_own_words() -> None:
    async def slow() -> str:
        await anyio.sleep(60)
        return ""

    result = await Agent(Scripted(lambda _: slow()).model, limits=AgentLimits(request_seconds=0.05)).run("go")
    assert (result.status, result.stop_reason) == ("failed", "slow")
    result = await Agent(Scripted(lambda _: slow()).model, limits=AgentLimits(seconds=0.05)).run("go")
    assert (result.status, result.stop_reason) == ("limited", "seconds")

    def breaks(_: Any) -> str:
        raise ConnectionResetError("the line went dead")

    result = await Agent(Scripted(breaks).model).run("go")
    assert (result.status, result.stop_reason) == ("failed", "model") and "the line went dead" in result.error
    for reason, status in (("content_filter", "refused"), ("length", "truncated"), ("error", "failed")):
        answer = ModelResponse([TextPart("half of it")], finish_reason=reason)  # type: ignore[arg-type]
        result = await Agent(Scripted(answer).model).run("go")
        assert result.status == status and result.output == "half of it" and getattr(result, status)


async def test_tokens_are_summed_and_bounded(box: Sandbox) -> None:
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    answer = ModelResponse([call("bash", {"command": "date +%N"})], usage=usage)
    for limits, reason, requests in (
        (AgentLimits(input_tokens=150), "input_tokens", 2),
        (AgentLimits(output_tokens=30), "output_tokens", 3),
        (AgentLimits(total_tokens=100), "total_tokens", 1),
    ):
        async with Agent(Scripted(answer).model, tools=["bash"], sandbox=box, limits=limits) as agent:
            result = await agent.run("go")
        assert (result.stop_reason, result.usage.requests, result.usage.input_tokens) == (reason, requests, 100 * requests)
    with pytest.raises(ArgumentError):
        AgentLimits(turns=0)


async def test_a_call_that_runs_at_the_end_of_the_time_is_ended(box: Sandbox) -> None:
    script = Scripted(call("bash", {"command": "sleep 60"}))
    async with Agent(script.model, tools=["bash"], sandbox=box, limits=AgentLimits(seconds=0.5)) as agent:
        result = await agent.run("go")
    assert (result.status, result.stop_reason) == ("limited", "seconds")
    assert not [each for each in await box.ps() if "sleep" in each.argv]


async def test_events_tell_of_text_as_it_comes_of_calls_and_of_the_end(box: Sandbox) -> None:
    events: list[AgentEvent] = []

    async def on_event(event: AgentEvent) -> None:
        events.append(event)

    script = Scripted(call("bash", {"command": "echo hi"}), "all is done")
    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        result = await agent.run("go", on_event=on_event)
    assert [each.kind for each in events] == ["call", "answer", "text", "text", "text", "end"]
    assert "".join(each.text for each in events if each.kind == "text").strip() == "all is done"
    assert events[1].tool is not None and events[1].tool.result is not None and events[1].tool.result.stdout == "hi\n"
    assert events[-1].result is result

    def breaks(event: AgentEvent) -> None:
        raise LookupError(event.kind)

    async with Agent(script.model, tools=["bash"], sandbox=box) as agent:
        with pytest.raises(LookupError):
            await agent.run("go", on_event=breaks)


async def test_permissions_are_lent_to_the_box_and_taken_back(box: Sandbox, workspace: Path) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> Answer:
        asked.append(question)
        return Answer("once" if "fine" in question.what else "no", "said so")

    rules = PermissionManager(["deny exec rm"], approver=CallbackApprover(answer))
    (workspace / "file").write_text("x")
    calls = [call("bash", {"command": each}, each) for each in ("rm file", "touch fine", "touch not")]
    script = Scripted(calls, "done")
    async with Agent(script.model, tools=["bash"], sandbox=box, permissions=rules) as agent:
        await agent.run("go")
    assert sorted(each.name for each in workspace.iterdir()) == ["file", "fine"]
    assert [each.what for each in asked] == ["touch fine", "touch not"]
    assert all("not permitted" in text for text in (script.told[0], script.told[2]))
    assert "[exited]" in script.told[1]
    assert (await box.execute_command("rm file")).ok


async def test_the_rules_of_the_box_hold_beside_those_of_the_agent(workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace, permissions=("deny exec touch",))
    async with Sandbox(config, permissions=PermissionManager(default="allow"), approver=NeverApprover()) as box:
        script = Scripted(call("bash", {"command": "touch a"}), call("bash", {"command": "mkdir b"}), "done")
        async with Agent(script.model, tools=["bash"], sandbox=box, permissions=PermissionManager(["allow exec touch"])) as agent:
            await agent.run("go")
    assert not list(workspace.iterdir())
    assert "nothing is granted here" in script.told[1]


async def test_an_answer_that_never_comes_is_a_no_in_time(box: Sandbox, workspace: Path) -> None:
    async def never(question: Question) -> Answer:
        await anyio.sleep(3)
        return Answer("once")

    rules = PermissionManager(approver=CallbackApprover(never, deadline_seconds=0.2))
    script = Scripted(call("bash", {"command": "touch a"}), "done")
    async with Agent(script.model, tools=["bash"], sandbox=box, permissions=rules) as agent:
        assert (await agent.run("go")).ok
    assert "no answer came within 0.2 s" in script.told[0]
    assert not list(workspace.iterdir())


async def test_a_workspace_that_changes_under_the_agent_is_told_and_not_overwritten(box: Sandbox, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")

    def changed(_: Any) -> Any:
        (workspace / "a.txt").write_text("two\n")
        return call("edit", {"path": "a.txt", "old": "one", "new": "three"})

    def removed(_: Any) -> Any:
        (workspace / "a.txt").unlink()
        return call("read", {"path": "a.txt"})

    script = Scripted(call("read", {"path": "a.txt"}), changed, removed, "done")
    async with Agent(script.model, tools=["read", "edit"], sandbox=box) as agent:
        assert (await agent.run("go")).ok
    assert "one" in script.told[0]
    assert not list(workspace.iterdir())
    assert "[exited]" not in script.told[1] and "three" not in script.told[1]
    assert "path-not-found" in script.told[2] or "othing is at" in script.told[2] or "no such" in script.told[2].lower()
