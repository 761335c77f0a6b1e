"""Whose a connection is, where several runs of a box are under way: by its socket, as long as a process holds it.

Looked up when it is told, while its program waits for an answer or reads one. What is gone by then is nobody's that is known:
nothing is guessed. A connection that the kernel refused has left its tables before anybody is told.
"""

from __future__ import annotations

import os

MOST = 4096
"""Processes that are looked through."""


def runs_of(guest: int, source: int) -> frozenset[int]:
    """The run whose connection was made from a port of TCP, by what it may be known by: pids as its box counts them.

    guest: the first process of the box. Empty where nobody holds the socket any more. Raises nothing.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(guest, source)}
    if not sockets:
        return frozenset()
    for pid, above in _below(guest):
        if _holds(pid, sockets):
            return _known_by(pid, above)
    return frozenset()


def _inodes(guest: int, source: int) -> list[str]:
    """Of the sockets at a local port, as the box's own table has them (proc_net(5))."""
    port, found = f":{source:04X}", []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{guest}/net/{name}", encoding="ascii") as table:
                rows = [line.split() for line in table]
        except OSError:
            continue
        found += [row[9] for row in rows[1:] if row[1].endswith(port) and row[9] != "0"]
    return found


def _below(guest: int) -> list[tuple[int, int]]:
    """Every process of the box, with the child of its first process that it comes from."""
    found: list[tuple[int, int]] = []
    waiting = [(child, child) for child in _children(guest)]
    while waiting and len(found) < MOST:
        pid, above = waiting.pop()
        found.append((pid, above))
        waiting += [(child, above) for child in _children(pid)]
    return found


def _children(pid: int) -> list[int]:
    try:
        found = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                found += [int(each) for each in children.read().split()]
    except OSError:
        return []  # it has ended
    return found


def _holds(pid: int, sockets: set[str]) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(os.readlink(each.path) in sockets for each in descriptors)
    except OSError:
        return False  # it has ended, or is not to be looked into


def _known_by(pid: int, above: int) -> frozenset[int]:
    """The process that a run began with, and its session: one is what the run is known by (NSpid, NSsid: proc_pid_status(5))."""
    return frozenset(number for number in (_inner(above, "NSpid"), _inner(pid, "NSsid")) if number > 1)


def _inner(pid: int, name: str) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[-1]) for line in status if line.startswith(f"{name}:")), 0)
    except OSError:
        return 0
