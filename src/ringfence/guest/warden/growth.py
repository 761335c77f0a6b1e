"""What a box adds to shared folders of the host, watched by a process of its own: a walk takes long, and a disk can hang.

Two steps. What the file systems have given out since the last walk bounds what the box can have taken, and costs one call to
ask; only where that could exceed what is left are the folders walked, for a tenth of the time.
"""

import os
import signal
import stat
import time

from ringfence.guest import kernel
from ringfence.guest.warden import tree, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOONEST, TICK, LATEST = 0.02, 0.2, 1.0
"""Seconds between two looks: at least, at most while little is left or where nothing was written meanwhile, and at most at all."""
RATES = (1 << 30, 200_000)
"""Bytes and files that a box is expected to add in a second at most: the next look comes when it could have reached its cap."""
DUTY, BLIND = 0.1, 0.02
"""Of the time for walks; the second where a file system does not say what it has given out."""
SAVED = 3.0
"""Seconds of walking that are saved up at most, and there at the start: the first walks come when they are wanted."""
SETTLING = 0.3
"""Seconds that what was told to end has before it is looked at again."""
MAX_DESCRIPTORS = 20_000
UNLIMITED = float("inf")
CAPS = (b"disk", b"inodes")


class Growth:
    """The looks at one box, which hold its caps of bytes and of files. private: folders of its file systems in memory.

    Settings: folders (each path, device, inode), disk and inodes (0: no cap), since (ns since the epoch).
    """

    def __init__(self, guest: int, private: "list[int]", settings: "dict[str, Any]") -> None:
        self.guest, self.private = guest, private
        self.roots = [opened(*folder) for folder in settings["folders"]]
        self.devices = {os.fstat(root).st_dev: root for root in self.roots}
        self.limits = [settings[name] or UNLIMITED for name in ("disk", "inodes")]
        self.allowed = list(self.limits)  # over its cap a box may shrink and not grow
        self.in_memory = held(self.private)
        before = held(self.devices.values())
        found = usage.Walk(UNLIMITED, UNLIMITED, settings["since"] - usage.COARSE_NS).count(self.roots)
        now = held(self.devices.values())
        self.hidden = found.hidden
        # What went away before it was counted is taken to have been the box's to remove.
        self.base = [there + max(0, a - b) for there, a, b in zip((found.size, found.files), before, now, strict=True)]
        self.grown = [0, 0]
        self.last = now
        self.marks = [min(pair) for pair in zip(before, now, strict=True)]
        self.blind = settings["inodes"] and any(not os.fstatvfs(root).f_files for root in self.roots)
        self.saved, self.asked = SAVED, time.monotonic()

    def look(self) -> "tuple[float, list[tuple[bytes, int, int]]]":
        """Seconds until the next look, and each cap that is exceeded: its name, its limit, what was found at least."""
        given_out = held(self.devices.values())
        in_memory = [now - before for now, before in zip(held(self.private), self.in_memory, strict=True)]
        self.marks = [min(pair) for pair in zip(self.marks, given_out, strict=True)]
        taken = [sum(parts) for parts in zip(self.grown, in_memory, strict=True)]
        left = [self.allowed[kind] - taken[kind] - (given_out[kind] - self.marks[kind]) for kind in (0, 1)]
        now = time.monotonic()
        quiet, self.last = given_out == self.last, given_out
        if min(left) >= 0 and not self.blind:
            soon = min(room / rate for room, rate in zip(left, RATES, strict=True))
            return min(LATEST, max(TICK if quiet else SOONEST, soon)), []
        duty = BLIND if self.blind else DUTY
        self.saved, self.asked = min(SAVED, self.saved + (now - self.asked) * duty), now
        if self.saved <= 0 or (self.blind and self.saved < SAVED):
            return min(TICK, max(SOONEST, -self.saved / duty)), []
        taken = self._taken(given_out, in_memory, self.allowed)
        exceeded = [kind for kind in (0, 1) if taken[kind] > self.allowed[kind]]
        self.saved -= time.monotonic() - now
        return SOONEST, [(CAPS[kind], int(self.limits[kind]), taken[kind]) for kind in exceeded]

    def settle(self) -> None:
        """What is there now, after something was ended for it, may stay."""
        in_memory = [now - before for now, before in zip(held(self.private), self.in_memory, strict=True)]
        taken = self._taken(held(self.devices.values()), in_memory, [UNLIMITED, UNLIMITED])
        self.allowed = [max(pair) for pair in zip(self.limits, taken, strict=True)]

    def _taken(self, given_out: "list[int]", in_memory: "list[int]", most: "list[float]") -> "list[int]":
        """Bytes and files that the box has added, by a walk; at least what is more than most."""
        size, files = (self.base[kind] + most[kind] - in_memory[kind] for kind in (0, 1))
        walk = usage.Walk(size, files)
        found = walk.count(self.roots)
        if not walk.over:
            self._nameless(walk)
        since = [now - mark for now, mark in zip(given_out, self.marks, strict=True)]
        grown = [now - before for now, before in zip((found.size, found.files), self.base, strict=True)]
        if found.hidden > self.hidden and not walk.over:
            # It closes folders to us: what the file systems have given out counts as its own.
            grown = [max(now, before + more) for now, before, more in zip(grown, self.grown, since, strict=True)]
        self.grown, self.marks = grown, given_out
        taken = [max(0, sum(parts)) for parts in zip(grown, in_memory, strict=True)]
        self.allowed = [max(limit, min(pair)) for limit, *pair in zip(self.limits, self.allowed, taken, strict=True)]
        return taken

    def _nameless(self, walk: usage.Walk) -> None:
        left = MAX_DESCRIPTORS
        for pid in tree.Tree(self.guest).processes:
            left -= usage.nameless(pid, set(self.devices), walk, left)


def held(folders: "Any") -> "list[int]":
    """Bytes and files that file systems hold."""
    found = [os.fstatvfs(folder) for folder in folders]
    return [
        sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in found),
        sum(each.f_files - each.f_ffree for each in found),
    ]


def opened(path: bytes, device: int, inode: int) -> int:
    """A descriptor of a folder or file, which must be the one that the box has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (device, inode) or not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise OSError(116, "the folder was replaced")  # ESTALE
    return descriptor


def start(tell: int, guest: int, private: "list[int]", settings: "dict[str, Any]") -> None:
    """Never returns: looks until the warden, whose fork this is, has gone or ends it. tell: where exceeded caps are written to."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kept = [os.dup(descriptor) for descriptor in (tell, *private)]
        for at, descriptor in enumerate(kept):
            os.dup2(descriptor, at, inheritable=False)
        kernel.close_from(len(kept))
        growth = Growth(guest, list(range(1, len(kept))), settings)
        while True:
            pause, exceeded = growth.look()
            for cap, limit, taken in exceeded:
                os.write(0, b"%b %d %d\n" % (cap, limit, taken))
            if exceeded:
                time.sleep(SETTLING)
                growth.settle()
            time.sleep(pause)
    finally:
        os._exit(1)
