"""Sandboxes: one box for each session, however many ask at once; a lost one is replaced, and the model hears it."""

from __future__ import annotations

import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence import Sandbox, SandboxConfig, Sandboxes, ToolRegistry
from ringfence.hooks import HookEvent, HookManager

pytestmark = pytest.mark.live("namespaces")


async def test_each_session_has_a_box_of_its_own_and_keeps_it(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        one, two = await boxes.get_or_create("one"), await boxes.get_or_create("two")
        await one.call("bash", {"command": "echo kept > ~/file; echo shared > file"})
        assert (await one.call("bash", '{"command": "cat ~/file file"}')).endswith("kept\nshared\n")
        assert "No such file" in await two.call("bash", {"command": "cat ~/file"})
        assert (await two.call("read", {"path": "file"})).endswith("shared")
        assert await boxes.get_or_create("one") is one
        assert one.sandbox is not two.sandbox


async def test_many_that_ask_for_one_key_at_once_get_one_box(workspace: Path) -> None:
    started: list[Any] = []
    hooks = HookManager()
    found = []
    with hooks.on(HookEvent.SANDBOX_START, started.append):
        async with Sandboxes(SandboxConfig(workspace=workspace), hooks=hooks) as boxes:

            async def ask() -> None:
                session = await boxes.get_or_create("one")
                found.append((await session.opened(), await session.call("bash", {"command": "echo $$"})))

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(ask)
    assert len(started) == 1
    assert len({id(box) for box, _ in found}) == 1
    assert all("[exited]" in text for _, text in found)


async def test_a_session_makes_no_box_before_the_first_call(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        session = boxes.session("one")
        assert session.sandbox is None
        assert "missing required" in await session.call("bash", {})
        assert session.sandbox is None
        await session.call("bash", {"command": "true"})
        assert session.sandbox is not None


async def test_a_lost_box_is_replaced_at_the_next_call_and_the_model_hears_that_its_state_is_gone(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        session = await boxes.get_or_create("one")
        await session.call("bash", {"command": "echo x > ~/file; echo y > file"})
        told = {}
        async with anyio.create_task_group() as group:

            async def call() -> None:
                told["lost"] = await session.call("bash", {"command": "echo before; touch begun; sleep 60"})

            group.start_soon(call)
            await _until(lambda: (workspace / "begun").exists())
            assert session.sandbox is not None
            signal.pidfd_send_signal(session.sandbox._open().box.pidfd, signal.SIGKILL)
        assert told["lost"].startswith("[sandbox_lost] ")
        assert "[sandbox_replaced] The next call" in told["lost"]
        again = await session.call("bash", {"command": "cat file; ls ~"})
        assert again.startswith("[sandbox_replaced] The sandbox of this session is a new one")
        assert again.endswith("y\n")
        assert "[sandbox_replaced]" not in await session.call("bash", {"command": "true"})


async def test_a_box_that_was_idle_too_long_is_replaced_without_losing_the_call(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace), idle_seconds=1) as boxes:
        session = await boxes.get_or_create("one")
        other = await boxes.get_or_create("other")
        box = session.sandbox
        assert box is not None
        await _until(lambda: _has_ended(box))
        again = await session.call("bash", {"command": "echo done"})
        assert again.startswith("[sandbox_replaced] ")
        assert "nothing ran in it for 1 s" in again
        assert again.endswith("done\n")
        with anyio.fail_after(20):
            while other.sandbox is not None:  # what is left of it is given back when somebody asks for a box
                await boxes.get_or_create("one")


async def test_closing_a_session_ends_its_box_and_its_calls(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        session = await boxes.get_or_create("one")
        box = session.sandbox
        await boxes.close("one")
        await boxes.close("one")
        assert box is not None
        assert "is closed" in await session.call("bash", {"command": "true"})
        fresh = await boxes.get_or_create("one")
        assert fresh is not session
    assert "is closed" in await fresh.call("bash", {"command": "true"})


async def test_a_registry_of_a_session_belongs_to_it(workspace: Path, box: Sandbox) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        session = boxes.session("one")
        tools = ToolRegistry(["bash"], sandbox=session)
        assert tools.sandbox is None
        await tools.execute("bash", {"command": "true"})
        assert tools.sandbox is session.sandbox
        with pytest.raises(ValueError, match="already bound"):
            tools.bind(box)


async def test_a_server_that_a_call_starts_lives_on_and_ends_with_the_box(workspace: Path) -> None:
    async with Sandboxes(SandboxConfig(workspace=workspace)) as boxes:
        session = await boxes.get_or_create("one")
        log = workspace / "server.log"
        line = "(while :; do echo tick; sleep .05; done) >server.log 2>&1 & echo $!"
        pid = (await session.call("bash", {"command": line, "timeout_seconds": 1})).split()[-1]
        await _until(lambda: log.exists() and log.read_text().count("tick") > 25)  # longer than the bound of its call
        assert (await session.call("bash", {"command": f"kill -0 {pid} && kill {pid} && echo ended"})).endswith("ended\n")
        await session.call("bash", {"command": line})
    before = log.read_text()
    await anyio.sleep(0.2)
    assert log.read_text() == before


def _has_ended(box: Sandbox) -> bool:
    """Whether its first process has ended."""
    poll = select.poll()
    poll.register(box._open().box.pidfd, select.POLLIN)
    return bool(poll.poll(0))


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while True:
            if holds():
                return
            await anyio.sleep(0.02)
