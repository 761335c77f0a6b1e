"""How long a box may live, in use or not: one timer that the caller sets, the kernel keeps and the zygote acts on.

The guest has no hold of it, so nothing in the box can make its life longer; and it holds while the caller is stopped.
"""

from __future__ import annotations

import os
import threading
import time

from ringfence.guest import kernel


class Life:
    """The timer of one box. lifetime and idle are seconds; None is no bound. Idle is a box in which no call of the caller runs."""

    def __init__(self, lifetime: float | None, idle: float | None) -> None:
        self.lifetime, self.idle = lifetime, idle
        self.timer = kernel.timer_descriptor()
        self._until_ns = time.monotonic_ns() + int(lifetime * 1e9) if lifetime is not None else 0
        self._runs: set[object] = set()
        self._guard = threading.Lock()
        self._arm()

    def enter(self, run: object) -> None:
        """Before a run begins: the box is in use."""
        with self._guard:
            self._runs.add(run)
            self._arm()

    def leave(self, run: object) -> None:
        """When a run has ended, or did not begin. Safe to call again."""
        with self._guard:
            if run in self._runs:
                self._runs.remove(run)
                self._arm()

    @property
    def over(self) -> tuple[str, float]:
        """Which of the two ended the box, and its seconds, once it is known that one did."""
        if self.idle is None or (self._until_ns and time.monotonic_ns() >= self._until_ns):
            return "lifetime", self.lifetime or 0.0
        return "idle", self.idle

    def close(self) -> None:
        """Give the timer back. Safe to call again."""
        with self._guard:
            if self.timer >= 0:
                os.close(self.timer)
                self.timer = -1

    def _arm(self) -> None:
        ends = [self._until_ns] if self._until_ns else []
        if self.idle is not None and not self._runs:
            ends.append(time.monotonic_ns() + int(self.idle * 1e9))
        if self.timer >= 0:
            kernel.arm(self.timer, min(ends, default=0))
