"""What the kernel accounts to a run that nothing caps: /proc/PID/stat and status of its whole tree, while it is watched."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from truth.adapters.outside import ENVIRONMENT, end
from truth.case import Case
from truth.place import Place

TICKS = os.sysconf("SC_CLK_TCK")
WATCH_SECONDS = 20.0


@dataclass(frozen=True)
class Account:
    """What a tree took: CPU seconds, the most memory at once, bytes and files of its folder, and whether it still ran."""

    cpu_seconds: float
    peak_bytes: int
    disk_bytes: int
    files: int
    alive: bool


def account(case: Case, place: Place) -> Account:
    """Run a case without a cap until it has done what its cap is about, or ended, or time is up."""
    assert "process" in case.tiers
    folder = place.lay(case, place.workspace())
    enough = {"cap wall": case.timeout or 0.4, "cap disk": 5.0, "cap inodes": 5.0}.get(case.truth.outcome, WATCH_SECONDS)
    cpu_enough = case.limits.get("cpu_seconds", 60) if case.truth.outcome == "cap cpu" else 1e9
    bytes_enough = case.limits.get("memory_bytes", 1 << 60) if "memory_bytes" in case.limits else 1 << 60
    environment = {**ENVIRONMENT, "HOME": str(folder)}
    silent = subprocess.DEVNULL
    process = subprocess.Popen(
        place.argv(case), cwd=folder, env=environment, stdin=silent, stdout=silent, stderr=silent, start_new_session=True
    )
    until = time.monotonic() + enough
    spent, peak = 0.0, 0
    while process.poll() is None and time.monotonic() < until and spent < float(str(cpu_enough)) and peak <= int(str(bytes_enough)):
        tree = list(below(process.pid))
        spent, peak = max(spent, sum(map(_cpu, tree))), max(peak, sum(map(_resident, tree)))
        time.sleep(0.01)
    alive = process.poll() is None
    end(process)
    process.wait()
    made = [os.lstat(folder / name) for name in os.listdir(folder)]
    return Account(spent, peak, sum(each.st_blocks * 512 for each in made), len(made), alive)


def below(pid: int) -> Iterator[int]:
    """A process and all that descends from it."""
    waiting = [pid]
    while waiting:
        yield (next_ := waiting.pop())
        try:
            for task in os.listdir(f"/proc/{next_}/task"):
                with open(f"/proc/{next_}/task/{task}/children") as children:
                    waiting += map(int, children.read().split())
        except OSError:
            continue


def _cpu(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS  # utime, stime, and those of children that were waited for


def _resident(pid: int) -> int:
    """What it has of memory, and what lies in files without a name that it holds open."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            held = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for number in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith("/memfd:"):
                held += os.stat(f"/proc/{pid}/fd/{number}").st_blocks * 512
    except (OSError, IndexError):
        return 0
    return held
