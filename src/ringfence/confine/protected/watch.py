"""What is looked at around the runs of one box, from outside: what it left for others to run, and whether its protection held."""

from __future__ import annotations

from typing import NamedTuple

from ringfence.confine.protected.planted import Planted, writable_folders
from ringfence.outcome import Denial
from ringfence.policy.resolve import ResolvedPolicy


class Findings(NamedTuple):
    """What one look found, for the result of the run before it."""

    denials: tuple[Denial, ...] = ()
    notes: tuple[str, ...] = ()


class Watch:
    """The watched side of one box. Made while the box is, before anything runs in it."""

    def __init__(self, policy: ResolvedPolicy) -> None:
        self.planted = Planted(policy)

    def after_run(self) -> Findings:
        return Findings(self.planted.after_run(), self.planted.notes)

    def look(self) -> tuple[Denial, ...]:
        """Everything that was planted since the box began, by a whole look at this moment."""
        self.planted.look()
        return tuple(self.planted.reported)

    def end(self) -> tuple[Denial, ...]:
        """The last look, when nothing of the box runs any more; returns what no result has told."""
        try:
            return self.planted.last()
        finally:
            self.planted.close()

    def close(self) -> None:
        """Let go of everything without another look."""
        self.planted.close()


def watch_for(policy: ResolvedPolicy) -> Watch | None:
    """The watch of a box of this policy; None where the box can write no folder of the host."""
    return Watch(policy) if writable_folders(policy) else None
