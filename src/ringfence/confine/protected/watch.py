"""What is looked at around the runs of one box, from outside: what it left for others to run, and whether its protection held."""

from __future__ import annotations

import select
from typing import NamedTuple

from ringfence.confine.plan import LaunchPlan
from ringfence.confine.protected.planted import TREES, Planted, writable_folders
from ringfence.outcome import Denial
from ringfence.policy.resolve import ResolvedPolicy


class Findings(NamedTuple):
    """What one look found, for the result of the run before it."""

    denials: tuple[Denial, ...] = ()
    notes: tuple[str, ...] = ()


NOTHING = Findings()


class Watch:
    """The watched side of one box. Made while the box is, before anything runs in it."""

    def __init__(self, policy: ResolvedPolicy, plan: LaunchPlan) -> None:
        root_caller = plan.ids is not None and not plan.ids.deny_setgroups
        self.planted = Planted(policy, owners_only=root_caller)
        self._poll = select.poll()
        if TREES.descriptor >= 0:
            self._poll.register(TREES.descriptor, select.POLLIN)
        self._stamp, self._waiting = TREES.stamp, self.planted.stale

    def after_run(self, *, idle: bool) -> Findings:
        """What there is to tell of the run that has ended. idle: no other run of the box is under way.

        Costs one poll where nothing happened.
        """
        if not self._poll.poll(0) and self._stamp == TREES.stamp and not self._waiting:
            return NOTHING if not self.planted.notes else Findings((), self.planted.notes)
        self._stamp = TREES.stamp
        found = self.planted.after_run(idle=idle)
        self._waiting = self.planted.stale
        return Findings(found, self.planted.notes)

    def look(self, *, idle: bool) -> tuple[Denial, ...]:
        """Everything that was planted since the box began, by a whole look at this moment."""
        self.planted.look(idle=idle)
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


def watch_for(policy: ResolvedPolicy, plan: LaunchPlan) -> Watch | None:
    """The watch of a box of this policy; None where the box can write no folder of the host."""
    return Watch(policy, plan) if writable_folders(policy) else None
