"""The control groups of a box: made below our own, entered before anything of the plan is done, taken away when the box has ended.

Version 2 has one group for all controllers, version 1 one for each hierarchy (cgroups(7)); which can be used is found by
using it, and a controller that nothing asks for gets no group. A name says whose a group is (a PID namespace, a process of
it and when that started), so that a later start removes what a caller left that was killed with everything of its.

A process is never moved from outside: that waits for a grace period of the kernel, 6 to 20 ms. The box's first process enters
by itself while it has one thread, which takes 30 us in version 1.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping

from ringfence.confine import cgroups
from ringfence.confine.cgroups import Hierarchy

PERIOD_US = 100_000
"""The period of a share of CPU time: the kernel's own default (Documentation/scheduler/sched-bwc.rst)."""
EMPTYING_SECONDS = 2.0
LEAST_ROOM_BYTES = 16 << 20
LEAST_OWN_BYTES = 128 << 20
"""What a box's own processes may take at least; with modules that programs find imported, as much again as its commands."""
KEPT = 8
"""Groups of ended boxes that the next ones enter: making one takes longer than entering it."""
KEPT_BYTES = 16 << 20
"""A group that the host still charges with more than this, for files that its box read or wrote, is not given to another box."""


COMMANDS = "commands"
"""The group within that of a box in version 1: what is capped counts there, and the box's own processes rest outside."""
BACKSTOP = "backstop"
"""Beside the controllers: a bound of all processes of a box, its own too."""
OWN, RESERVE = 2, 16
"""Processes of a box beside its commands: its first and the interpreter that programs are forked from; and what they may start."""


class Group:
    """A folder of one hierarchy, for one box. limits: its controllers, each with its value; None where it only counts."""

    __slots__ = ("folder", "limits", "refused", "unified")

    def __init__(self, folder: str, limits: Mapping[str, int | None], unified: bool) -> None:
        self.folder, self.limits, self.unified = folder, dict(limits), unified
        self.refused: tuple[str, ...] = ()  # the controller whose limit could not be set

    @property
    def has_room(self) -> bool:
        """Whether commands are in a group of their own. In version 2 a process that changes its group waits long."""
        return not self.unified and ("memory" in self.limits or "pids" in self.limits)

    @property
    def capped(self) -> str:
        """The folder where what is capped counts."""
        return f"{self.folder}/{COMMANDS}" if self.has_room else self.folder

    def write(self, name: str, value: int | str) -> None:
        write(f"{self.folder}/{name}", value)

    def tasks(self, folder: str) -> int:
        """The file by which a process of one thread enters: it writes 0."""
        return os.open(f"{folder}/{'cgroup.procs' if self.unified else 'tasks'}", os.O_WRONLY | os.O_CLOEXEC)

    def make(self) -> None:
        """Make the folder and write every limit. Raises OSError."""
        os.mkdir(self.folder)
        if self.has_room:
            os.mkdir(self.capped)
        for controller, value in self.limits.items():
            if value is not None:
                self.refused = (controller,)
                _SETTERS[controller](self, value)
        self.refused = ()

    def end(self) -> bool:
        """Kill what is in it, and whether it is empty then."""
        until = time.monotonic() + EMPTYING_SECONDS
        while pids := [pid for folder in (self.folder, f"{self.folder}/{COMMANDS}") for pid in _pids(folder)]:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass  # gone, or not ours to end: then it is not empty at the end
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True

    @property
    def version(self) -> str:
        """As an enforcement names it."""
        return "cgroup v2" if self.unified else "cgroup v1"


def write(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _set_memory(group: Group, value: int) -> None:
    if group.unified:
        group.write("memory.max", value)
        _set_where_there(f"{group.folder}/memory.swap.max", 0)
        return
    # Who watches it is told at the cap and picks what ends. Beyond it the kernel stops what touches memory, but lets calls fail
    # that write to memory files, which nobody sees: for those there is room until what watches has acted.
    most = value + max(value >> 3, LEAST_ROOM_BYTES)
    write(f"{group.capped}/memory.limit_in_bytes", most)
    _set_where_there(f"{group.capped}/memory.memsw.limit_in_bytes", most)  # memory and swap together
    write(f"{group.capped}/memory.oom_control", 1)
    # Around it a bound for the box's own processes, which nothing of a command's is charged to: the kernel kills there.
    group.write("memory.limit_in_bytes", value + max(value, LEAST_OWN_BYTES))


def _set_where_there(path: str, value: int) -> None:
    try:
        write(path, value)
    except FileNotFoundError:
        pass  # a kernel without swap, or that does not count it


def _set_processes(group: Group, value: int) -> None:
    if group.has_room:
        write(f"{group.capped}/pids.max", value)
    group.write("pids.max", value + OWN + (RESERVE if group.has_room else 0))


def _set_backstop(group: Group, value: int) -> None:
    group.write("pids.max", value)


def _set_share(group: Group, value: int) -> None:
    if group.unified:
        group.write("cpu.max", f"{value} {PERIOD_US}")
    else:
        group.write("cpu.cfs_period_us", PERIOD_US)
        group.write("cpu.cfs_quota_us", value)


_SETTERS = {"memory": _set_memory, "pids": _set_processes, BACKSTOP: _set_backstop, "cpu": _set_share}


class Groups:
    """The groups of one box. missing: why a controller that was wanted has none, in words."""

    def __init__(self, groups: list[Group], missing: Mapping[str, str]) -> None:
        self.all, self.missing = groups, missing
        self.prefixes: tuple[str, ...] = ()  # how the paths of all that this process makes begin
        self._open: list[int] = []

    def hold(self, descriptor: int) -> int:
        """Close it with the groups."""
        self._open.append(descriptor)
        return descriptor

    def of(self, controller: str) -> Group | None:
        return next((group for group in self.all if controller in group.limits), None)

    @property
    def room(self) -> int:
        """How many of them have a group of commands within."""
        return sum(group.has_room for group in self.all)

    @property
    def shielded(self) -> bool:
        """Whether the kernel picks what ends at the cap on memory: in version 2 it does."""
        memory = self.of("memory")
        return memory is not None and memory.unified

    def entries(self) -> list[int]:
        """Descriptors for the first process of the box, which enters by them before it does anything else: those that have a group
        of commands within, the groups of commands, the others."""
        room = [group for group in self.all if group.has_room]
        folders = [(group, group.folder) for group in room] + [(group, group.capped) for group in room]
        folders += [(group, group.folder) for group in self.all if not group.has_room]
        return [group.tasks(folder) for group, folder in folders]

    def release(self) -> None:
        """The box has ended: what is still in its groups is killed, they are removed or kept for another. Safe to call again."""
        while self._open:
            os.close(self._open.pop())
        groups, self.all = self.all, []
        for group in groups:
            PLACES.give_back(group)


class Places:
    """Where this process can make groups, found at the first box; and those that it has made."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._prefix = ""
        self._prefixes: tuple[str, ...] = ()
        self._made = 0
        self._mounted: list[Hierarchy] = []
        self._lent: list[Group] = []
        self._kept: list[Group] = []
        self._busy: list[Group] = []  # given back while something in them was still dying

    def take(self, wanted: Mapping[str, int | None]) -> Groups:
        """Groups with these limits; a controller that cannot be had here is told in missing. Never raises for that."""
        with self._guard:
            if not self._prefix:
                self._look()
            self._remove_busy()
            found: list[Group] = []
            missing: dict[str, str] = {}
            for hierarchy, limits in self._by_hierarchy(wanted, missing):
                found += self._take(hierarchy, limits, missing)
            self._lent += found
            groups = Groups(found, missing)
            groups.prefixes = self._prefixes
            return groups

    def _by_hierarchy(
        self, wanted: Mapping[str, int | None], missing: dict[str, str]
    ) -> Iterator[tuple[Hierarchy, dict[str, int | None]]]:
        """Each hierarchy that is to be used, with what is wanted of it."""
        chosen: dict[str, tuple[Hierarchy, dict[str, int | None]]] = {}
        for controller, value in wanted.items():
            kernels = "pids" if controller == BACKSTOP else controller
            place = next((each for each in self._mounted if kernels in each.controllers), None)
            if place is None:
                missing[controller] = "no hierarchy of control groups here has it for us"
            else:
                chosen.setdefault(place.group, (place, {}))[1][controller] = value
        return iter(chosen.values())

    def _take(self, place: Hierarchy, limits: dict[str, int | None], missing: dict[str, str]) -> list[Group]:
        """One group, kept or made; none where the kernel refuses it, which then holds for this process."""
        for at, kept in enumerate(self._kept):
            if kept.limits == limits and os.path.dirname(kept.folder) == place.group:
                return [self._kept.pop(at)]
        self._made += 1
        group = Group(f"{place.group}/{self._prefix}{self._made}", limits, place.unified)
        try:
            group.make()
            return [group]
        except OSError as error:
            _remove(group.folder)
            refused = group.refused or tuple(limits)
            missing.update(dict.fromkeys(refused, f"{error.filename or group.folder}: {error.strerror}"))
            left = {controller: value for controller, value in limits.items() if controller not in refused}
            return self._take(place, left, missing) if left else []

    def give_back(self, group: Group) -> None:
        """Of a box that has ended."""
        if group not in self._lent:
            return  # lent by the process that this one was forked from
        empty = group.end()
        with self._guard:
            self._lent.remove(group)
            if empty and len(self._kept) < KEPT and _is_clean(group):
                self._kept.append(group)
            elif not _remove(group.folder):
                self._busy.append(group)

    def _remove_busy(self) -> None:
        self._busy = [group for group in self._busy if not _remove(group.folder)]

    def _look(self) -> None:
        """Find the hierarchies, and remove what dead callers left in them."""
        namespace = os.stat("/proc/self/ns/pid").st_ino
        self._prefix = f"ringfence-{namespace}-{os.getpid()}-{_started(os.getpid())}-"
        first: list[Hierarchy] = []
        last: list[Hierarchy] = []
        for each in cgroups.hierarchies():
            if each.unified:
                place = _handing_on(each)
                # Without a controller it can only count CPU time, which version 1 does at a smaller price.
                (first if place.controllers - {"cpuacct"} else last).append(place)
            else:
                last.insert(0, each)
        self._mounted = [*first, *last]
        for each in self._mounted:
            _reclaim(each.group, namespace)
        self._prefixes = tuple(f"{each.group}/{self._prefix}" for each in self._mounted)

    def end(self) -> None:
        """Of the process: all its groups are removed. Boxes that are still open have ended, or end with them."""
        with self._guard:
            for group in (*self._lent, *self._kept, *self._busy):
                group.end()
                _remove(group.folder)
            self._lent, self._kept, self._busy = [], [], []

    def forget(self) -> None:
        """In a fork: the groups are its parent's."""
        self._begin()


def _handing_on(hierarchy: Hierarchy) -> Hierarchy:
    """Where in version 2 groups with controllers can be made: in our own, or in the nearest above that is ours and hands some on.

    A group that holds processes hands none on, but for the root (cgroups(7), "no internal processes").
    """
    group = hierarchy.group
    while True:
        controllers = set(_words(f"{group}/cgroup.subtree_control"))
        if controllers and os.access(group, os.W_OK) and os.access(f"{group}/cgroup.procs", os.W_OK):
            return Hierarchy(group, hierarchy.mount, frozenset((*controllers, "cpuacct")), unified=True)
        if group == hierarchy.mount or len(group) < 2:
            return Hierarchy(hierarchy.group, hierarchy.mount, frozenset(("cpuacct",)), unified=True)
        group = os.path.dirname(group)


def _words(file: str) -> list[str]:
    try:
        with open(file) as opened:
            return opened.read().split()
    except OSError:
        return []


def _pids(folder: str) -> list[int]:
    try:
        return [int(word) for word in _words(f"{folder}/cgroup.procs")]
    except ValueError:
        return []


def _started(pid: int) -> int:
    """When a process started, in clock ticks since boot (proc_pid_stat(5), field 22); -1: it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return -1


def _is_clean(group: Group) -> bool:
    """Whether the host charges it with little enough to be another box's."""
    if "memory" not in group.limits:
        return True
    charged = _words(f"{group.folder}/{'memory.current' if group.unified else 'memory.usage_in_bytes'}")
    return bool(charged) and int(charged[0]) < KEPT_BYTES


def _remove(folder: str) -> bool:
    for each in (f"{folder}/{COMMANDS}", folder):
        try:
            os.rmdir(each)
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True


def _reclaim(parent: str, namespace: int) -> None:
    """Remove what callers left that are no more, with what still runs there. Those of another PID namespace cannot be judged."""
    try:
        entries = list(os.scandir(parent))
    except OSError:
        return
    for entry in entries:
        name, *numbers = entry.name.split("-")
        if name != "ringfence" or len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
            continue
        if int(numbers[0]) != namespace or _started(int(numbers[1])) == int(numbers[2]):
            continue
        try:
            ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        except OSError:
            continue  # another start was quicker
        if ours:
            Group(entry.path, {}, False).end()
            _remove(entry.path)


PLACES = Places()
os.register_at_fork(after_in_child=PLACES.forget)
atexit.register(PLACES.end)
