"""What the server may hold, worked out from what this process may: descriptors are the bound that is met first."""

from __future__ import annotations

import resource

RESERVED = 256
"""Descriptors that are no connection's: the loop, look-ups under way, refusals that are being told."""
EACH = 2
"""Of a connection: its two ends."""
MOST_PIPES = 64
REFUSING = 64
"""Connections of a box beyond its share that are told so at once."""
LEAST_SHARE, MOST_OF_A_BOX = 16, 10_000
"""Connections that a box may have however many others there are, and however many descriptors."""


def descriptors() -> int:
    """How many this process may have open, after raising its own limit as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Room:
    """How many connections there may be. A box has never more than it leaves to others: n greedy ones leave a part of n + 1."""

    def __init__(self, may_open: int) -> None:
        self._may_open = may_open
        self.held = 0  # descriptors of boxes: listeners, records, journals
        self.connections = self.refusing = 0
        self.pipes = max(2, min(MOST_PIPES, may_open // 16))

    @property
    def most(self) -> int:
        """Connections of all boxes together."""
        return max(0, (self._may_open - RESERVED - 2 * self.pipes - self.held) // EACH)

    def has(self, of_box: int) -> bool:
        """Whether a box that has so many connections may have one more."""
        left = self.most - self.connections
        return left > 0 and (of_box < LEAST_SHARE or of_box < min(left, MOST_OF_A_BOX))

    def may_refuse(self, of_box: int) -> bool:
        """Whether one more connection can be told that there are too many, where so many of its box are being told."""
        return of_box < REFUSING and self.refusing < RESERVED // 2
