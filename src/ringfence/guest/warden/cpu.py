"""The CPU time of runs: of a run's whole tree, what has ended and detached itself too.

What all of a box has used is counted by its control group, or else added up from its processes, where those are missing that
nobody waited for (wait(2), SIGCHLD ignored). All of it is the run's that is under way, less what the box's own processes
used; where the guest says that there is another, or something that an earlier one left, each is counted by its own processes. A
run is looked at next when it could have reached its cap on every processor.
"""

import os
import time

from ringfence.guest.warden import tree
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
SOONEST, LATEST = 0.01, 1.0
IDLE = 0.25
"""Seconds between two looks at an idle box with a small cap; with a larger one a tenth of the time that it lasts, up to LATEST."""
SHARE = 20
"""As of memory.Monitor: a look that took n seconds is followed by no other for SHARE times n."""


class Times:
    """What /proc/PID/stat says of a process: its session and start; its time and that of what it waited for, in microseconds."""

    __slots__ = ("own", "session", "started", "waited")

    def __init__(self, pid: int) -> None:
        fields = tree.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        numbers = [int(fields[at]) for at in (3, 19, 11, 12, 13, 14)] if len(fields) > 19 else [0] * 6
        self.session, self.started = numbers[:2]
        self.own, self.waited = (sum(part) * 1_000_000 // TICKS for part in (numbers[2:4], numbers[4:]))


class Cpu(Watcher):
    """Settings: limit, in microseconds. With a descriptor cpu_group of the folder of a group that counts."""

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box, self.limit = box, settings["limit"]
        self.due = 0.0
        self.by, self._read, self._counter = b"monitor", _nothing, -1
        if b"cpu_group" in box.given:
            self.by, name, self._read = (
                (b"cgroup v2 cpu.stat", "cpu.stat", _of_stat)
                if settings["unified"]
                else (b"cgroup v1 cpuacct", "cpuacct.usage", _of_usage)
            )
            self._counter = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=box.given[b"cpu_group"])
        self._processors = os.cpu_count() or 1
        self._bases: dict[int, int] = {}  # what the box had used when a run began, by the first process of each on the host
        self._ended: set[int] = set()
        self._template = (0, 0)

    def act(self, now: float) -> None:
        began = time.monotonic()
        if self.box.template != self._template[0]:
            self._template = (self.box.template, self.box.tree().template)
        if tree.is_idle(self.box.pid, self._template[1]):
            self._bases.clear()
            self._ended.clear()
            self.box.contested = self.box.always_contested
            self.due = _together(now, max(IDLE, min(LATEST, self.limit / 1e7 / self._processors)))
            return
        most = self._look()
        spent = time.monotonic() - began
        left = (self.limit - most) / 1e6 / self._processors
        pause = max(SOONEST, min(LATEST, left), spent * SHARE)
        self.due = _together(now, pause) if pause == LATEST else now + pause

    def _look(self) -> int:
        """The most that a run has used; one that has used more than the limit is ended."""
        found = None
        tops = self._tops()
        runs = {pid: times for pid, times in tops.items() if times.session == pid and pid not in self._ended}
        if self._counter < 0 or self.box.contested or not self._bases.keys() >= runs.keys():
            found = self.box.tree()
        total = self._total(found)
        for pid in runs.keys() - self._bases.keys():
            assert found is not None
            self._bases[pid] = total - _of_run(pid, found, tops)
        if not runs:
            return 0
        if self.box.contested and found is not None:
            used = {pid: _of_run(pid, found, tops) for pid in runs}
        else:
            first = min(runs, key=lambda pid: (runs[pid].started, pid))  # another that leads a session is of it, and has left it
            used = {first: total - self._bases[first]}
        for pid, spent in used.items():
            if spent >= self.limit:
                self._end(pid, spent)
        return max(used.values())

    def _end(self, pid: int, spent: int) -> None:
        inner = tree.inner_pid(pid, tree.level_of(self.box.pid))
        self._ended.add(pid)
        if inner:
            self.box.record(b"cpu", self.limit, spent, self.by, run=inner, ends=True)
            self.box.end_run(inner, b"cpu")

    def _tops(self) -> "dict[int, Times]":
        """The children of the guest and of the template: first processes of runs, and orphans."""
        template = self._template[1]
        pids = tree.children(self.box.pid) + (tree.children(template) if template else [])
        return {pid: Times(pid) for pid in pids if pid != template}

    def _total(self, found: "tree.Tree | None") -> int:
        """Microseconds that all but the guest and the template have used."""
        own = [Times(pid) for pid in (self.box.pid, self._template[1]) if pid]
        if self._counter >= 0:
            return self._read(self._counter) - sum(times.own for times in own)
        assert found is not None
        live = [Times(pid) for pid in found.processes if pid != self._template[1]]
        return sum(times.waited for times in own) + sum(times.own + times.waited for times in live)

    def close(self) -> None:
        if self._counter >= 0:
            os.close(self._counter)


def _together(now: float, pause: float) -> float:
    """A time at most pause from now, the same for all boxes that wait as long: to wake up costs more than a look."""
    return (now // pause + 1) * pause


def _of_run(first: int, found: tree.Tree, tops: "dict[int, Times]") -> int:
    """Microseconds of what is below the first process of a run, and below what has left its parents but not its session."""
    roots = {pid for pid, times in tops.items() if pid == first or times.session == first}
    members = (Times(pid) for pid in {*roots, *(pid for pid in found.processes if found.top_of(pid) in roots)})
    return sum(times.own + times.waited for times in members)


def _nothing(counter: int) -> int:
    return 0


def _of_usage(counter: int) -> int:
    return int(os.pread(counter, 32, 0)) // 1000


def _of_stat(counter: int) -> int:
    return int(os.pread(counter, 256, 0).split()[1])  # usage_usec, the first line
