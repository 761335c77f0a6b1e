"""What is looked at around the runs of one box, from outside: what it left for others to run, and whether its protection held."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ringfence.confine.plan import Prepared
from ringfence.confine.protected.mounts import Loss, Mounts
from ringfence.confine.protected.planted import TREES, Planted, writable_folders
from ringfence.confine.protected.watchman import WATCHMAN, Names
from ringfence.errors import ProtectionLostError
from ringfence.outcome import Denial
from ringfence.policy.resolve import ResolvedPolicy

PutBack: TypeAlias = Callable[[bytes], list[int] | None]

LOST = "unprotected"
"""The kind of a denial that says: the boundary did not hold this path for a while."""


class Findings(NamedTuple):
    """What one look found, for the result of the run before it. unprotected: what was open during the run; mostly nothing."""

    denials: tuple[Denial, ...] = ()
    notes: tuple[str, ...] = ()
    unprotected: str = ""


NOTHING = Findings()


class Watch:
    """The watched side of one box. Made while the box is, before anything runs in it.

    since: the time.monotonic_ns() at which it began to be made.
    """

    def __init__(self, policy: ResolvedPolicy, prepared: Prepared, put_back: PutBack, since: int) -> None:
        plan = prepared.plan
        root_caller = plan.ids is not None and not plan.ids.deny_setgroups
        writable = [folder.path for folder in writable_folders(policy)]
        self.planted = Planted(policy, owners_only=root_caller, since=since)
        self._mounts = Mounts(plan.view, put_back)
        watched = [each.path for each in plan.protected if each.how == "watch"]
        self._names = Names(watched, self._mounts.held, writable, self._came_off_now)
        self._named = False
        self._table = -1
        self._notes: tuple[str, ...] = ()
        self._rules = {each.path: f"protected: {each.how}" for each in plan.protected} | dict(prepared.covered)
        self._lost: list[str] = []  # and could not be put back
        self._off: list[Denial] = []  # what came off while a run was under way
        self._between: list[Denial] = []  # and what between two of them, for the next result
        self.told: list[Denial] = []  # everything, in the order in which it was found
        self.running: Callable[[], bool] = lambda: True
        self._poll = select.poll()
        self._guard = threading.Lock()
        if TREES.descriptor >= 0:
            self._poll.register(TREES.descriptor, select.POLLIN)
        if self._names.paths:
            self._named = True
            WATCHMAN.add(self._names)
            if WATCHMAN.descriptor >= 0:
                self._poll.register(WATCHMAN.descriptor, select.POLLIN)
        # Where no queue tells of changes there is something to look at around every run.
        self._deaf = TREES.descriptor < 0 and bool(writable or self._mounts.held)
        self._stamp, self._waiting = TREES.stamp, self._deaf or self.planted.stale

    def begin(self, pid: int) -> None:
        """The box is made, and pid is its first process. Raises ProtectionLostError where a mount is gone already for good."""
        try:
            self._table = self._mounts.open(pid)
        except OSError as error:  # a /proc that hides the processes of others from this caller
            self._notes += (f"whether protected paths stay protected cannot be watched on this host: {error.strerror}.",)
        if self._table >= 0:
            self._poll.register(self._table, select.POLLPRI)
            # Since the files were looked at: before the table was open, only the queue tells.
            if (self._poll.poll(0) or self._stamp != TREES.stamp) and self._mounts.replaced():
                self._must_hold(self._check(running=False))

    def ending(self) -> None:
        """The box is about to be ended: let go of its table of mounts, or taking the mounts down is this process's work."""
        with self._guard:
            if self._table >= 0:
                self._poll.unregister(self._table)
                self._table = -1
            self._mounts.close()

    def content_before(self, path: str) -> object:
        """What a protected file of the host held when the box began: bytes where they are few."""
        return self._mounts.first.get(path)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes + self.planted.notes

    def before_run(self) -> int:
        """Put back what came off since the last run; returns a mark for after_run().

        Costs one poll where nothing happened. Raises ProtectionLostError where something cannot be put back.
        """
        with self._guard:  # another thread's run waits until what protects it is back
            ready = self._poll.poll(0)
            if ready or self._stamp != TREES.stamp or self._deaf or self._lost:
                TREES.dispatch()
                if self._came_off(ready) or self._lost:
                    self._must_hold(self._check(running=self.running()))
            return len(self._off)

    def _came_off(self, ready: list[tuple[int, int]]) -> bool:
        """Whether a mount may have come off: the kernel says so; or a file was renamed on the host, and the mount went with it."""
        return any(descriptor == self._table for descriptor, _ in ready) or self._mounts.replaced()

    def _came_off_now(self) -> None:
        """Called by the watchman's thread, at once: a run may go on for hours."""
        with self._guard:
            if self._table >= 0:
                self._check(running=self.running())

    def _check(self, *, running: bool) -> list[Loss]:
        losses = self._mounts.check()
        found = [self._denial(loss, "while it ran" if running else "between two runs") for loss in losses]
        (self._off if running else self._between).extend(found)
        self.told += found
        self._lost = [loss.step.target for loss in losses if not loss.held]
        return losses

    def _must_hold(self, losses: list[Loss]) -> None:
        for loss in losses:
            if not loss.held:
                raise ProtectionLostError(f"the protection of {loss.step.target} came off: {loss.said}.", paths=tuple(self._lost))

    def after_run(self, mark: int, *, idle: bool) -> Findings:
        """What there is to tell of a run that has ended, from what before_run() returned for it. idle: no other is under way.

        Costs one poll where nothing happened.
        """
        with self._guard:
            ready = self._poll.poll(0)
            if ready or self._stamp != TREES.stamp or self._waiting or self._between or len(self._off) > mark or self._was_taken():
                return self._found(ready, mark, idle)
            return Findings((), self.notes) if self._notes or self.planted.notes else NOTHING

    def _found(self, ready: list[tuple[int, int]], mark: int, idle: bool) -> Findings:
        TREES.dispatch()
        if self._came_off(ready):
            self._check(running=True)
        off = self._off[mark:]
        denials, self._between = [*self._between, *off], []
        if self._named:
            WATCHMAN.settle(self._names)
            taken, self._names.found = self._names.found, []
            denials += taken
            self.told += taken
        self._stamp = TREES.stamp
        planted = self.planted.after_run(idle=idle)
        self._waiting = self._deaf or self.planted.stale
        self.told += planted
        return Findings((*denials, *planted), self.notes, ", ".join(dict.fromkeys(denial.target for denial in off)))

    def _was_taken(self) -> bool:
        """Whether something was taken away under a name that is watched for."""
        if not self._named:
            return False
        with WATCHMAN.guard:  # what the thread is just taking away belongs to the run that has ended
            return bool(self._names.found) or WATCHMAN.descriptor < 0

    def _denial(self, loss: Loss, when: str) -> Denial:
        path = loss.step.target
        return Denial(LOST, path, self._rules.get(path, ""), "observed", None, f"its mount came off {when}; {loss.said}")

    def look(self, *, idle: bool) -> tuple[Denial, ...]:
        """Everything that was planted since the box began, by a whole look at this moment."""
        with self._guard:
            self.told += self.planted.look(idle=idle)
            return tuple(self.planted.reported)

    def end(self) -> tuple[Denial, ...]:
        """The last look, when nothing of the box runs any more; returns what no result has told."""
        try:
            if self._named:
                WATCHMAN.settle(self._names)
            last = (*self._names.found, *self.planted.last())
            self.told += last
            return (*self._between, *last)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of everything without another look."""
        if self._named:
            self._named = False
            WATCHMAN.remove(self._names)
        self.ending()
        self.planted.close()
