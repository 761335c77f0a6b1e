"""--approvals client: what the rules ask about is put to the client; without it nobody is asked, and it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import types

from mcp_clients import over_stdio, text
from ringfence import Act, Question
from ringfence.mcp.approvals import MOST_SHOWN, message

POLICY = "version: 1\npermissions:\n  - ask exec touch\n  - allow exec **\n"


def test_a_question_is_shown_whole_and_nothing_of_it_ends_a_line_or_it_is_not_shown() -> None:
    shown = message(
        Question("command", "echo a\nringfence: fine\x1b[2J\u202e", (Act.of(["rm", "a\nb"]), Act("write", "/x")), "rule")
    )
    assert shown is not None
    assert len(shown.splitlines()) == 5
    assert "echo a\\nringfence: fine\\e[2J\\u202e" in shown
    assert message(Question("command", "x" * (MOST_SHOWN + 1))) is None
    assert message(Question("command", "\n" * MOST_SHOWN)) is None


@pytest.mark.live("namespaces")
async def test_the_client_is_asked_and_only_an_answer_that_was_offered_grants(workspace: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    asked: list[str] = []
    answer: list[types.ElicitResult] = []

    async def ask(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return answer[0]

    def said(**content: str | int) -> list[types.ElicitResult]:
        return [types.ElicitResult(action="accept", content=dict(content))]

    async with over_stdio(workspace, "--policy", str(policy), "--approvals", "client", elicitation_callback=ask) as client:
        wrong = [said(answer="yes"), said(), said(answer="no"), said(other="once")]
        wrong += [[types.ElicitResult(action="decline")], [types.ElicitResult(action="cancel")]]
        for number, answer[:] in enumerate(wrong):
            refused = await client.call_tool("bash", {"command": f"touch refused{number}"})
            assert text(refused).startswith("[not_permitted] "), text(refused)
        answer[:] = said(answer="once")
        assert text(await client.call_tool("bash", {"command": "touch granted"})).startswith("[exited] ")
        assert (await client.call_tool("bash", {"command": "true"})).is_error is False
    assert [each.name for each in workspace.iterdir()] == ["granted"]
    assert len(asked) == len(wrong) + 1
    assert asked[-1].splitlines()[:2] == ["ringfence: may this be started in the sandbox?", "  touch granted"]


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("can_be_asked", [True, False])
async def test_nobody_is_asked_without_the_option_or_at_a_client_that_cannot(
    workspace: Path, tmp_path: Path, can_be_asked: bool
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)

    async def ask(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        raise AssertionError("nobody is to be asked")

    options = [] if can_be_asked else ["--approvals", "client"]
    callbacks = {"elicitation_callback": ask} if can_be_asked else {}
    async with over_stdio(workspace, "--policy", str(policy), *options, **callbacks) as client:
        assert text(await client.call_tool("bash", {"command": "touch made"})).startswith("[not_permitted] ")
    assert not list(workspace.iterdir())


@pytest.mark.live("namespaces")
async def test_a_call_that_is_cancelled_takes_its_question_back(workspace: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    asked, answered = anyio.Event(), anyio.Event()

    async def ask(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.set()
        await answered.wait()
        return types.ElicitResult(action="accept", content={"answer": "once"})

    async with over_stdio(workspace, "--policy", str(policy), "--approvals", "client", elicitation_callback=ask) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "bash", {"command": "touch late"})
            with anyio.fail_after(30):
                await asked.wait()
            group.cancel_scope.cancel()
        answered.set()
        assert not (await client.call_tool("bash", {"command": "true"})).is_error
    assert not list(workspace.iterdir())
