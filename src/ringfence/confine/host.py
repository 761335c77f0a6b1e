"""What this host allows, told by the kernel's own answers, and what would change it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from enum import StrEnum

from ringfence.values import frozen

# Settings that refuse user namespaces, each with the value that refuses and the step that opens it.
_SETTINGS = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "an AppArmor profile with `userns,` for this interpreter"),
)
CONTAINER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
"""What lets a box be made in a container of Docker, whose defaults refuse namespaces, mounts and a second /proc."""
MANAGERS = {"apt-get": "install", "dnf": "install", "apk": "add", "pacman": "-S", "zypper": "install"}
"""Package managers by their programs, with what installs."""


NO_PROC, MOUNT_PROC = "no proc file system is mounted here", "mount -t proc proc /proc"


class State(StrEnum):
    """Whether something can be had here. absent: the kernel or the system is without it. disabled: a setting or a limit says no.
    forbidden: a filter, a container or a security module refuses it. too old: the kernel does not have it yet. not built: this
    version of ringfence is without it."""

    DELIVERED = "delivered"
    ABSENT = "absent"
    DISABLED = "disabled"
    FORBIDDEN = "forbidden"
    TOO_OLD = "too old"
    NOT_BUILT = "not built"


@frozen
class Capability:
    """One thing of a host. cause: why it is not delivered. step: what adds it. needed_by: the tiers and caps that need it."""

    name: str
    state: State
    cause: str = ""
    step: str = ""
    needed_by: tuple[str, ...] = ()

    @property
    def missing(self) -> bool:
        """Whether the host lacks it: not so of what this version of ringfence is without."""
        return self.state not in (State.DELIVERED, State.NOT_BUILT)


@frozen
class Failure:
    """What a probe ran into: the kernel's answer, and the call that it answered."""

    errno: int
    call: str


def setting(path: str) -> str:
    """The value of a file of /proc or /sys, or the empty string."""
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def why_no_namespaces(number: int) -> tuple[str, str]:
    """(cause, next step) for a user namespace that the kernel refused with errno number; the settings only name causes."""
    for path, refusing, fix in _SETTINGS:
        if (value := setting(path)) == refusing:
            name = path.removeprefix("/proc/sys/").replace("/", ".")
            return f"{name} is {value}", f"Set it with `{fix}`, {_AROUND}"
    causes = {
        errno.ENOSPC: ("the limit on user namespaces is used up", "Raise user.max_user_namespaces"),
        errno.EPERM: ("the kernel, a container's seccomp profile or a security module refuses them", "Allow them there"),
        errno.EINVAL: ("the kernel is built without one of the namespaces", "Use a kernel that has them"),
        errno.ENOSYS: ("the kernel or a filter does not have the call", "Allow it there"),
        errno.EUSERS: ("namespaces are nested too deeply", "Run less deeply nested"),
    }
    cause, fix = causes.get(number, (os.strerror(number), "Look at what refuses it"))
    return cause, f"{fix}, {_AROUND}"


_AROUND = "run where it is set, or name tier='process', which confines nothing."


def judged(name: str, failure: Failure | None, needed_by: Sequence[str], *, kind: str = "") -> Capability:
    """What a probe's failure means. kind: 'user', 'mnt', 'pid' and so on for a namespace, whose settings may be the cause."""
    needs = tuple(needed_by)
    if failure is None:
        return Capability(name, State.DELIVERED, needed_by=needs)
    return Capability(name, *(_of_setting(failure, kind) if kind else None) or _of_answer(failure), needs)


def _of_setting(failure: Failure, kind: str) -> tuple[State, str, str] | None:
    """A setting that refuses namespaces of a kind, or has them used up."""
    for path, refusing, fix in _SETTINGS:
        if setting(path) == refusing:
            return State.DISABLED, f"{path.removeprefix('/proc/sys/').replace('/', '.')} is {refusing}", fix
    limit = f"user.max_{kind}_namespaces"
    most = setting(f"/proc/sys/{limit.replace('.', '/')}")
    if failure.errno in (errno.ENOSPC, errno.EUSERS):
        cause = f"{limit} is 0" if most == "0" else f"all that {limit} allows here or further out are in use"
        return State.DISABLED, cause, f"sysctl -w {limit}=15000"
    if failure.errno == errno.EINVAL and failure.call == "clone":
        return State.ABSENT, "the kernel is built without them", f"a kernel with CONFIG_{_CONFIGURED.get(kind, kind.upper())}_NS"
    return None


_CONFIGURED = {"mnt": "", "cgroup": "CGROUP", "uts": "UTS", "ipc": "IPC"}
_USED_UP = {
    errno.EMFILE: ("no further descriptor may be opened", "ulimit -n 1024"),
    errno.ENFILE: ("the host's table of files is full", "sysctl -w fs.file-max=1000000"),
    errno.EAGAIN: ("no further process may be started", "ulimit -u unlimited"),
    errno.ENOMEM: ("there is no memory left for it", "end something that uses memory"),
    errno.ENOSPC: ("a limit or a disk is used up", "free some of it"),
    errno.EROFS: ("the file system is mounted read-only", "mount -o remount,rw it"),
}


def _of_answer(failure: Failure) -> tuple[State, str, str]:
    """What an errno alone says of a call."""
    call = failure.call
    match failure.errno:
        case errno.ENOSYS if filtered():
            return State.FORBIDDEN, f"a system call filter answers {call} as if the kernel did not have it", CONTAINER
        case errno.ENOSYS:
            return State.TOO_OLD, f"this kernel does not have {call}", "a newer kernel"
        case errno.EPERM | errno.EACCES:
            return State.FORBIDDEN, f"a filter, a container or a security module refuses {call}", CONTAINER
        case errno.ENODEV | errno.EOPNOTSUPP | errno.EINVAL | errno.EAFNOSUPPORT:
            return State.ABSENT, f"the kernel is built or was started without it ({call})", "a kernel that has it"
        case errno.ENOENT if call.startswith("/proc/"):
            return State.ABSENT, NO_PROC, MOUNT_PROC
        case errno.ENOENT:
            return State.ABSENT, f"a file that it needs is not there ({call})", "mkdir it"
        case number if number in _USED_UP:
            cause, step = _USED_UP[number]
            return State.DISABLED, f"{cause} ({call})", step
    return State.FORBIDDEN, f"{call}: {os.strerror(failure.errno)}", "see the cause"


def filtered() -> bool:
    """Whether a system call filter is on this process (proc_pid_status(5), Seccomp)."""
    return "\nSeccomp:\t2" in setting("/proc/self/status")


def installing(package: str) -> str:
    """The command that installs a package here, by the package manager that is there."""
    from shutil import which  # only where something is missing

    return next((f"{manager} {verb} {package}" for manager, verb in MANAGERS.items() if which(manager)), f"install {package}")
