"""The outer end of a terminal that a box made for a command, and what is checked before anything here touches it."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import struct
import termios

from ringfence.errors import ArgumentError, ProtocolError
from ringfence.guest import wire

PTMX = os.makedev(5, 2)  # Documentation/admin-guide/devices.txt
TIOCGPTN = 0x80045430  # asm-generic/ioctls.h
MOST = 65535


def checked_size(size: object) -> tuple[int, int]:
    """Rows and columns. Raises ArgumentError for what no terminal has."""
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise ArgumentError(f"a terminal's size is (rows, columns), not {size!r}.")
    if not all(isinstance(number, int) and not isinstance(number, bool) and 0 < number <= MOST for number in size):
        raise ArgumentError(f"a terminal has from 1 to {MOST} rows and columns, not {size!r}.")
    return size[0], size[1]


def accept(descriptors: list[int]) -> int:
    """The one descriptor that a box hands out, if it is the outer end of a terminal; else all are closed, and ProtocolError.

    The box is hostile: what it sends could be anything that it can open, and reading some of that never returns.
    """
    try:
        if len(descriptors) == 1:
            found = os.fstat(descriptors[0])
            if stat.S_ISCHR(found.st_mode) and found.st_rdev == PTMX:
                fcntl.ioctl(descriptors[0], TIOCGPTN, bytes(4))
                os.set_blocking(descriptors[0], False)
                return descriptors[0]
    except OSError:
        pass
    for descriptor in descriptors:
        wire.close_unasked(descriptor)
    raise ProtocolError("the guest sent something that is not the outer end of a terminal.")


def resize(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Screen(io.FileIO):
    """What a command shows on its terminal. Reads block; the end is where nothing holds the terminal any more."""

    def read(self, size: int | None = -1, /) -> bytes:
        while True:
            try:
                data = super().read(65536 if size is None or size < 0 else size)
            except OSError as error:
                if error.errno != errno.EIO:  # as the kernel says it of a terminal whose other end is closed, pty(7)
                    raise
                return b""
            if data is not None:
                return data
