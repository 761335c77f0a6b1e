"""The memory of a box, by its control group of version 1 (Documentation/admin-guide/cgroup-v1/memory.rst).

The kernel tells this process when the group holds as much as its cap, and kills nothing (oom_kill_disable): at its limit, which is
a little higher, the box stands still, guest and all. What cannot be dropped counts: own pages and files in memory, no cache of a
disk. It reads only what no stopped process can hold up, and kills the largest until the box is below its cap.
"""

import os

from ringfence.guest.warden import measure, tree
from ringfence.guest.warden.memory import RATE, SOONEST, TICK, Monitor
from ringfence.guest.warden.watched import NEVER, Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AGAIN = 0.005
SLACK = 4 << 20
"""How far below its limit a group can stand still: the largest charge that it waits for is a huge page, and what is kept ahead
of use for each processor is no more (mm/memcontrol.c: MEMCG_CHARGE_BATCH)."""
PATIENCE = 1.0
"""Seconds that a process which was killed has to be gone, before another is killed as well."""


class Group:
    """A group with what the kernel was asked to tell of it, which stays asked for when its box has ended: the next one that gets
    this group has it, since to ask anew waits for all processors (synchronize_rcu in mm/memcontrol-v1.c), 10 ms and more."""

    def __init__(self, folder: int, limit: int) -> None:
        self._folder = folder
        self.control, self.usage, self.stat = (
            self._open(f"memory.{name}", os.O_RDONLY) for name in ("oom_control", "usage_in_bytes", "stat")
        )
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        registering = self._open("cgroup.event_control", os.O_WRONLY)
        try:
            os.write(registering, b"%d %d" % (self.event, self.control))
            os.write(registering, b"%d %d %d" % (self.event, self.usage, limit))
        finally:
            os.close(registering)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folder)

    def close(self) -> None:
        for descriptor in (self.control, self.usage, self.stat, self.event):
            os.close(descriptor)


_kept: "dict[tuple[int, int, int], Group]" = {}
KEPT = 16
"""Groups of ended boxes that the kernel goes on telling of; a caller keeps fewer (confine/groups/places.py). While a file of a
group is open its inode number is no other's."""


class Grouped(Monitor):
    """Settings: limit, in bytes. With a descriptor memory_group of the folder of the group."""

    by = b"cgroup v1 memory"

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        super().__init__(box, settings)
        folder = box.given[b"memory_group"]
        found = os.fstat(folder)
        self._key = (found.st_dev, found.st_ino, self.limit)
        self._most = int(tree.read(f"/proc/self/fd/{folder}/memory.limit_in_bytes"))
        self._group = _kept.pop(self._key) if self._key in _kept else Group(folder, self.limit)
        self._control, self._usage, self._stat = self._group.control, self._group.usage, self._group.stat
        self._event = self._group.event
        self.descriptors = (self._event,)
        self._until = 0.0

    def act(self, now: float) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass  # it was time, and nothing new has happened
        usage = int(os.pread(self._usage, 32, 0))
        # It is also said to stand still for a moment after memory was given back, until all that did was woken.
        stuck = usage >= self._most - SLACK and b"under_oom 1" in os.pread(self._control, 256, 0)
        held = usage if stuck else self._held()
        if held <= self.limit:
            self._dying.clear()
            # With a cache of files beside it no event tells that it crosses the cap.
            self.due = now + min(TICK, max(SOONEST, (self.limit - held) / RATE)) if usage > self.limit else NEVER
            return
        self.due = now + AGAIN
        found = self.box.tree()
        # One that is a zombie has given its memory back, and whoever waits for it may stand still itself.
        self._dying = {pid for pid in self._dying & found.processes.keys() if tree.parent_of(pid)}
        if self._dying and now < self._until:
            return
        self._until = now + PATIENCE
        running = {found.run_of(pid) for pid in found.processes}
        self._victims = {run: count for run, count in self._victims.items() if run in running}
        live = [pid for pid in found.processes if pid not in self._dying]
        sizes = {pid: measure.resident(pid) + sum(measure.files_in_memory(pid).values()) for pid in live}
        self._breach(held, sizes, found)

    def _held(self) -> int:
        """Bytes of the group that cannot be dropped."""
        parts = dict(line.split() for line in os.pread(self._stat, 8192, 0).splitlines())
        return int(parts.get(b"rss", 0)) + int(parts.get(b"shmem", 0)) + int(parts.get(b"swap", 0))

    def close(self) -> None:
        if again := _kept.pop(self._key, None):
            again.close()  # the next box was told of before this one's end was seen, and has asked anew
        _kept[self._key] = self._group
        if len(_kept) > KEPT:
            _kept.pop(next(iter(_kept))).close()
