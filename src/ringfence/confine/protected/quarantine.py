"""Take away what appears under a name that is watched for, keep it where no box reaches it, and say so.

A file that does not exist cannot be mounted over without leaving something in the project. So its name is watched for from
outside while a box lives: what appears is moved out of the workspace within a fraction of a millisecond, and again whatever
is there when a run ends. Nobody can tell a file of the box from one that a program of the host made, so nothing is removed:
it is kept, with its old name, and the report says where.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
import time

from ringfence.confine.protected.removal import Removal
from ringfence.guest import kernel

STATE = "/var/lib/ringfence"
"""Where a root caller's quarantine is; another's is in XDG_STATE_HOME (XDG Base Directory Specification)."""
MAX_BYTES, MAX_ENTRIES, MAX_DEPTH = 16 << 20, 1000, 16
"""What is copied of a folder or file where the quarantine lies on another file system; more stays beside its old name."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_numbers = itertools.count(1)
_guard = threading.Lock()


def place() -> str:
    """The folder that holds what was taken away."""
    if os.geteuid() == 0:
        return f"{STATE}/quarantine"
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.local/state")
    return f"{home}/ringfence/quarantine"


ATTEMPTS = 100
"""How often a folder is opened up that a box closes again before it can be moved; a move takes microseconds."""


def take_away(path: str, *, keep: bool = True) -> str | None:
    """Move what is at path into the quarantine, or remove it; where it is now, or None where nothing is there.

    Follows no link. Raises OSError where it could not be moved at all.
    """
    folder, name = os.path.split(path)
    try:
        parent = kernel.open_path(os.fsencode(folder), follow=False, flags=_FOLDER)
    except FileNotFoundError:
        return None
    try:
        folder_there = _open_up(parent, name)
        if not keep and _removed(parent, name):
            return ""
        aside, kept = _kept()
        try:
            for left in reversed(range(ATTEMPTS)):
                try:
                    os.rename(name, name, src_dir_fd=parent, dst_dir_fd=kept)
                    return f"{aside}/{name}"
                except PermissionError:  # the box closed it again
                    if not (left and folder_there and _open_up(parent, name)):
                        raise
            raise AssertionError("the last attempt returns or raises")
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return _move_across(parent, name, kept, aside, folder)
        finally:
            os.close(kept)
    except FileNotFoundError:
        return None
    finally:
        os.close(parent)


def _removed(parent: int, name: str) -> bool:
    """Remove an entry. Not a folder of another owner, which a box could have given the name: it is kept after all."""
    try:
        Removal(os.fstat(parent).st_uid if os.geteuid() == 0 else None).entry(parent, name)
    except PermissionError:
        return False
    return True


def _kept() -> tuple[str, int]:
    """A new folder of the quarantine, for one thing: its path and a descriptor of it."""
    with _guard:
        number = next(_numbers)
    path = f"{place()}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{number}"
    os.makedirs(path, mode=0o700)
    return path, os.open(path, _FOLDER)


def _open_up(parent: int, name: str) -> bool:
    """Let the owner write a folder, or it cannot be moved to another one; whether it is a folder."""
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o700 == 0o700:
        return stat.S_ISDIR(found.st_mode)
    known = os.open(name, kernel.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{known}", 0o700)
    finally:
        os.close(known)
    return True


def _move_across(parent: int, name: str, kept: int, aside: str, folder: str) -> str:
    """To another file system: out of the way at once, then copied, then removed. What is too large stays out of the way."""
    hidden = f".ringfence-quarantine-{os.getpid()}-{time.monotonic_ns():x}"
    os.rename(name, hidden, src_dir_fd=parent, dst_dir_fd=parent)
    try:
        _copy(parent, hidden, kept, name, [MAX_ENTRIES, MAX_BYTES], MAX_DEPTH)
        Removal(None).entry(parent, hidden)
        return f"{aside}/{name}"
    except OSError:
        return f"{folder}/{hidden}"


def _copy(source: int, name: str, target: int, as_name: str, left: list[int], depth: int) -> None:
    found = os.stat(name, dir_fd=source, follow_symlinks=False)
    left[0] -= 1
    if left[0] < 0 or depth < 0 or not (stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise OSError(errno.EFBIG, "too much, or no file")
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), as_name, dir_fd=target)
        return
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            os.mkdir(as_name, 0o700, dir_fd=target)
            inner = os.open(as_name, _FOLDER, dir_fd=target)
            try:
                for each in os.listdir(opened):
                    _copy(opened, each, inner, each, left, depth - 1)
            finally:
                os.close(inner)
            return
        copy = os.open(as_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
        try:
            while chunk := os.read(opened, 65536):
                left[1] -= len(chunk)
                if left[1] < 0:
                    raise OSError(errno.EFBIG, "too much")
                os.write(copy, chunk)
        finally:
            os.close(copy)
    finally:
        os.close(opened)
