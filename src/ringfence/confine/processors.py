"""The processors of a box: which ones it runs on, and what its programs are told of them.

A cap of cores is met by affinity: the box runs on so many processors, rounded up, which its programs find in every place where
runtimes look. Without that a build starts a job for each processor of the host, under a cap of two.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from ringfence.confine.plan import Step
from ringfence.outcome import Enforced, Level

ONLINE = "/sys/devices/system/cpu/online"
"""What sysconf(3) counts for _SC_NPROCESSORS_ONLN, and so os.cpu_count() of Python before 3.13."""
CPUINFO, STAT = "/proc/cpuinfo", "/proc/stat"


class Spread:
    """How many live boxes of this process run on each processor, so that the next one gets those that have the fewest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken: Counter[int] = Counter()
        self._first = os.getpid()  # where two have as few: another process begins elsewhere

    def take(self, cores: float) -> tuple[int, ...]:
        """Processors for a box of so many cores, of those that the caller may use itself."""
        own = sorted(os.sched_getaffinity(0))
        with self._guard:
            self._first += 1
            order = [own[(self._first + at) % len(own)] for at in range(len(own))]
            chosen = sorted(sorted(order, key=lambda cpu: self._taken[cpu])[: math.ceil(cores)])
            self._taken.update(chosen)
        return tuple(chosen)

    def give_back(self, chosen: Sequence[int]) -> None:
        with self._guard:
            self._taken.subtract(chosen)


SPREAD = Spread()


class Processors:
    """The processors of a box that has a cap of cores, until it ends."""

    def __init__(self, cores: float) -> None:
        self.cores = cores
        self.chosen = SPREAD.take(cores)
        self._taken = True

    def release(self) -> None:
        """Safe to call again."""
        if self._taken:
            self._taken = False
            SPREAD.give_back(self.chosen)

    def offer(self, *, confined: bool, quota: bool) -> dict[str, Enforced]:
        """How far affinity holds the cap. quota: a control group holds it, and affinity is what programs see of it."""
        notes = [f"processors {listed(self.chosen)}"]
        if not quota and len(self.chosen) > self.cores:
            notes.append(f"whole ones, where {self.cores:g} were asked for")
        if not quota and not confined:
            notes.append("a program can give itself more")
        if not confined:
            notes.append("what counts them in /proc and /sys finds all of the host's")
        level = Level.FULL if confined and len(self.chosen) <= self.cores else Level.PARTIAL
        return {"cpu_share": Enforced(level, "affinity", "; ".join(notes))}

    def steps(self) -> Iterator[Step]:
        """What a box is shown in place of the host's processors: nothing where it has all of them.

        /proc/stat is as it was when the box was made: its times do not go on.
        """
        if _read(ONLINE).strip() == listed(self.chosen):
            return
        if os.path.exists(ONLINE):
            yield _instead(ONLINE, f"{listed(self.chosen)}\n")
        for path, content in ((CPUINFO, _cpuinfo(_read(CPUINFO), self.chosen)), (STAT, _stat(_read(STAT), self.chosen))):
            if content:
                yield _instead(path, content)


def _instead(path: str, content: str) -> Step:
    return Step("replace", path, 0o444, content.encode())


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def listed(chosen: Sequence[int]) -> str:
    """Processors as the kernel lists them, `0-2,5` (cpuset(7), list format)."""
    ranges: list[list[int]] = []
    for cpu in sorted(chosen):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def _cpuinfo(text: str, chosen: Sequence[int]) -> str:
    """The paragraphs of the chosen processors, and those that are about none."""
    kept = []
    for paragraph in text.split("\n\n"):
        name, _, number = paragraph.partition("\n")[0].partition(":")
        if name.strip() != "processor" or not number.strip().isdigit() or int(number) in chosen:
            kept.append(paragraph)
    return "\n\n".join(kept)


def _stat(text: str, chosen: Sequence[int]) -> str:
    """proc_stat(5): the lines of the chosen processors and their sum. Of interrupts only the number of all."""
    each: list[list[int]] = []
    rest: list[str] = []
    for line in text.splitlines():
        name, *values = line.split()
        if name in ("intr", "softirq"):
            rest.append(f"{name} {values[0]}")
        elif not name.startswith("cpu"):
            rest.append(line)
        elif name != "cpu" and int(name[3:]) in chosen:
            each.append([int(name[3:]), *map(int, values)])
    if not each:
        return ""
    total = [sum(column) for column in zip(*(values for _, *values in each), strict=True)]
    lines = [["cpu ", *total], *([f"cpu{number}", *values] for number, *values in each)]
    return "\n".join([*(" ".join(map(str, line)) for line in lines), *rest, ""])
