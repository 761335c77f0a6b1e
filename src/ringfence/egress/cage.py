"""What the worker gives up before it reads the first byte of a box: files, ids, capabilities, and all system calls but its own.

With namespaces it stands in an empty folder; where the host refuses those, the filter alone keeps it from every file, since no call
that takes a path is in it. Not given up: connections to any address that the host reaches, which are what it is there for.
"""

from __future__ import annotations

import os
import resource
import signal

from ringfence.guest import kernel

NOBODY = 0x7FF0_0001
"""Who the worker of a root caller is: above the ids that boxes of root have, so that it is the same as no box and no account."""
INSIDE = 1000
STAGE = b"/proc"
"""A folder that every host has, to put the empty root on."""
MS_REC, MS_RDONLY = 0x4000, 0x1  # linux/mount.h
MOST_JOURNAL = 8 << 20
"""Bytes of a file that it may write: the journals of names, which have under five million."""
NEVER_AGAIN = (resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)


def enter(program: bytes, parent: int) -> None:
    """Confine this process, which has one thread, for good. program: the filter. parent: who forked it, and takes it along.

    Raises OSError where the host refuses what it has to have: then nothing may be served.
    """
    for limit in NEVER_AGAIN:
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_JOURNAL, MOST_JOURNAL))
    root = os.geteuid() == 0 and _has_ids()
    _leave_files(None if root else (os.getuid(), os.getgid()))
    _drop_bounding()
    if root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)  # capabilities go with uid 0 (capabilities(7))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.clear_capabilities()
    # Changing ids resets both of these.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    kernel.install_filter(program)


def _has_ids() -> bool:
    """Whether root here is root over NOBODY: not so in a user namespace that maps a few ids only."""
    with open("/proc/self/uid_map") as lines:
        ranges = [(int(start), int(count)) for start, _, count in (line.split() for line in lines)]
    return any(start <= NOBODY < start + count for start, count in ranges)


def _leave_files(ids: tuple[int, int] | None) -> None:
    """Go to an empty root of our own, and leave the host's names and queues, as far as the host lets us.

    ids: of an ordinary user, who needs a namespace of users for it.
    """
    try:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | (kernel.CLONE_NEWUSER if ids else 0))
        if ids:
            inside = [each or INSIDE for each in ids]
            for name, content in (
                ("setgroups", "deny"),
                ("uid_map", f"{inside[0]} {ids[0]} 1"),
                ("gid_map", f"{inside[1]} {ids[1]} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(content)
        kernel.mount(b"none", b"/", b"", MS_REC | kernel.MS_PRIVATE)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount(b"ringfence", STAGE, b"tmpfs", flags, b"mode=555,size=4k,nr_inodes=2")
        os.chdir(STAGE)
        kernel.pivot_root(b".", b".")
        kernel.unmount(b".")
        kernel.mount(b"none", b"/", b"", kernel.MS_REMOUNT | kernel.MS_BIND | MS_RDONLY | flags)
        os.chdir("/")
    except OSError:
        pass  # no namespaces, or no right in them: the filter has no call that takes a path


def _drop_bounding() -> None:
    for capability in range(64):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError:
            return  # past the last one; or without the right to, and then it is of no use without files to run
