"""Bytes between two connections, both ways, after the decision: moved in the kernel where there are many, held by nobody.

A direction looks at what has come (MSG_PEEK), sends it on, and takes from the first socket what the second has taken: what the
second does not take stays where it is, in the first one's buffer, and its sender waits. A direction that goes on being full gets
a pipe for splice(2), so that nothing is copied; pipes are few and are given back when they are empty.
"""

from __future__ import annotations

import _socket
import os
from collections import Counter
from collections.abc import Hashable

from ringfence.egress.loop import Task

BLOCK = 256 * 1024
"""Bytes of one look; what is typed and asked is smaller, and what is larger streams."""
PIPE_SIZES = (1 << 20, 1 << 18, 1 << 16)  # bytes; tried in turn, since a user may have so much of pipes (pipe(7))
BUDGET = 2 << 20
"""Bytes that one direction moves before others have a turn."""
IDLE_SECONDS = 3600.0
HALF_CLOSED_SECONDS = 900.0
"""How long nothing may move: between two ends that are open, and after one has said that it sends no more."""
F_SETPIPE_SZ = 1031  # linux/fcntl.h
FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if hasattr(os, "SPLICE_F_MOVE") else 3  # linux/splice.h; in Python since 3.12

_block = bytearray(BLOCK)
_view = memoryview(_block)


class Pipes:
    """The pipes of the server. most: how many it may have; a box gets no more of them than it leaves to others."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free: list[tuple[int, int]] = []
        self._held: Counter[Hashable] = Counter()
        self._made = 0

    def take(self, owner: Hashable) -> tuple[int, int] | None:
        """An empty pipe, or None where there is none for this box."""
        if self._held[owner] >= self.most - self._held.total():
            return None
        if not self._free:
            try:
                self._free.append(_pipe())
            except OSError:
                return None
            self._made += 1
        self._held[owner] += 1
        return self._free.pop()

    def give_back(self, owner: Hashable, pipe: tuple[int, int], *, empty: bool) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        if empty:
            self._free.append(pipe)
            return
        self._made -= 1
        for descriptor in pipe:
            os.close(descriptor)


def _pipe() -> tuple[int, int]:
    import fcntl

    made = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for size in PIPE_SIZES:
        try:
            fcntl.fcntl(made[1], F_SETPIPE_SZ, size)
            break
        except OSError:
            continue
    return made


class Direction:
    """One way: from source to target. limit: how many bytes, -1 for all until the source ends."""

    def __init__(self, source: _socket.socket, target: _socket.socket, pipes: Pipes, owner: Hashable, limit: int = -1) -> None:
        self.source, self.target = source, target
        self.pipes, self.owner, self.limit = pipes, owner, limit
        self.moved = 0
        self.ended = False  # the source has said that no more comes
        self._pipe: tuple[int, int] | None = None
        self._inside = 0  # bytes in the pipe
        self._full = 0  # looks in a row that found as much as fits

    @property
    def done(self) -> bool:
        return not self._inside and (self.ended or self.moved == self.limit)

    def pump(self) -> bool:
        """Move what can be moved now. True where the budget was used up, and there is more. Raises OSError of either end."""
        least = self.moved + BUDGET
        try:
            while not self.done and self.moved < least:
                if self._inside:
                    self._inside -= os.splice(self._pipe[0], self.target.fileno(), self._inside, flags=FLAGS)  # type: ignore[index]
                elif self._full > 1 and (self._pipe or self._take_pipe()):
                    self._fill()
                else:
                    self._copy()
        except BlockingIOError:
            self._full = 0
            if not self._inside:
                self._give_back()
            return False
        if self.done:
            self._give_back()
        return not self.done

    def _most(self, size: int) -> int:
        return size if self.limit < 0 else min(size, self.limit - self.moved)

    def _fill(self) -> None:
        assert self._pipe is not None
        found = os.splice(self.source.fileno(), self._pipe[1], self._most(PIPE_SIZES[0]), flags=FLAGS)
        self._inside += found
        self.moved += found
        self.ended = not found

    def _copy(self) -> None:
        found = self.source.recv_into(_block, self._most(BLOCK), _socket.MSG_PEEK)
        if not found:
            self.ended = True
            return
        sent = self.target.send(_view[:found], _socket.MSG_NOSIGNAL)
        self.source.recv_into(_block, sent)
        self.moved += sent
        self._full = self._full + 1 if sent >= 1 << 16 else 0

    def _take_pipe(self) -> bool:
        self._pipe = self.pipes.take(self.owner)
        if self._pipe is None:
            self._full = 0
        return self._pipe is not None

    def _give_back(self) -> None:
        if self._pipe is not None:
            self.pipes.give_back(self.owner, self._pipe, empty=not self._inside)
            self._pipe = None

    def close(self) -> None:
        """Give back what it holds, at any moment."""
        self._give_back()
        self._inside = 0


async def relay(task: Task, client: _socket.socket, server: _socket.socket, pipes: Pipes) -> None:
    """Until both ends have ended, or nothing moves for too long. An end that is reset resets the other; raises OSError then."""
    ways = (Direction(client, server, pipes, task.owner), Direction(server, client, pipes, task.owner))
    passed = [False, False]
    try:
        while True:
            more, before = False, ways[0].moved + ways[1].moved
            for at, way in enumerate(ways):
                if not passed[at]:
                    more |= way.pump()
                    if way.done:
                        passed[at] = True
                        way.target.shutdown(_socket.SHUT_WR)
            if all(passed):
                return
            if ways[0].moved + ways[1].moved != before:
                task.within(HALF_CLOSED_SECONDS if any(passed) else IDLE_SECONDS)
            await (task.give_way() if more else task.wait())
    except OSError:
        for each in (client, server):
            reset(each)
        raise
    finally:
        for way in ways:
            way.close()


def reset(socket: _socket.socket) -> None:
    """Have its close tell the other side that the connection broke, instead of that it ended (SO_LINGER of socket(7))."""
    try:
        socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    except OSError:
        pass
