"""The memory of a box, by its control group of version 2 (Documentation/admin-guide/cgroup-v2.rst): the kernel picks what ends.

It counts what it killed, and the caller reads that count. Here a run is ended whose second process was killed.
"""

import os

from ringfence.guest import kernel
from ringfence.guest.warden.memory import CAP, ENOUGH
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Killed(Watcher):
    """Settings: limit, in bytes. With a descriptor memory_group of the folder of the group."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.limit = box, settings["limit"]
        group = box.given[b"memory_group"]
        self._counts = os.open("memory.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=group)
        self._event = kernel.change_descriptor(b"/proc/self/fd/%d/memory.events" % group)
        self.descriptors = (self._event,)
        self._seen = self._count()
        self._victims: dict[int, int] = {}

    def act(self, now: float) -> None:
        try:
            os.read(self._event, 4096)
        except BlockingIOError:
            pass
        before, self._seen = self._seen, self._count()
        if self._seen == before:
            return
        found = self.box.tree()
        runs = {found.run_of(pid) for pid in found.processes} - {0}
        if len(runs) != 1:
            return  # whose it was is not known
        run = runs.pop()
        self._victims = {run: self._victims.get(run, 0) + self._seen - before}
        if self._victims[run] >= ENOUGH:
            self.box.record(CAP, self.limit, self.limit, b"cgroup v2 memory", run=run, ends=True)
            self.box.end_run(run, CAP)

    def _count(self) -> int:
        for line in os.pread(self._counts, 512, 0).splitlines():
            if line.startswith(b"oom_kill "):
                return int(line[9:])
        return 0

    def close(self) -> None:
        os.close(self._counts)
        os.close(self._event)
