"""The listener of a box's system call filter, on its way from the box's first process to the warden."""

from __future__ import annotations

import os
import stat

from ringfence.errors import ProtocolError
from ringfence.guest import wire

LISTENER = "anon_inode:seccomp notify"
"""How the kernel names one in /proc/self/fd (kernel/seccomp.c). No file can have this name: theirs begin with a slash."""

_held: set[int] = set()


def accept(descriptors: list[int]) -> tuple[int, int]:
    """What a box hands out when it is built, each -1 where it is not there: a folder of its private file system, the listener.

    Asks the kernel alone what each is. Raises ProtocolError for anything else, and closes all of them then.
    """
    folder = listener = -1
    for descriptor in descriptors:
        if listener < 0 and os.readlink(f"/proc/self/fd/{descriptor}") == LISTENER:
            listener = descriptor
        elif folder < 0 and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            folder = descriptor
        else:
            for each in descriptors:
                wire.close_unasked(each)
            raise ProtocolError("the guest sent something that is neither a folder nor the listener of its filter.")
    if listener >= 0:
        _held.add(listener)
    return folder, listener


def let_go(listener: int) -> None:
    """Close this process's copy. As long as one is open anywhere, a call that the warden does not answer waits."""
    _held.discard(listener)
    os.close(listener)


def _forget() -> None:
    # In a fork of the caller, made by another thread meanwhile.
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget)
