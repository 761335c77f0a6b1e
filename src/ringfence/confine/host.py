"""What this host allows, told by the kernel's own answers, and what would change it."""

from __future__ import annotations

import errno
import os

# Settings that refuse user namespaces, each with the value that refuses and the step that opens it.
_SETTINGS = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "an AppArmor profile with `userns,` for this interpreter"),
)


def why_no_namespaces(number: int) -> tuple[str, str]:
    """(cause, next step) for a user namespace that the kernel refused with errno number; the settings only name causes."""
    for path, refusing, fix in _SETTINGS:
        try:
            with open(path) as file:
                value = file.read().strip()
        except OSError:
            continue
        if value == refusing:
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
