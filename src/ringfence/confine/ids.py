"""Whose ids a box has. An ordinary caller's box has the caller's; a root caller's has an unprivileged id of its own.

For a root caller each box takes a block of 65,536 host ids that no account uses. On disk id N of the workspace appears as
block + N, through an idmapped mount, and the box runs as block + (the workspace owner): so what it writes belongs to that
owner, and it owns nothing else. Inside, its uid is 1000, because programs behave differently as 0.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading

from ringfence.confine.plan import Ids
from ringfence.errors import HostError

INSIDE = 1000
BLOCK = 1 << 16
FIRST_BLOCK = 0x7000_0000 >> 16
"""Above every range that useradd(8), subuid(5) defaults and systemd's containers hand out, below 2**31."""
BLOCKS = 0x0FF0
LOCKS = "/run/ringfence"


def own(uid: int, gid: int) -> Ids:
    """The ids of an ordinary caller's box: its own, and nothing else is mapped.

    A caller that is 0 only in a user namespace of its own is ordinary; inside it is INSIDE, since exec gives 0 more.
    """
    inside = (uid or INSIDE, gid or INSIDE)
    return Ids(*inside, f"{inside[0]} {uid} 1", f"{inside[1]} {gid} 1", deny_setgroups=True)


def has_blocks() -> bool:
    """Whether this caller is root over the ids of the blocks: not so in a user namespace that maps a few ids only."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map") as lines:
        ranges = [(int(start), int(count)) for start, _, count in (line.split() for line in lines)]
    last = (FIRST_BLOCK + BLOCKS) * BLOCK
    return any(start <= FIRST_BLOCK * BLOCK and last <= start + count for start, count in ranges)


def of_block(block: int, owner: tuple[int, int]) -> Ids:
    """The ids of a root caller's box over a workspace of owner (uid, gid)."""
    base = block * BLOCK
    return Ids(INSIDE, INSIDE, _swapped(base, owner[0]), _swapped(base, owner[1]), deny_setgroups=False)


def _place(identity: int) -> int:
    """Where an id of the disk lies in a block; one beyond the block takes its last place."""
    return identity if identity < BLOCK - 1 else BLOCK - 1


def _swapped(base: int, owner: int) -> str:
    """The block in order, but with INSIDE and the owner's place exchanged."""
    low, high = sorted((INSIDE, _place(owner)))
    if low == high:
        return f"0 {base} {BLOCK}"
    lines = [(0, base, low), (low, base + high, 1), (low + 1, base + low + 1, high - low - 1), (high, base + low, 1)]
    lines.append((high + 1, base + high + 1, BLOCK - high - 1))
    return "\n".join(f"{inside} {outside} {count}" for inside, outside, count in lines if count)


def disk_map(block: int, owner: int) -> str:
    """The map of the idmapped mount: ids on the disk to ids of the block."""
    base = block * BLOCK
    if _place(owner) == owner:
        return f"0 {base} {BLOCK}"
    return f"0 {base} {BLOCK - 1}\n{owner} {base + BLOCK - 1} 1"


class Blocks:
    """Blocks of host ids, one for each live box of any process: a byte of one lock file for each block.

    The locks are open file description locks (fcntl(2), F_OFD_SETLK): the kernel drops them with the process, however it ends.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._file = -1
        self._held: set[int] = set()

    def take(self) -> int:
        """A block that no live box has. Raises HostError when none is free or the lock file cannot be made."""
        with self._guard:
            try:
                if self._file < 0:
                    os.makedirs(LOCKS, mode=0o755, exist_ok=True)
                    self._file = os.open(f"{LOCKS}/ids", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise HostError(
                    f"the register of box ids at {LOCKS} cannot be opened: {error.strerror}.", errno=error.errno or 0
                ) from None
            for slot in range(BLOCKS):
                if slot not in self._held and self._lock(slot, fcntl.F_WRLCK):
                    self._held.add(slot)
                    return FIRST_BLOCK + slot
        raise HostError(f"all {BLOCKS} blocks of host ids are taken by live boxes.", hint="Close some of them.")

    def give_back(self, block: int) -> None:
        with self._guard:
            slot = block - FIRST_BLOCK
            if slot in self._held:
                self._held.discard(slot)
                self._lock(slot, fcntl.F_UNLCK)

    def _lock(self, slot: int, kind: int) -> bool:
        # struct flock of a 64-bit machine: type, whence, start, length, pid (which must be 0 for OFD locks)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, slot, 1, 0))
        except OSError:
            return False
        return True


BLOCKS_OF_THIS_HOST = Blocks()
