"""Which controllers of control groups can be used here, found by using each: a group is made below our own, a limit written in it,
and the group removed. Version 1 has a hierarchy for each controller, version 2 one for all (cgroups(7)); a host may have both.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from ringfence.confine.host import Capability, State

LIMITS = {
    "memory": ("memory.limit_in_bytes", "memory.max", b"1073741824"),
    "pids": ("pids.max", "pids.max", b"512"),
    "cpu": ("cpu.cfs_quota_us", "cpu.max", b"100000"),
}
"""The file of each controller's limit, in version 1 and in version 2, and a value that is accepted by both."""
NEEDED_BY = {"memory": "memory", "pids": "max_processes", "cpu": "cpu_share"}
DELEGATE = "systemd-run --user --scope -p Delegate=yes ringfence doctor"
MOUNT = "mount -t cgroup2 none /sys/fs/cgroup"
WRITABLE = "mount -o remount,rw {}; in a container: docker run --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup:rw"


class Hierarchy:
    """A mounted hierarchy: our own group in it, and the controllers of it. Those of version 2 are not known before it is used."""

    __slots__ = ("controllers", "group", "mount", "unified")

    def __init__(self, group: str, mount: str, controllers: frozenset[str], *, unified: bool = False) -> None:
        self.group, self.mount, self.controllers, self.unified = group, mount, controllers, unified


def capabilities() -> Iterator[Capability]:
    """One for each controller that a cap needs."""
    mounted = list(hierarchies())
    for controller in LIMITS:
        yield _capability(controller, mounted)


def hierarchies() -> Iterator[Hierarchy]:
    """Every hierarchy that is mounted here, by proc_pid_mountinfo(5) and proc_pid_cgroup(5)."""
    own: dict[str, str] = {}
    try:
        with open("/proc/self/cgroup") as groups:
            for line in groups:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                own[controllers] = path
        with open("/proc/self/mountinfo") as table:
            lines = table.read().splitlines()
    except OSError:
        return
    for line in lines:
        left, _, right = line.partition(" - ")
        root, mount = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            yield Hierarchy(_inside(mount, root, own.get("", "/")), mount, frozenset(), unified=True)
        elif kind == "cgroup":
            named = next((names for names in own if names and set(names.split(",")) <= set(options.split(","))), None)
            if named is not None:
                yield Hierarchy(_inside(mount, root, own[named]), mount, frozenset(named.split(",")))


def _inside(mount: str, root: str, path: str) -> str:
    """Our group's folder. root: what of the hierarchy is mounted; a group outside it is not to be seen, and the mount is taken."""
    below = path.removeprefix(root) if root != "/" else path
    return os.path.normpath(f"{mount}/{below.lstrip('/')}") if path.startswith(root) and ".." not in path else mount


def _capability(controller: str, mounted: list[Hierarchy]) -> Capability:
    name, needs = f"control group: {controller}", (NEEDED_BY[controller],)
    found: list[tuple[State, str, str]] = []
    for each in mounted:
        if each.unified or controller in each.controllers:
            judged = _tried(controller, each)
            if judged is None:
                version = "version 2" if each.unified else "version 1"
                return Capability(name, State.DELIVERED, f"{version}, in {each.group}", needed_by=needs)
            found.append(judged)
    if not mounted:
        found.append((State.ABSENT, "no hierarchy of control groups is mounted here", MOUNT))
    # A hierarchy that refuses says more than one which does not have the controller.
    state, cause, step = min(found, key=lambda each: each[0] is State.ABSENT)
    return Capability(name, state, cause, step, needs)


def _tried(controller: str, hierarchy: Hierarchy) -> tuple[State, str, str] | None:
    """Why a limit cannot be set in a group below ours, or None."""
    first, second, value = LIMITS[controller]
    group = f"{hierarchy.group}/ringfence-probe-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        return _refused(error, hierarchy)
    try:
        with open(f"{group}/{second if hierarchy.unified else first}", "wb", 0) as limit:
            limit.write(value)
        return None
    except FileNotFoundError:
        return _lacking(controller, hierarchy)
    except OSError as error:
        return _refused(error, hierarchy)
    finally:
        os.rmdir(group)


def _refused(error: OSError, hierarchy: Hierarchy) -> tuple[State, str, str]:
    if error.errno == errno.EROFS:
        return State.FORBIDDEN, f"{hierarchy.mount} is mounted read-only", WRITABLE.format(hierarchy.mount)
    if error.errno in (errno.EACCES, errno.EPERM):
        own = f"{hierarchy.group.rstrip('/')}/{os.getuid()}"
        step = f"as root: mkdir {own} && chown -R {os.getuid()} {own}, and start ringfence in that group"
        cause = f"{hierarchy.group} belongs to another user, who has not delegated it"
        return State.FORBIDDEN, cause, DELEGATE if hierarchy.unified else step
    return State.DISABLED, f"{hierarchy.group}: {error.strerror}", "see the cause"


def _lacking(controller: str, hierarchy: Hierarchy) -> tuple[State, str, str]:
    """A group of version 2 without the controller: the kernel does not have it there, or our group does not hand it on."""
    try:
        with open(f"{hierarchy.group}/cgroup.controllers") as file:
            has = file.read().split()
    except OSError:
        has = []
    if controller in has:
        return State.DISABLED, f"{hierarchy.group} does not hand it on to groups below", DELEGATE
    return State.ABSENT, f"{hierarchy.mount} is without it", f"start the kernel without cgroup_disable={controller}"
