"""The event loop of the egress server: one thread, one epoll, coroutines that wait for what happens on their own sockets.

A task is woken by any event of any of its sockets, or by its deadline, and tries again what would have blocked: so a wake-up too
many costs a system call and nothing else. Sockets are registered once, edge-triggered (epoll(7)), for all of their life.

Tasks that can go on wait in line by their box, and boxes take turns: one with a thousand busy connections delays another's by
one turn, not by a thousand.
"""

from __future__ import annotations

import _socket
import select
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from heapq import heapify, heappop, heappush
from typing import Any

EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
A_TURN = 4
"""Tasks of one box that go on before the next box's do."""
MOST_EVENTS = 256
MOST_SPOILED = 256
NEVER = float("inf")


class TimedOutError(Exception):
    """The deadline of the task has passed."""


class EndedError(Exception):
    """The task is to end: its box has, or is not allowed any more what it does."""


class _Wait:
    """Awaited, gives the turn to others until the task is woken."""

    def __await__(self) -> Generator[None, None, None]:
        yield


WAIT = _Wait()


class Task:
    """A coroutine and what it owns. Times are those of time.monotonic(), in seconds."""

    __slots__ = ("_coroutine", "_ended", "_loop", "_queued", "_timer", "deadline", "done", "owner", "sockets", "thrown")

    def __init__(
        self,
        loop: Loop,
        owner: Hashable,
        make: Callable[[Task], Coroutine[Any, None, None]],
        sockets: tuple[_socket.socket, ...],
        ended: Callable[[Task], None] | None,
    ) -> None:
        self._loop, self.owner, self._ended = loop, owner, ended
        self._queued = self.done = False
        self._timer = self.deadline = NEVER
        self.sockets: list[_socket.socket] = []
        self.thrown: Exception | None = None
        for socket in sockets:
            self.adopt(socket)
        self._coroutine = make(self)

    async def wait(self) -> None:
        """Until something happened on one of its sockets, or somebody woke it. Raises TimedOutError, EndedError."""
        if self.thrown is not None:
            raise self.thrown
        if self.deadline < self._timer:
            self._timer = self.deadline
            self._loop.at(self._timer, self)
        await WAIT
        if self.thrown is not None:
            raise self.thrown
        if self.deadline <= self._loop.now:
            raise TimedOutError

    async def give_way(self) -> None:
        """Let the others have a turn."""
        self.wake()
        await self.wait()

    def within(self, seconds: float) -> None:
        """Set its deadline, from now."""
        self.deadline = self._loop.now + seconds

    def adopt(self, socket: _socket.socket) -> None:
        """Own a socket: it wakes this task, and is closed with it."""
        socket.setblocking(False)
        self.sockets.append(socket)
        self._loop.register(socket.fileno(), self)

    def close(self, socket: _socket.socket) -> None:
        """Close one of its sockets before its end."""
        self.sockets.remove(socket)
        self._loop.forget(socket.fileno())
        socket.close()

    def wake(self) -> None:
        if not self._queued and not self.done:
            self._queued = True
            self._loop.queue(self)

    def end(self, error: Exception | None = None) -> None:
        """Have it raise an error, EndedError where none is given, where it waits."""
        if not self.done and self.thrown is None:
            self.thrown = error or EndedError()
            self.wake()

    def fire(self, at: float) -> None:
        """Its timer: the deadline may have been moved since that was set."""
        if self.done or at != self._timer:
            return
        self._timer = NEVER
        if self.deadline <= self._loop.now:
            self.wake()
        elif self.deadline < NEVER:
            self._timer = self.deadline
            self._loop.at(self._timer, self)

    def step(self) -> None:
        self._queued = False
        try:
            self._coroutine.send(None)
        except (StopIteration, EndedError, TimedOutError):
            self._finish()
        except Exception as error:
            self._finish()
            self._loop.failed(self.owner, error)

    def _finish(self) -> None:
        self.done = True
        for socket in self.sockets:
            self._loop.forget(socket.fileno())
            socket.close()
        self.sockets.clear()
        if self._timer < NEVER:
            self._loop.spoiled()
        if self._ended is not None:
            self._ended(self)


class Loop:
    """Runs tasks, and calls that are bound to a descriptor. Not safe for threads: the worker has one."""

    def __init__(self, failed: Callable[[Hashable, Exception], None]) -> None:
        self.failed = failed
        self.now = time.monotonic()
        self._poll = select.epoll()
        self._by_descriptor: dict[int, Task | Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Task | Callable[[], None]]] = []
        self._number = self._spoiled = 0
        self._lines: dict[Hashable, deque[Task]] = {}  # of boxes that have tasks that can go on, in the order of their turns

    def start(
        self,
        owner: Hashable,
        make: Callable[[Task], Coroutine[Any, None, None]],
        *sockets: _socket.socket,
        ended: Callable[[Task], None] | None = None,
    ) -> Task:
        """A new task of a box, which goes on at its next turn. It owns sockets from now on; ended is called after its end."""
        task = Task(self, owner, make, sockets, ended)
        task.wake()
        return task

    def call(self, descriptor: int, function: Callable[[], None], events: int = select.EPOLLIN) -> None:
        """Call function whenever descriptor has one of events, as long as it has (level-triggered)."""
        self._by_descriptor[descriptor] = function
        self._poll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        self._poll.modify(descriptor, events)

    def register(self, descriptor: int, task: Task) -> None:
        self._by_descriptor[descriptor] = task
        self._poll.register(descriptor, EDGES)

    def forget(self, descriptor: int) -> None:
        if self._by_descriptor.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def at(self, when: float, what: Task | Callable[[], None]) -> None:
        self._number += 1
        heappush(self._timers, (when, self._number, what))

    def spoiled(self) -> None:
        """A timer is of a task that has ended: where most are, they are taken out, or each connection would be held for a while."""
        self._spoiled += 1
        if self._spoiled > MOST_SPOILED and 2 * self._spoiled > len(self._timers):
            self._timers = [each for each in self._timers if not isinstance(each[2], Task) or not each[2].done]
            heapify(self._timers)
            self._spoiled = 0

    def queue(self, task: Task) -> None:
        line = self._lines.get(task.owner)
        if line is None:
            self._lines[task.owner] = line = deque()
        line.append(task)

    def run(self) -> None:
        """For ever."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Look at what happened, then let each box that can go on do so for a moment."""
        for descriptor, _ in self._poll.poll(self._patience(), MOST_EVENTS):
            what = self._by_descriptor.get(descriptor)
            if what is None:
                continue  # closed by what was called before it in this very turn
            if isinstance(what, Task):
                what.wake()
            else:
                what()
        self.now = time.monotonic()
        while self._timers and self._timers[0][0] <= self.now:
            when, _, due = heappop(self._timers)
            if isinstance(due, Task):
                due.fire(when)
            else:
                due()
        for owner, line in list(self._lines.items()):
            for _ in range(min(A_TURN, len(line))):
                line.popleft().step()
            if not line:
                del self._lines[owner]

    def _patience(self) -> float:
        if self._lines:
            return 0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1
