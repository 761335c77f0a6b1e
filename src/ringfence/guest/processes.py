"""Which processes belong to a run, and how a tree of them ends.

A run's first process leads a session, and a session id other than one's own pid can only be inherited: so a process in that
session, or below one that is, belongs to the run. A daemon that left the session and lost its parents is an orphan of
the guest; it is counted to the run when it began after the run did and its session is nobody else's. Where two
runs overlapped in time that can take the other's daemon: the promise that a deadline leaves nothing comes first.
"""

import os
import signal
import time
from collections.abc import Callable

PATIENCE = 1.0
"""Seconds that ending a tree may take before the guest gives up on precision."""


class Process:
    """One line of /proc/PID/stat (proc_pid_stat(5)): fields 3, 4, 6 and 22, the start in clock ticks since boot."""

    __slots__ = ("parent", "pid", "session", "start", "state")

    def __init__(self, pid: int, line: bytes) -> None:
        fields = line.rpartition(b")")[2].split()
        self.pid, self.state = pid, fields[0]
        self.parent, self.session, self.start = int(fields[1]), int(fields[3]), int(fields[19])


def snapshot() -> dict[int, Process]:
    """Every process that /proc shows, zombies left out."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", 0) as stat:
                process = Process(int(name), stat.read(4096))
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
        if process.state not in (b"Z", b"X"):
            found[process.pid] = process
    return found


def below(found: dict[int, Process], roots: set[int]) -> set[int]:
    """The pids of roots and of everything that descends from them."""
    members = {pid for pid in roots if pid in found}
    children: dict[int, list[int]] = {}
    for process in found.values():
        children.setdefault(process.parent, []).append(process.pid)
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in members:
                members.add(child)
                queue.append(child)
    return members


def of_run(leader: int, since: int, others: set[int], spared: set[int], earlier: set[tuple[int, int]]) -> set[int]:
    """The live processes of the run that leader leads and that began at `since` (clock ticks since boot).

    others are the sessions of other runs, past and present; spared are the guest's own processes; earlier are the
    processes, by pid and start, that were there before the run: a tick is too long to tell them by their start alone.
    """
    found = snapshot()
    guest = os.getpid()
    mine = below(found, {guest}) - {guest}
    roots = {
        pid
        for pid in mine
        if pid == leader
        or (process := found[pid]).session == leader
        or (process.parent == guest and process.start >= since and process.session not in others and pid not in spared)
    }
    roots -= {pid for pid in roots if pid != leader and (pid, found[pid].start) in earlier}
    return (below(found, roots) & mine) - spared - others


def end(members: Callable[[], set[int]], reap: Callable[[], None]) -> bool:
    """Kill until two looks in a row find nothing; False if that took longer than PATIENCE."""
    limit = time.monotonic() + PATIENCE
    empty = 0
    pause = 0.0002
    while time.monotonic() < limit:
        pids = members()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        empty = 0 if pids else empty + 1
        if empty == 2:
            return True
        if pids:
            time.sleep(pause)  # a killed process is gone a moment after the signal
            pause = min(pause * 2, 0.01)
    return False


def end_orphans(keep: set[int]) -> None:
    """End what an unconfined box left to this subreaper: every descendant that is not below one of keep."""
    me = os.getpid()

    def members() -> set[int]:
        found = snapshot()
        return below(found, {me}) - below(found, keep & set(found)) - {me}

    def reap() -> None:
        for pid in children(me):
            if pid not in keep:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    end(members, reap)


def children(pid: int) -> list[int]:
    """The children of a process of one thread (needs CONFIG_PROC_CHILDREN)."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


# What is shown of them

MAX_DESCRIBED = 10_000
MAX_ARGUMENTS = 4096
"""Bytes of an argv that are shown: it can be 2 MiB long, and a process may write anything there once it runs."""
PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def describe(guest: int, spared: set[int], leaders: set[int]) -> list[dict[str, object]] | None:
    """Every process below the guest but those spared, zombies too; None where there are more than MAX_DESCRIBED.

    run is the first of leaders that the process is, descends from or shares a session with. Times are microseconds, that of
    the start since the epoch. Fields of stat: proc_pid_stat(5).
    """
    found: dict[int, tuple[bytes, list[bytes]]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", 0) as file:
                    head, _, tail = file.read(4096).rpartition(b")")
            except OSError:
                continue  # it ended while we looked
            found[int(name)] = (head.partition(b"(")[2], tail.split())
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    described: list[dict[str, object]] = []
    for pid, (command, fields) in found.items():
        line = [pid]
        while line[-1] in found and line[-1] != guest:
            line.append(int(found[line[-1]][1][1]))
        if line[-1] != guest or pid == guest or pid in spared:
            continue
        if len(described) == MAX_DESCRIBED:
            return None
        run = next((each for each in (*line, int(fields[3])) if each in leaders), 0)
        described.append(
            {
                "pid": pid,
                "parent": int(fields[1]),
                "name": command,
                "argv": _arguments(pid),
                "state": fields[0],
                "run": run,
                "rss": max(0, int(fields[21])) * PAGE,
                "cpu": (int(fields[11]) + int(fields[12])) * 1_000_000 // TICKS,
                "started": max(0, int((booted + int(fields[19]) / TICKS) * 1e6)),
            }
        )
    return described


def _arguments(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", 0) as file:
            line = file.read(MAX_ARGUMENTS).removesuffix(b"\0")
            return line.split(b"\0") if line else []  # a process that has ended has none
    except OSError:
        return []
