"""The pipes and the channel of one run, and the poll that watches them.

One set is made ahead, while the command before it runs: making them is a fifth of what a short command costs beyond itself.
"""

from __future__ import annotations

import _socket
import os
import select

from ringfence.guest import wire

PIPE_MODE = 0o666
"""A pipe belongs to who made it; a box of another id must be able to open its own /dev/stdout. No path leads to it."""


class Ends:
    """Both ends of a run's channel, stdout and stderr; `theirs` go to the guest, the rest is watched here."""

    def __init__(self) -> None:
        self.theirs: list[int] = []
        self.streams: list[int] = []
        self.poll = select.epoll()
        try:
            self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            self.theirs.append(theirs.detach())
            self.channel.setblocking(False)
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


_ahead: list[Ends] = []


def take() -> Ends:
    """A set for one run. Raises OSError when the process has no descriptors left."""
    try:
        return _ahead.pop()
    except IndexError:
        return Ends()


def make_ahead() -> None:
    """Have one set ready for the next run."""
    if not _ahead:
        try:
            _ahead.append(Ends())
        except OSError:
            pass  # the next run says so, if it is still true then


def drop() -> None:
    """Close what was made ahead: in a fork of the caller, whose runs must not share pipes with it, and at the end."""
    while _ahead:
        _ahead.pop().close()


os.register_at_fork(after_in_child=drop)
