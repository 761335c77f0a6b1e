"""Handlers are told of what happens in boxes, and nothing that they do reaches a result."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import ringfence
from ringfence import errors, sync
from ringfence.events import MOST_TEXT
from ringfence.hooks import MOST_WAITING, HookContext, HookEvent, HookManager
from ringfence.outcome import Cancelled, CapHit, Exited
from ringfence.sync import SandboxConfig

pytestmark = pytest.mark.live("namespaces")

EXEC = HookEvent.SANDBOX_EXEC


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.005)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # some conditions are of other threads
            await anyio.sleep(0.005)


def names(seen: list[HookContext]) -> list[str]:
    return [each.data.get("text", each.event) for each in seen]


async def test_each_run_of_a_box_is_told_in_order_to_plain_and_async_handlers() -> None:
    hooks, plain, awaited = HookManager(), [], []

    async def handler(context: HookContext) -> None:
        await anyio.lowlevel.checkpoint()
        awaited.append(context)

    for event in HookEvent:
        hooks.on(event, plain.append)
    hooks.on(EXEC, handler)
    async with ringfence.Sandbox(hooks=hooks) as box:
        results = [await box.run(["sh", "-c", "exit 3"]), await box.execute("print(1)"), await box.execute_command("echo a")]
        await until(lambda: len(awaited) == 3)
        await box.execute("true # " + "x" * MOST_TEXT, "bash", timeout=50)
        results.append(await box.run(["sleep", "60"], timeout=0.2))
    await until(lambda: len(plain) == 7 and len(awaited) == 5)
    assert [each.event for each in plain] == ["sandbox_start", *["sandbox_exec"] * 5, "sandbox_end"]
    told = [each.data for each in plain[1:-1]]
    assert told == [each.data for each in awaited]
    assert [data["kind"] for data in told] == ["argv", "code", "command", "code", "argv"]
    assert [data["language"] for data in told] == ["", "python", "", "bash", ""]
    assert [data["text"] for data in told[:3]] == ["sh -c 'exit 3'", "print(1)", "echo a"]
    assert len(told[3]["text"]) == MOST_TEXT and told[3]["text_omitted"] == 7
    assert [data["outcome"] for data in told[:3]] == [Exited(3), Exited(0), Exited(0)]
    assert [data["exit_code"] for data in told] == [3, 0, 0, 0, None] and [data["timed_out"] for data in told] == [False] * 4 + [
        True
    ]
    assert isinstance(told[4]["outcome"], CapHit) and told[4]["execution_time_ms"] == results[3].execution_time_ms
    assert {(data["tier"], data["error"], data["box"], data["denials"]) for data in told} == {("namespaces", None, None, ())}


def test_without_await_the_same_is_told_from_every_thread() -> None:
    hooks, seen, awaited = HookManager(), [], []

    async def handler(context: HookContext) -> None:
        await asyncio.sleep(0)
        awaited.append(context.data["text"])

    for event in HookEvent:
        hooks.on(event, seen.append)
    hooks.on(EXEC, handler)
    box = sync.Sandbox.create("watched", hooks=hooks)
    with box:
        threads = [threading.Thread(target=box.execute_command, args=(f"exit {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: sorted(awaited) == [f"exit {number}" for number in range(4)])
    wait_for(lambda: len(seen) == 6)
    assert names(seen)[0] == "sandbox_start" and names(seen)[-1] == "sandbox_end"
    assert sorted(names(seen)[1:-1]) == sorted(awaited)
    assert {each.data["box"] for each in seen[1:]} == {"watched"}  # it has its id when it is open
    box.cleanup()
    assert len(seen) == 6, "a box ends once"


async def test_what_a_handler_raises_is_logged_once_with_its_name_and_goes_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    hooks, seen = HookManager(), []

    def fails(context: HookContext) -> None:
        raise RuntimeError("of the handler")

    def leaves(context: HookContext) -> None:
        raise SystemExit(3)

    async def fails_later(context: HookContext) -> None:
        await anyio.lowlevel.checkpoint()
        raise asyncio.CancelledError if "asyncio" in str(type(asyncio_task())) else OSError(5, "of the handler")

    async def leaves_later(context: HookContext) -> None:
        raise SystemExit(3)

    def changes(context: HookContext) -> None:
        context.data.clear()

    for handler in (fails, leaves, fails_later, leaves_later, changes, seen.append):
        hooks.on(EXEC, handler)
    async with ringfence.Sandbox(hooks=hooks) as box:
        assert (await box.run(["echo", "a"])).stdout == "a\n"
        assert (await box.run(["echo", "b"])).stdout == "b\n"
    await until(lambda: names(seen) == ["echo a", "echo b"])
    assert {record.name for record in caplog.records} == {"ringfence.hooks"}
    for name in ("fails", "leaves", "fails_later", "leaves_later"):
        assert sum(f".{name} of sandbox_exec failed" in record.getMessage() for record in caplog.records) == 1


def asyncio_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def test_a_handler_that_hangs_is_waited_for_once_and_catches_up_in_order(caplog: pytest.LogCaptureFixture) -> None:
    hooks, others = HookManager(), []
    go, plain = threading.Event(), []
    go_on, awaited = anyio.Event(), []

    def hangs(context: HookContext) -> None:
        go.wait(60)
        plain.append(context)

    async def hangs_too(context: HookContext) -> None:
        await go_on.wait()
        awaited.append(context)

    for handler in (hangs, hangs_too, others.append):
        hooks.on(EXEC, handler)
    async with ringfence.Sandbox(hooks=hooks) as box:
        for number in range(30):  # at half a second each the deadline of a test were near
            assert (await box.run(["echo", str(number)])).ok
        await until(lambda: len(others) == 30)
        assert not plain and not awaited
    go.set()
    go_on.set()
    await until(lambda: len(plain) == len(awaited) == 30)
    assert names(plain) == names(awaited) == [f"echo {number}" for number in range(30)]
    late = [record.getMessage() for record in caplog.records if "took longer" in record.getMessage()]
    assert {message.split()[1].rpartition(".")[2] for message in late} >= {"hangs", "hangs_too"}
    assert len(late) == len(set(late))


def test_without_await_a_handler_that_hangs_holds_no_result() -> None:
    hooks, go, seen = HookManager(), threading.Event(), []

    async def hangs(context: HookContext) -> None:
        await until(go.is_set)
        seen.append(context)

    hooks.on(EXEC, hangs)
    with sync.Sandbox(hooks=hooks) as box:
        assert [box.run(["true"]).ok for _ in range(3)] == [True] * 3
        assert not seen
    go.set()
    wait_for(lambda: len(seen) == 3)


async def test_a_handler_that_cancels_its_caller_takes_no_result_from_it() -> None:
    hooks, results = HookManager(), []
    async with ringfence.Sandbox(hooks=hooks) as box:
        with anyio.CancelScope() as scope:

            async def cancels(context: HookContext) -> None:
                scope.cancel()

            with hooks.on(EXEC, cancels):
                results.append(await box.run(["echo", "a"]))
                results.append(await box.run(["echo", "b"]))
        assert [result.stdout for result in results] == ["a\n"]
        assert (await box.run(["echo", "c"])).ok


async def test_a_handler_may_use_the_box_and_is_not_told_of_what_it_does_itself() -> None:
    hooks, seen = HookManager(), []
    async with ringfence.Sandbox(hooks=hooks) as box:

        async def enters_again(context: HookContext) -> None:
            seen.append((context.data["text"], (await box.run(["echo", "inside"])).stdout))

        others: list[HookContext] = []
        hooks.on(EXEC, enters_again)
        hooks.on(EXEC, others.append)
        assert (await box.run(["echo", "outside"])).stdout == "outside\n"
        await until(lambda: seen == [("echo outside", "inside\n")])
        await until(lambda: sorted(names(others)) == ["echo inside", "echo outside"])


def test_a_plain_handler_may_use_the_box_and_two_that_answer_each_other_come_to_an_end() -> None:
    hooks, seen = HookManager(), []
    with sync.Sandbox(hooks=hooks) as box:

        def answers(word: str, context: HookContext) -> None:
            seen.append((word, context.data["text"]))
            assert box.run(["echo", word]).ok

        hooks.on(EXEC, functools.partial(answers, "a"))
        hooks.on(EXEC, functools.partial(answers, "b"))
        assert box.run(["echo", "first"]).ok
        wait_for(lambda: len(seen) == 4)
    assert sorted(seen) == [("a", "echo b"), ("a", "echo first"), ("b", "echo a"), ("b", "echo first")]


async def test_a_handler_that_closes_the_box_leaves_the_result_as_it_is() -> None:
    hooks, ended = HookManager(), []
    hooks.on(HookEvent.SANDBOX_END, ended.append)
    async with ringfence.Sandbox(hooks=hooks) as box:

        async def closes(context: HookContext) -> None:
            await box.cleanup()
            closed.set()

        closed = anyio.Event()
        hooks.on(EXEC, closes)
        assert (await box.run(["echo", "a"])).stdout == "a\n"
        await closed.wait()
        with pytest.raises(errors.SandboxClosedError):
            await box.run(["echo", "b"])
    await until(lambda: len(ended) == 1)


def test_a_run_that_ringfence_lost_or_a_caller_gave_up_is_told_as_that() -> None:
    hooks, seen = HookManager(), []
    hooks.on(EXEC, seen.append)
    box = sync.Sandbox(hooks=hooks)
    with box:

        def gives_up(chunk: bytes) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            box.run(["sh", "-c", "echo a; sleep 60"], on_stdout=gives_up)
        wait_for(lambda: len(seen) == 1)
        with pytest.raises(ZeroDivisionError):
            box.run(["sh", "-c", "echo a; sleep 60"], on_stdout=lambda chunk: [1 // 0][0])  # type: ignore[arg-type,return-value]
        assert box._world is not None
        pid = box._world.box.pid

        with pytest.raises(errors.SandboxLostError):
            box.run(["sh", "-c", "echo a; sleep 60"], on_stdout=lambda chunk: os.kill(pid, signal.SIGKILL))
    wait_for(lambda: len(seen) == 3)
    assert [(each.data["outcome"], each.data["error"]) for each in seen] == [
        (Cancelled(), None),
        (None, "callback"),
        (None, "lost"),
    ]
    assert all(each.data["exit_code"] is None and not each.data["timed_out"] for each in seen)


def test_a_denial_is_told_before_the_run_that_met_it(workspace: Path) -> None:
    hooks, seen = HookManager(), []
    hooks.on(HookEvent.SANDBOX_DENIAL, seen.append)
    hooks.on(EXEC, seen.append)
    with sync.Sandbox(SandboxConfig(workspace=workspace), hooks=hooks) as box:
        result = box.run(["git", "init", "-q", "nested"])
    wait_for(lambda: len(seen) == 2)
    assert [denial.kind for denial in result.denials] == ["planted"]
    assert {each.event: each.data.get("denial", each.data.get("denials")) for each in seen} == {
        "sandbox_denial": result.denials[0],
        "sandbox_exec": result.denials,
    }


def test_a_closed_registration_is_told_nothing_more() -> None:
    hooks, seen, kept = HookManager(), [], []
    with sync.Sandbox() as box:
        box.hooks = hooks
        box.run(["echo", "nobody"])
        hooks.on(EXEC, kept.append)
        with hooks.on(EXEC, seen.append) as registration:
            box.run(["echo", "1"])
            wait_for(lambda: seen)
        registration.close()
        box.run(["echo", "2"])
        hooks.on(EXEC, seen.append)
        hooks.on(EXEC, seen.append)
        hooks.off(EXEC, seen.append)
        hooks.off(EXEC, print)
        box.run(["echo", "3"])
        box.hooks = None
        box.run(["echo", "4"])
    wait_for(lambda: len(kept) == 3)
    assert names(seen) == ["echo 1"] and names(kept) == ["echo 1", "echo 2", "echo 3"]


async def test_events_wait_for_a_handler_within_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    hooks, go, seen = HookManager(), threading.Event(), []

    def hangs(context: HookContext) -> None:
        go.wait(60)
        seen.append(context.agent)

    hooks.on(EXEC, hangs)
    for number in range(MOST_WAITING + 50):
        await hooks.emit(EXEC, HookContext(EXEC, agent=number))
    go.set()
    wait_for(lambda: len(seen) == MOST_WAITING + 1)  # the one that it was busy with
    assert seen == list(range(MOST_WAITING + 1))
    assert sum("dropped" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("made", ["no such event", 3])
def test_what_is_no_event_no_handler_or_no_manager_is_refused(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    hooks = HookManager()
    for act in (hooks.on, hooks.off):
        with pytest.raises(errors.ArgumentError, match="sandbox_exec"):
            act(made, print)
    with pytest.raises(TypeError):
        hooks.on(EXEC, made)
    for surface in (ringfence.Sandbox, sync.Sandbox):
        with pytest.raises(TypeError):
            surface(hooks=made)
    assert hooks.on("sandbox_exec", print).event is EXEC  # type: ignore[arg-type]
    assert not caplog.get_records("call") and logging.getLogger("ringfence.hooks").propagate
