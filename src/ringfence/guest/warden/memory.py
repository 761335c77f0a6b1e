"""The memory of a box, by looking at its processes.

In steps, each dearer and truer than the one before: the sum of what each process has resident, which counts shared memory
again and again but is never too little; each one's proportional share of it (PSS), where that sum exceeds the cap; and where
files of the box's memory are mapped as well, these are not counted twice. Files on a disk are a cache and count for nothing,
as a control group would have it. Memory files that nobody has mapped are looked for among the open descriptors, when the
shared memory of the host has grown by enough. Over the cap the largest process is killed.
"""

import os
import signal
import time

from ringfence.guest.warden import measure, tree
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

CAP = b"memory"
TICK = 0.2
"""Seconds between two looks at an idle box: a run that meets its cap is found in less than a quarter."""
SOONEST, LATEST = 0.01, 0.4
RATE = 4 << 30
"""Bytes that a box is expected to take in a second at most: the next look comes when it could have reached its cap."""
SHARE, LEAST_SHARE = 20, 4
"""A look that took n seconds is followed by no other for SHARE times n, or TICK; and in any case for LEAST_SHARE times n."""
GRID = 0.05
"""What is not urgent is looked at together, at multiples of this."""
FILES_SECONDS = 1.0
"""The descriptors are gone through this often at least: what grows here can be hidden by what others of the host give back."""
ENOUGH = 2
"""Victims of one run after which all of the run is ended."""


class Monitor(Watcher):
    """Settings: limit, in bytes."""

    by = b"monitor"

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.limit = box, settings["limit"]
        self.due = 0.0
        self._folder = box.given.get(b"scratch", -1)
        self._device = os.fstat(self._folder).st_dev if self._folder >= 0 else -1
        self._dying: set[int] = set()
        self._victims: dict[int, int] = {}
        self._memory_files = (0.0, 0, 0)  # when they were gone through, their bytes, and the host's shared memory then

    def act(self, now: float) -> None:
        if self.box.idle():
            self._dying.clear()
            self._victims.clear()
            self.due = (now // TICK + 1) * TICK  # all idle boxes together
            return
        began = time.thread_time()  # on a busy host a look takes longer than it costs
        used, sizes, found = self._look(now)
        if used > self.limit:
            # What ends meanwhile counts twice: it leaves its share to those that are looked at next. A second look tells.
            used, sizes, found = self._look(now)
        if used > self.limit:
            self._breach(used, sizes, found)
        ended = time.monotonic()
        took = time.thread_time() - began
        pause = min(LATEST, max(SOONEST, (self.limit - used) / RATE, min(TICK, took * SHARE)))
        self.due = ended + max(took * LEAST_SHARE, pause)
        if pause >= TICK:
            self.due = self.due // GRID * GRID

    def _look(self, now: float) -> "tuple[int, dict[int, int], tree.Tree]":
        """What the box has taken, or a number that is larger and still below its cap; each process's part of it."""
        found = self.box.tree()
        self._dying &= found.processes.keys()
        sizes = {pid: measure.resident(pid) for pid in found.processes if pid not in self._dying}
        folders = measure.used_of(self._folder) if self._folder >= 0 else 0
        shared, swapped = measure.of_host()
        used = sum(sizes.values()) + folders + self._grown(now, shared) + swapped
        if used <= self.limit:
            return used, sizes, found
        held = {pid: measure.files_in_memory(pid) for pid in sizes}
        opened: dict[tuple[int, int], int] = {}
        for files in held.values():
            opened |= files
        whole = folders + sum(opened.values())
        self._memory_files = (now, whole - folders, shared)
        if sum(sizes.values()) + whole + swapped > self.limit:
            sizes = self._alone(sizes) or self._shares([*sizes], whole, opened)
        return sum(sizes.values()) + whole, {pid: size + sum(held[pid].values()) for pid, size in sizes.items()}, found

    def _grown(self, now: float, shared: int) -> int:
        """What the memory files of the box can hold at most by now."""
        when, held, host = self._memory_files
        return self.limit if now - when > FILES_SECONDS else held + max(0, shared - host)

    def _alone(self, pids: "Iterable[int]") -> "dict[int, int]":
        """The process that exceeds the cap by what it shares at most with its forks, without the rest; {} where none does.

        Reading the share of a large process takes a while, and keeps it from going on meanwhile.
        """
        sizes = {pid: measure.private(pid) for pid in pids}
        largest = max(sizes, key=sizes.__getitem__, default=0)
        over = largest and sizes[largest] - measure.private(self.box.pid) > self.limit
        return {largest: sizes[largest]} if over else {}

    def _shares(self, pids: "list[int]", whole: int, opened: "dict[tuple[int, int], int]") -> "dict[int, int]":
        """Each process's share; whole: bytes of the files in memory, which are counted beside it, opened being some of them."""
        own: dict[int, int] = {}
        shared: dict[int, int] = {}
        for pid in pids:
            own[pid], shared[pid] = measure.share(pid, self.box.pid)
        if whole and sum(own.values()) + sum(shared.values()) + whole > self.limit:
            for pid, size in shared.items():
                if size:
                    shared[pid] = max(0, size - measure.counted(pid, opened.keys(), self._device))
        return {pid: size + shared[pid] for pid, size in own.items()}

    def _breach(self, used: int, sizes: "dict[int, int]", found: tree.Tree) -> None:
        sizes.pop(found.template, None)
        for pid in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self._kill(pid, used, found):
                return
        self.box.record(CAP, self.limit, used, self.by, ends=True, box=True)
        self.box.kill()

    def _kill(self, pid: int, used: int, found: tree.Tree) -> bool:
        """Kill a process, unless it has ended by itself; with it its run where it was its first or not its first victim."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if tree.parent_of(pid) not in (found.processes[pid], found.guest):
                return False  # somebody else's by now
            inner, run = found.inner(pid), found.run_of(pid)
            victims = self._victims[run] = self._victims.get(run, 0) + 1
            ends = run > 0 and (inner == run or victims >= ENOUGH)
            self.box.record(CAP, self.limit, used, self.by, pid=inner, run=run, ends=ends)
            if ends:
                self.box.end_run(run, CAP)
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._dying.add(pid)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True
