"""The memory of a box, by looking at its processes.

In two steps: the sum of what each process has resident counts shared memory again and again, but is quick and never too
little; only where it exceeds the cap is each process's proportional share read (PSS). Of that only what cannot be dropped
counts, as a control group would have it: pages of files on a disk are a cache. Over the cap the largest process is killed.
"""

import os
import signal
import time

from ringfence.guest.warden import tree
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BY = b"monitor"
TICK = 0.2
"""Seconds between two looks at an idle box, and at most between two at any: with what a look takes, below a quarter."""
SOONEST = 0.01
RATE = 2 << 30
"""Bytes that a box is expected to take in a second at most: the next look comes when it could have reached its cap."""
SHARE = 20
"""A look that took n seconds is followed by no other for SHARE times n: so a box costs a twentieth of a core at most."""
ENOUGH = 2
"""Victims of one run after which all of the run is ended."""


class Monitor(Watcher):
    """Settings: limit, in bytes."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.limit = box, settings["limit"]
        self.due = 0.0
        self._dying: set[int] = set()
        self._victims: dict[int, int] = {}
        self._template = (0, 0)  # its pid in the box, and on the host

    def act(self, now: float) -> None:
        if self.box.template != self._template[0]:
            self._template = (self.box.template, self.box.tree().template)
        if tree.is_idle(self.box.pid, self._template[1]):
            self._dying.clear()
            self._victims.clear()
            self.due = (now // TICK + 1) * TICK  # all idle boxes together
            return
        began = time.monotonic()
        used = self._look()
        ended = time.monotonic()
        pause = min(TICK, max(SOONEST, (self.limit - used) / RATE, (ended - began) * SHARE))
        self.due = ended + pause

    def _look(self) -> int:
        found = self.box.tree()
        self._dying &= found.processes.keys()
        live = [pid for pid in found.processes if pid not in self._dying]
        sizes = {pid: tree.resident(pid) for pid in live}
        files = used_of(self.box.given[b"scratch"]) if b"scratch" in self.box.given else 0
        if sum(sizes.values()) + files > self.limit:
            sizes = {pid: unshared(pid, bound) for pid, bound in sizes.items()}
        used = sum(sizes.values()) + files
        if used > self.limit:
            self._breach(used, sizes, found)
        return used

    def _breach(self, used: int, sizes: "dict[int, int]", found: tree.Tree) -> None:
        sizes.pop(found.template, None)
        for pid in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self._kill(pid, used, found):
                return
        self.box.record(b"memory", self.limit, used, BY, ends=True, box=True)
        self.box.kill()

    def _kill(self, pid: int, used: int, found: tree.Tree) -> bool:
        """Kill a process, unless it has ended by itself; with it its run where it was its first or not its first victim."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if parent_of(pid) not in (found.processes[pid], found.guest):
                return False  # somebody else's by now
            inner, run = found.inner(pid), found.run_of(pid)
            victims = self._victims[run] = self._victims.get(run, 0) + 1
            ends = run > 0 and (inner == run or victims >= ENOUGH)
            self.box.record(b"memory", self.limit, used, BY, pid=inner, run=run, ends=ends)
            if ends:
                self.box.end_run(run, b"memory")
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._dying.add(pid)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True


def parent_of(pid: int) -> int:
    fields = tree.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[0] not in b"ZX" else 0


def unshared(pid: int, bound: int) -> int:
    """Bytes of a process that are no cache of a file, each divided by those who share it; bound where nobody may look.

    smaps_rollup, in KiB (Documentation/filesystems/proc.rst). Kernels before 5.4 tell the whole share alone.
    """
    parts: dict[bytes, int] = {}
    for line in tree.read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
        name, _, value = line.partition(b":")
        parts[name] = int(value.split()[0]) << 10
    if not parts:
        return bound
    if b"Pss_Anon" not in parts:
        return parts.get(b"Pss", bound)
    return parts[b"Pss_Anon"] + parts[b"Pss_Shmem"] + parts.get(b"SwapPss", 0)


def used_of(folder: int) -> int:
    """Bytes that the files of a file system take, which folder is a descriptor of."""
    found = os.fstatvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
