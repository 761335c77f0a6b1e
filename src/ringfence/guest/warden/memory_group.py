"""The memory of a box, by its control group of version 1 (Documentation/admin-guide/cgroup-v1/memory.rst).

The kernel kills nothing there (oom_kill_disable): at the cap the box stands still, guest and all, and this process is told.
It reads only what no stopped process can hold up, and kills the largest until the box goes on.
"""

import os

from ringfence.guest.warden import measure, tree
from ringfence.guest.warden.memory import Monitor
from ringfence.guest.warden.watched import NEVER, Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AGAIN = 0.005
PATIENCE = 1.0
"""Seconds that a process which was killed has to be gone, before another is killed as well."""
SLACK = 4 << 20
"""How far below its limit a group can stand still: the largest charge that it waits for is a huge page, and what is kept ahead
of use for each processor is no more (mm/memcontrol.c: MEMCG_CHARGE_BATCH)."""


class Grouped(Monitor):
    """Settings: limit, in bytes. With a descriptor memory_group of the folder of the group."""

    by = b"cgroup v1 memory"

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        super().__init__(box, settings)
        self._group = box.given[b"memory_group"]
        self._control = self._open("memory.oom_control", os.O_RDONLY)
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.descriptors = (self._event,)
        self._until = 0.0
        registering = self._open("cgroup.event_control", os.O_WRONLY)
        try:
            os.write(registering, b"%d %d" % (self._event, self._control))
        finally:
            os.close(registering)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._group)

    def act(self, now: float) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass  # it was time, and nothing new has happened
        if b"under_oom 1" not in os.pread(self._control, 256, 0):
            self._dying.clear()
            self.due = NEVER
            return
        self.due = now + AGAIN
        found = self.box.tree()
        # One that is a zombie has given its memory back, and whoever waits for it may stand still itself.
        self._dying = {pid for pid in self._dying & found.processes.keys() if tree.parent_of(pid)}
        if self._dying and now < self._until:
            return
        used = self._usage()
        if used < self.limit - SLACK:
            return  # what was killed has given its memory back; those that stood still have not all been woken yet
        self._until = now + PATIENCE
        running = {found.run_of(pid) for pid in found.processes}
        self._victims = {run: count for run, count in self._victims.items() if run in running}
        self._breach(used, {pid: measure.resident(pid) for pid in found.processes if pid not in self._dying}, found)

    def _usage(self) -> int:
        descriptor = self._open("memory.usage_in_bytes", os.O_RDONLY)
        try:
            return int(os.read(descriptor, 32))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        os.close(self._control)
        os.close(self._event)
