"""The caps of disk and inodes: what runs is ended where a box has added more, or has filled its own folders where so asked."""

import os
import signal

from ringfence.guest.warden import growth
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK, SOONEST = 0.2, 0.01
RATES = (1 << 30, 200_000)
"""Bytes and files that a box is expected to add to its memory in a second at most."""


class Monitor(Watcher):
    """Looks at shared folders, by a process of its own. Settings: those of growth.Growth."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box = box
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.descriptors = (self._reading,)
        private = [box.given[name] for name in (b"scratch",) if name in box.given]
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for one that a disk holds up
        pid = os.fork()
        if not pid:
            growth.start(writing, box.pid, private, settings)
        os.close(writing)
        self._looker = os.pidfd_open(pid)

    def act(self, now: float) -> None:
        said = os.read(self._reading, 4096)
        if not said:
            raise OSError("the process that looks at its folders has ended")
        for line in said.splitlines():
            cap, limit, taken = line.split()
            self.box.end_all(cap, int(limit), int(taken), b"monitor")

    def close(self) -> None:
        os.close(self._reading)
        try:
            signal.pidfd_send_signal(self._looker, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self._looker)


class Full(Watcher):
    """Looks whether the private folders are full. Settings: disk and inodes (0: no cap), ends: for which what runs is ended."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.ends = box, settings["ends"]
        self.limits = (settings["disk"], settings["inodes"])
        self.due = 0.0
        self._full = [False, False]
        self._sure = False

    def known(self, cap: bytes) -> None:
        if cap in growth.CAPS:
            self._full[growth.CAPS.index(cap)] = True

    def act(self, now: float) -> None:
        found = os.fstatvfs(self.box.given[b"scratch"])
        left = (found.f_bfree * found.f_frsize, found.f_ffree)
        sizes = (found.f_blocks * found.f_frsize, found.f_files)
        new = [kind for kind in (0, 1) if not left[kind] and not self._full[kind]]
        if new and not self._sure:
            self._sure, self.due = True, 0.0  # once more: what the caller knows of it may be on the way
            return
        self._sure = False
        for kind in new:
            limit = min(sizes[kind], self.limits[kind] or sizes[kind])  # the size holds what was there at the start too
            act = self.box.end_all if growth.CAPS[kind] in self.ends else self.box.record
            act(growth.CAPS[kind], limit, limit, b"tmpfs")
        self._full = [not each for each in left]
        if self.box.idle():
            self.due = (now // TICK + 1) * TICK  # all idle boxes together
        else:
            soon = min(room / rate for room, rate in zip(left, RATES, strict=True) if room) if any(left) else TICK
            self.due = now + min(TICK, max(SOONEST, soon))
