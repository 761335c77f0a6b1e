"""Handlers that are told what happens in boxes. They watch: nothing that a handler does reaches a result.

    hooks = HookManager()
    with hooks.on(HookEvent.SANDBOX_EXEC, lambda seen: print(seen.data["text"], seen.data["outcome"])):
        async with Sandbox(hooks=hooks) as box:
            await box.run(["true"])

What is promised. A handler is called for one event at a time, in the order of the events. A plain function is called in a
thread of its own, never in the caller's: an async handler is the one that may touch an event loop. A coroutine function runs in
the loop of the box, beside the call; that of a box of ringfence.sync runs in a thread, under asyncio. A call waits for its
handlers for half a second; one that takes longer goes on beside it, and no call waits for that handler again before it has caught
up. What waits for a handler is bounded: past a thousand events new ones are dropped for it. A handler is not told of what it
does itself, and what it calls waits for no handler. What it raises is logged, once for each handler, and goes nowhere else.

Not promised: a bound for an async handler that blocks its event loop, since the caller's own code stands still with it; and that
handlers finish before the loop or the process ends.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from types import TracebackType
from typing import TypeAlias

from ringfence.errors import ArgumentError
from ringfence.events import (
    HookContext,
    HookEvent,
    SandboxDenialData,
    SandboxEndData,
    SandboxExecData,
    SandboxQuestionData,
    SandboxStartData,
)

__all__ = [
    "Handler",
    "HookContext",
    "HookEvent",
    "HookManager",
    "Registration",
    "SandboxDenialData",
    "SandboxEndData",
    "SandboxExecData",
    "SandboxQuestionData",
    "SandboxStartData",
]

WAIT_SECONDS = 0.5
"""How long a call waits for its handlers: more than a log line or a database needs, less than a person notices often."""
MOST_WAITING = 1000

Handler: TypeAlias = Callable[[HookContext], Awaitable[object] | object]

_inside: ContextVar[frozenset[Registration]] = ContextVar("ringfence-handlers", default=frozenset())


class Registration:
    """One handler of one event, until close(); as a context manager, until the end of its block."""

    def __init__(self, manager: HookManager, event: HookEvent, handler: Handler) -> None:
        self.event, self.handler = event, handler
        self.closed = False
        self._manager = manager
        self._said: set[str] = set()
        self.lanes: dict[object, _Lane] = {}  # those at work, by the loop that they work in; None for a thread
        own_call = getattr(type(handler), "__call__", None)  # noqa: B004  # the coroutine function behind an object
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(own_call)

    def close(self) -> None:
        """No new call of the handler begins after this; one that runs goes on. Safe to call again."""
        self._manager._remove(self)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def complain(self, what: str, error: BaseException | None = None) -> None:
        """Log it, the first time."""
        if what in self._said:
            return
        self._said.add(what)
        import logging  # a manager whose handlers are well needs none of it

        name = getattr(self.handler, "__qualname__", None) or repr(self.handler)
        logging.getLogger("ringfence.hooks").error("handler %s of %s %s", name, self.event, what, exc_info=error)


class HookManager:
    """Which handlers are told of which events. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._registered: dict[HookEvent, tuple[Registration, ...]] = {}

    def on(self, event: HookEvent, handler: Handler) -> Registration:
        """Call handler with a HookContext for each event from now on. Raises ArgumentError, TypeError for what cannot be called."""
        event = _known(event)
        if not callable(handler):
            raise TypeError(f"a handler is called with a HookContext; {handler!r} cannot be called.")
        registration = Registration(self, event, handler)
        with self._guard:
            self._registered[event] = (*self._registered.get(event, ()), registration)
        return registration

    def off(self, event: HookEvent, handler: Handler) -> None:
        """Close every registration of handler for event; one that has none is no error."""
        for registration in self._registered.get(_known(event), ()):
            if registration.handler == handler:
                registration.close()

    async def emit(self, event: HookEvent, context: HookContext) -> None:
        """Tell the handlers of event, and wait for them within the bound. On asyncio and trio."""
        import anyio  # a caller without an event loop never comes here

        with Delivery() as delivery:
            self.send(event, context, delivery, in_loop=True)
            if (descriptor := delivery.descriptor()) >= 0:
                with anyio.move_on_after(WAIT_SECONDS, shield=True):
                    await anyio.wait_readable(descriptor)

    def wants(self, event: HookEvent) -> bool:
        """Whether anybody is to be told of event."""
        return bool(self._registered.get(event))

    def send(self, event: HookEvent, context: HookContext, delivery: Delivery, *, in_loop: bool) -> None:
        """Hand an event over to its handlers and return; delivery knows when they have done with it. Calls none of them.

        in_loop: async handlers run in the event loop that this is called in.
        """
        inside = _inside.get()
        for registration in self._registered.get(_known(event), ()):
            if registration in inside:
                continue
            key = _this_loop() if in_loop and registration.is_async else None
            call = _Call(_copy(context), delivery, inside | {registration})
            with self._guard:
                lane = registration.lanes.get(key)
                if fresh := lane is None:
                    lane = registration.lanes[key] = _Lane(registration, key, self._guard)
                assert lane is not None
                taken = len(lane.waiting) < MOST_WAITING
                if taken:
                    if not lane.late and not inside:  # two handlers that use boxes would wait for each other
                        delivery.expect(call, lane)
                    lane.waiting.append(call)
            if not taken:
                registration.complain("is so far behind that events are dropped for it")
            if fresh:
                lane.start()

    def _remove(self, registration: Registration) -> None:
        with self._guard:
            registration.closed = True
            left = tuple(each for each in self._registered.get(registration.event, ()) if each is not registration)
            self._registered[registration.event] = left


def _copy(context: HookContext) -> HookContext:
    return HookContext(context.event, context.agent, dict(context.data), context.timestamp)


def _known(event: object) -> HookEvent:
    try:
        return HookEvent(event)  # type: ignore[arg-type]
    except ValueError:
        raise ArgumentError(f"{event!r} is not an event; those are {', '.join(HookEvent)}.") from None


class Delivery:
    """What one call of a box waits for: handlers, until each has been called to its end."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._expected: dict[_Call, _Lane] = {}
        self._ends: tuple[int, int] | None = None

    def expect(self, call: _Call, lane: _Lane) -> None:
        with self._guard:
            self._expected[call] = lane

    def descriptor(self) -> int:
        """Can be read when all that was sent has been delivered. -1 where nothing is to be waited for. Ask once, after sending."""
        with self._guard:
            if self._expected:
                try:
                    self._ends = os.pipe()
                except OSError:
                    self._expected = {}  # no descriptor is left: the handlers are called, and nobody waits for them
            return self._ends[0] if self._ends else -1

    def done(self, call: _Call) -> None:
        with self._guard:
            if self._expected.pop(call, None) is not None and not self._expected and self._ends:
                os.write(self._ends[1], b"\0")

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(late=error is None)

    def close(self, *, late: bool = True) -> None:
        """Wait no more. late: what is not done by now took too long."""
        with self._guard:
            left, self._expected = self._expected, {}
            if self._ends:
                os.close(self._ends[0])
                os.close(self._ends[1])
                self._ends = None
        for lane in left.values() if late else ():
            lane.late = True
            lane.registration.complain(f"took longer than {WAIT_SECONDS} s; calls do not wait for it until it has caught up")


class _Call:
    """One event for one handler. inside: the handlers that it comes from, which are not told of it, and this one."""

    __slots__ = ("context", "delivery", "inside", "within")

    def __init__(self, context: HookContext, delivery: Delivery, inside: frozenset[Registration]) -> None:
        self.context, self.delivery, self.inside = context, delivery, inside
        self.within: Context = copy_context()


class _Lane:
    """The calls of one handler in one place, one after the other; there while it has some."""

    def __init__(self, registration: Registration, key: object, guard: threading.Lock) -> None:
        self.registration, self.key = registration, key
        self.waiting: deque[_Call] = deque()
        self.late = False
        self._guard = guard
        self._task: object = None  # the loop alone holds its tasks weakly

    def start(self) -> None:
        if self.key is None:
            name = "ringfence-hook"
            try:
                threading.Thread(target=self._in_thread, name=name, daemon=True).start()
            except RuntimeError as error:  # no thread is left
                self.registration.complain("could not be given a thread", error)
                self._give_up()
        elif _has_task():
            import asyncio

            self._task = asyncio.get_running_loop().create_task(self._in_loop())
        else:
            import trio

            trio.lowlevel.spawn_system_task(self._in_loop, context=copy_context())

    def _next(self) -> _Call | None:
        with self._guard:
            while self.waiting:
                call = self.waiting.popleft()
                if not self.registration.closed:
                    return call
                call.delivery.done(call)
            self.registration.lanes.pop(self.key, None)
            return None

    def _give_up(self) -> None:
        """The loop ends, or cannot begin: what waits is not delivered."""
        with self._guard:
            self.registration.lanes.pop(self.key, None)
            left, self.waiting = self.waiting, deque()
        for call in left:
            call.delivery.done(call)

    def _in_thread(self) -> None:
        while call := self._next():
            call.within.run(self._call, call)
            call.delivery.done(call)

    def _call(self, call: _Call) -> None:
        _inside.set(call.inside)
        try:
            returned = self.registration.handler(call.context)
            if inspect.isawaitable(returned):
                import asyncio

                asyncio.run(_awaited(returned))
        except BaseException as error:  # whatever it is, it ends here: the thread is ours
            self.registration.complain("failed", error)

    async def _in_loop(self) -> None:
        try:
            while call := self._next():
                _inside.set(call.inside)
                try:
                    await _awaited(self.registration.handler(call.context))
                except BaseException as error:
                    if not _is_its_own(error):
                        raise
                    self.registration.complain("failed", error)
                finally:
                    call.delivery.done(call)
        except BaseException:
            self._give_up()
            raise


async def _awaited(returned: object) -> None:
    if inspect.isawaitable(returned):
        await returned


def _has_task() -> bool:
    """Whether this runs in a task of asyncio. A loop that trio is a guest of has none then."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:
        return False


def _this_loop() -> object:
    """The event loop that this is called in; None where there is none."""
    if _has_task():
        return sys.modules["asyncio"].get_running_loop()
    trio = sys.modules.get("trio")
    try:
        return trio.lowlevel.current_trio_token() if trio is not None else None
    except RuntimeError:
        return None


def _is_its_own(error: BaseException) -> bool:
    """Whether a handler failed, rather than that its loop cancels it or a person interrupts the loop."""
    if isinstance(error, (Exception, SystemExit)):
        return True
    if _has_task():
        import asyncio

        task = asyncio.current_task()
        cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
        return not (cancelled or isinstance(error, (KeyboardInterrupt, GeneratorExit)))
    import trio

    return not isinstance(error, (trio.Cancelled, GeneratorExit))  # trio keeps Ctrl-C from its system tasks
