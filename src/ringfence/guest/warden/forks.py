"""Forks that the kernel refused at the cap on processes, where a policy lets that end the run: counted by the control group."""

import os

from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK, BUSY = 0.2, 0.05
CAP = b"processes"


class Refused(Watcher):
    """Settings: limit, by (the mechanism). With a descriptor pids_events (Documentation/admin-guide/cgroup-v2.rst)."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.limit, self.by = box, settings["limit"], settings["by"]
        self.due = 0.0
        self._seen = self._read()
        self._sure = False

    def _read(self) -> int:
        for line in os.pread(self.box.given[b"pids_events"], 256, 0).splitlines():
            if line.startswith(b"max "):
                return int(line[4:])
        return 0

    def known(self, cap: bytes) -> None:
        if cap == CAP:
            self._seen = self._read()

    def act(self, now: float) -> None:
        if self._read() > self._seen and not self._sure:
            self._sure, self.due = True, 0.0  # once more: what the caller knows of it may be on the way
            return
        self._sure = False
        before, self._seen = self._seen, self._read()
        if self._seen > before:
            self.box.end_all(CAP, self.limit, self.limit, self.by)
        self.due = (now // TICK + 1) * TICK if self.box.idle() else now + BUSY
