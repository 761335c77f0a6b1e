"""The channel and the pipes of one run, and the poll that watches them.

A lane serves one run after another where the guest says that nobody else holds its pipes any more: making one is a fifth of
what a short command costs beyond itself. It is kept by the box, so that no two boxes and no two processes share one.
"""

from __future__ import annotations

import _socket
import os
import select

from ringfence.guest import wire

PIPE_MODE = 0o666
"""A pipe belongs to who made it; a box of another id must be able to open its own /dev/stdout. No path leads to it."""


class Lane:
    """Both ends of a run's channel, stdout and stderr; `theirs` go to the guest, the rest is watched here."""

    def __init__(self, *, takes_descriptors: bool = False) -> None:
        self.theirs: list[int] = []
        self.streams: list[int] = []
        self.poll = select.epoll()
        try:
            self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            self.theirs.append(theirs.detach())
            self.channel.setblocking(False)
            if not takes_descriptors:
                wire.refuse_descriptors(self.channel)
            self.poll.register(self.channel.fileno(), select.EPOLLIN)
            for _ in range(2):
                ours, other = os.pipe()
                self.theirs.append(other)
                self.streams.append(ours)
                os.set_blocking(ours, False)
                os.fchmod(ours, PIPE_MODE)
                self.poll.register(ours, select.EPOLLIN)
        except OSError:
            self.close()
            raise

    def close_theirs(self) -> None:
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = []

    def close(self) -> None:
        """Close what is still open. Streams that were handed on are no longer in `streams`."""
        self.close_theirs()
        if hasattr(self, "channel"):
            self.channel.close()
        for descriptor in self.streams:
            os.close(descriptor)
        self.streams = []
        self.poll.close()


class Lanes:
    """The lanes of one box that wait for their next run."""

    MOST = 4

    def __init__(self) -> None:
        self._idle: list[Lane] = []
        self._process = os.getpid()

    def take(self) -> Lane | None:
        """One that the guest has kept as well, or None."""
        if self._process != os.getpid():
            self.close()  # a fork of the caller: its runs must not share pipes with the caller's
            self._process = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def give_back(self, lane: Lane) -> None:
        if len(self._idle) < self.MOST and self._process == os.getpid():
            self._idle.append(lane)
        else:
            lane.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
