"""Refusing caps of which the kernel counts no refusal: descriptors of a process, and processes of a box without a control group.

What is told is that the cap was met: so many were in use at one moment that the kernel refuses the next. It is found by looking,
so what is at its cap between two looks only is not told. A box in which something has come half the way is looked at
again and again for a moment: a program that fills its table and empties it at once is full for some microseconds each time.
"""

import os
import time

from ringfence.guest.warden import tree
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVERY, NEAR = 0.5, 0.1
"""Seconds between two looks, those of all boxes together; and where something has come half the way."""
MOMENT = 0.001
"""Seconds that a box is looked at again and again, once in NEAR."""
SHARE = 20
"""As of memory.Monitor: a look that took n seconds is followed by no other for SHARE times n."""
MOST = 4
"""Processes whose descriptors are looked at again and again, those that have most."""


class Reached(Watcher):
    """Settings: open_files of a process, processes of all commands (0: no cap, or something counts it), by (of the second)."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.files, self.tasks, self.by = box, settings["open_files"], settings["processes"], settings["by"]
        self.due = 0.0
        self._told: set[tuple[bytes, int]] = set()  # the cap, and the run that met it

    def act(self, now: float) -> None:
        if self.box.idle():
            self._told.clear()
            self.due = (now // EVERY + 1) * EVERY
            return
        began = time.thread_time()
        found = self.box.tree()
        near = self._descriptors(found) if self.files else False
        if self.tasks and (b"processes", 0) not in self._told and 2 * len(found.processes) >= self.tasks:
            near = True
            self._processes()
        pause = NEAR if near else EVERY
        self.due = max((now // pause + 1) * pause, time.monotonic() + (time.thread_time() - began) * SHARE)

    def _descriptors(self, found: tree.Tree) -> bool:
        """Whether a process that is not told of yet has come half the way."""
        held = {pid: in_use(f"/proc/{pid}/fd") for pid in found.processes}
        close = sorted((pid for pid, count in held.items() if 2 * count >= self.files), key=held.__getitem__, reverse=True)[:MOST]
        left = []
        for pid in close:
            run = found.run_of(pid)
            if (b"open_files", run) in self._told:
                continue
            if fills(pid, self.files, MOMENT / len(close)):
                self._told.add((b"open_files", run))
                self.box.record(b"open_files", self.files, self.files, b"monitor", run=run)
            else:
                left.append(pid)
        return bool(left)

    def _processes(self) -> None:
        end = time.monotonic() + MOMENT
        while time.monotonic() < end:
            if (count := alive_together(self.box.tree())) >= self.tasks:
                self._told.add((b"processes", 0))  # of all runs of the box together: whose was the last, nobody can tell
                self.box.record(b"processes", self.tasks, count, self.by)
                return


def in_use(folder: str) -> int:
    """How many descriptors a process has, by the size of its folder of them; 0 before Linux 6.2, and where it has ended."""
    try:
        return os.stat(folder).st_size
    except OSError:
        return 0


def fills(pid: int, limit: int, seconds: float) -> bool:
    """Whether a process is seen with as many descriptors as it may have, twice, by a limit that is not of its own making."""
    seen = 0
    try:
        folder = os.open(f"/proc/{pid}/fd", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        end = time.monotonic() + seconds
        while seen < 2 and time.monotonic() < end:
            for _ in range(16):
                seen += os.fstat(folder).st_size == limit
    except OSError:
        pass  # it has ended
    finally:
        os.close(folder)
    return seen > 1 and limit_of(pid) == limit


def limit_of(pid: int) -> int:
    """How many descriptors a process may have now; 0 where it has ended (proc_pid_limits(5))."""
    for line in tree.read(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max open files"):
            return int(line.split()[3])
    return 0


def alive_together(found: tree.Tree) -> int:
    """How many tasks of commands there were at one moment: those seen in a walk that are all still there at its end."""
    threads: list[str] = []
    for pid in found.processes:
        if pid != found.template:
            folder = f"/proc/{pid}/task"
            try:
                names = [str(pid)] if os.stat(folder).st_nlink == 3 else os.listdir(folder)
            except OSError:
                continue
            threads += [f"{folder}/{name}" for name in names]
    return sum(map(os.path.exists, threads))
