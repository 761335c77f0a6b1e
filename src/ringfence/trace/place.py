"""The file of a trace and its folder: nobody but their owner may enter, read or write, or it is not used.

What is wrong is refused and not mended: a folder that others could enter was open until now, and what is in it proves nothing.
"""

from __future__ import annotations

import os
import stat

from ringfence.errors import TraceError

OPEN = 0o077
CLOSE_IT = "Make it yours alone (chown, chmod 700 for the folder and 600 for the file), or name another place."


def prepare(path: str) -> None:
    """Make the folder and the file where they are missing. Raises TraceError for a place that is not its owner's alone."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        check_folder(folder)
        if not _checked(path):
            _make(folder, path)
            _checked(path)
    except TraceError:
        raise
    except OSError as error:
        raise failed(path, error) from None
    for name in (f"{path}-wal", f"{path}-shm"):
        _checked(name)


def check_folder(folder: str) -> None:
    """Raise TraceError where the folder of a trace is not this user's alone; a link is no folder."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise TraceError(f"{folder} is not a folder.", path=folder, kind="access")
    _refuse(folder, found)


def identity(path: str) -> tuple[int, int]:
    """Which file path is now; (0, 0) for none. By stat alone: closing a descriptor of the file would drop SQLite's locks of it."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def check(path: str) -> bool:
    """Whether there is a trace at path. Raises TraceError for one that is not its owner's alone."""
    try:
        check_folder(os.path.dirname(path))
    except FileNotFoundError:
        return False
    return _checked(path)


def _checked(path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise TraceError(f"{path} is a link, has further names, or is not a file.", path=path, kind="access", hint=CLOSE_IT)
    _refuse(path, found)
    return True


def _refuse(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise TraceError(f"{path} belongs to uid {found.st_uid}, not to this user.", path=path, kind="access", hint=CLOSE_IT)
    if found.st_mode & OPEN:
        mode = stat.S_IMODE(found.st_mode)
        raise TraceError(f"{path} is open to others (mode {mode:04o}).", path=path, kind="access", hint=CLOSE_IT)


def _make(folder: str, path: str) -> None:
    """An empty file under another name, linked: whoever sees path sees it closed, and no descriptor of it is closed here later."""
    other = f"{folder}/.new-{os.getpid()}-{os.urandom(4).hex()}"
    descriptor = os.open(other, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
        os.link(other, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        os.unlink(other)


def failed(path: str, error: OSError) -> TraceError:
    """The error for a place that the system refuses."""
    import errno

    kinds = {
        errno.ENOSPC: "full",
        errno.EDQUOT: "full",
        errno.EROFS: "read-only",
        errno.EACCES: "read-only",
        errno.EPERM: "read-only",
    }
    return TraceError(f"the trace {path} cannot be made: {error.strerror}.", path=path, kind=kinds.get(error.errno or 0, "access"))
