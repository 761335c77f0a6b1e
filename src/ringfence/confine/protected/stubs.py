"""Names that a git directory lacks, made for the life of the boxes over it: a mount needs something to lie on.

A box that could make `.git/commondir` would have the next `git status` of the host read settings of its choice. So it is made
first, with the content that means the same as its absence, and each box holds a lock on it. The last one to let go removes
what was made; after a crash the next start does, by a list of links in the state folder. All three are told from a user's own by
their content or mode, mean nothing to git, and git lists none of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Sequence

from ringfence.confine.protected.plan import Wanted
from ringfence.errors import WorkspaceError
from ringfence.guest import kernel
from ringfence.policy.digest import digest
from ringfence.policy.settings import COMMON, HOOKS, WORKTREE_CONFIG

SAME = b"./\n"
"""A `commondir` that says what its absence says. libgit2 takes the slash as needed, git does not."""
EMPTY = b"# made by ringfence for as long as a box is open, and removed with it\n"
FOLDER_MODE = 0o1755
"""The sticky bit, which nothing else sets on a folder of hooks, tells one that was made here."""

STATE = "/var/lib/ringfence"
"""Where a root caller's list is; another's is in XDG_STATE_HOME. It must outlive a reboot, as the names do."""
TRIES = 50
BETWEEN_SECONDS = 0.002

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_swept = threading.Event()


def is_ours(path: str, found: os.stat_result) -> bool:
    """Whether an entry is one that was made for a live box, or left by a killed one."""
    if stat.S_ISDIR(found.st_mode):
        return stat.S_IMODE(found.st_mode) == FOLDER_MODE and not os.listdir(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size not in (len(SAME), len(EMPTY)):
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(file, len(EMPTY) + 1) in (SAME, EMPTY)
    finally:
        os.close(file)


class Held:
    """What is held for one box. made: the (device, inode) of each path that is there now, for the plan."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[int, int]] = {}
        self._locks: list[tuple[int, Wanted]] = []

    def take(self, wanted: Sequence[Wanted]) -> None:
        """Make what is wanted, or share what other boxes made.

        What this caller may not make is missing from made: neither may the box, unless it is let in later. Raises WorkspaceError
        where it cannot be made for another cause, which the box may outlive.
        """
        for each in wanted:
            try:
                self._take(each)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise WorkspaceError(
                        f"the repository {each.git} cannot be protected: what it lacks cannot be made there: {error.strerror}.",
                        hint="Try again, look whether the disk is full, or set mode='read-only'.",
                    ) from None

    def _take(self, wanted: Wanted) -> None:
        git = _opened(wanted)
        try:
            _list(wanted)
            lock = _lock_shared(git, wanted.owner)
            self._locks.append((lock, wanted))
            _list(wanted)  # again: whoever let go meanwhile took the first off the list
            self._note(f"{wanted.git}/{COMMON}", os.fstat(lock))
            if wanted.settings:
                self._note(f"{wanted.git}/{WORKTREE_CONFIG}", _file(git, WORKTREE_CONFIG, wanted.owner))
            if wanted.hooks:
                self._note(f"{wanted.git}/{HOOKS}", _folder(git, HOOKS, wanted.owner))
        finally:
            os.close(git)
        for path in wanted.folders:
            try:
                parent = kernel.open_path(os.fsencode(os.path.dirname(path)), follow=False, flags=_FOLDER)
            except OSError:
                continue
            try:
                self._note(path, _folder(parent, os.path.basename(path), wanted.owner))
            finally:
                os.close(parent)

    def _note(self, path: str, found: os.stat_result) -> None:
        self.made[path] = (found.st_dev, found.st_ino)

    def release(self) -> None:
        """Let go; the last box over a repository removes what was made there. Safe to call again."""
        while self._locks:
            lock, wanted = self._locks.pop()
            try:
                _let_go(lock, wanted)
            except OSError:
                pass  # gone with its repository, or on a disk that refuses: there is nothing left to do
            finally:
                os.close(lock)


def _opened(wanted: Wanted) -> int:
    git = kernel.open_path(os.fsencode(wanted.git), follow=False, flags=_FOLDER)
    found = os.fstat(git)
    if (found.st_dev, found.st_ino) != (wanted.device, wanted.inode):
        os.close(git)
        raise OSError(errno.ESTALE, "the repository was replaced")
    return git


def _lock_shared(git: int, owner: tuple[int, int]) -> int:
    """`commondir`, ours, open and locked as one of several; raises OSError where it is somebody else's."""
    for _ in range(TRIES):
        lock = _open_ours(git)
        if lock < 0:
            try:
                return _made(git, owner)
            except FileExistsError:
                continue
        if _lock(lock, fcntl.F_RDLCK) and _is(git, COMMON, os.fstat(lock)):
            return lock
        os.close(lock)
        time.sleep(BETWEEN_SECONDS)  # another box is removing it
    raise OSError(errno.EBUSY, "commondir is locked")


def _made(git: int, owner: tuple[int, int]) -> int:
    """A new `commondir`, locked. It appears with its content and owner, since git refuses an empty one."""
    nameless = True
    try:
        lock = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=git)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):  # what a file system without such files answers (open(2))
            raise
        nameless = False
        lock = os.open(COMMON, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=git)
    try:
        os.write(lock, SAME)
        _give(lock, owner)
        _lock(lock, fcntl.F_RDLCK)
        if nameless:
            os.link(f"/proc/self/fd/{lock}", COMMON, dst_dir_fd=git, follow_symlinks=True)
        return lock
    except BaseException:
        os.close(lock)
        raise


def _open_ours(git: int) -> int:
    try:
        lock = os.open(COMMON, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=git)
    except FileNotFoundError:
        return -1
    if os.pread(lock, len(SAME) + 1, 0) != SAME or os.fstat(lock).st_nlink > 1:
        os.close(lock)
        raise OSError(errno.EEXIST, "the repository has a commondir of its own")
    return lock


def _file(git: int, name: str, owner: tuple[int, int]) -> os.stat_result:
    try:
        made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=git)
    except FileExistsError:
        return os.stat(name, dir_fd=git, follow_symlinks=False)
    try:
        _give(made, owner)
        os.write(made, EMPTY)
        return os.fstat(made)
    finally:
        os.close(made)


def _folder(parent: int, name: str, owner: tuple[int, int]) -> os.stat_result:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    made = os.open(name, _FOLDER, dir_fd=parent)
    try:
        # Another box may have put a folder of its choice there: only an empty one of ours is given away.
        if os.fstat(made).st_uid != os.geteuid() or os.listdir(made):
            raise OSError(errno.ESTALE, "the folder was replaced")
        _give(made, owner)
        os.fchmod(made, FOLDER_MODE)
        return os.fstat(made)
    finally:
        os.close(made)


def _give(made: int, owner: tuple[int, int]) -> None:
    if os.geteuid() == 0:
        os.fchown(made, *owner)


def _let_go(lock: int, wanted: Wanted) -> None:
    """Remove what was made, if no other box holds it and it is still as it was made."""
    git = _opened(wanted)
    try:
        if not _is(git, COMMON, os.fstat(lock)) or os.pread(lock, len(SAME) + 1, 0) != SAME or not _lock(lock, fcntl.F_WRLCK):
            return
        for path in (f"{wanted.git}/{HOOKS}", *wanted.folders):
            _remove(path, os.rmdir)
        _remove(f"{wanted.git}/{WORKTREE_CONFIG}", os.unlink)
        _unlist(wanted)
        os.unlink(COMMON, dir_fd=git)
    finally:
        os.close(git)


def _remove(path: str, how: Callable[..., None]) -> None:
    try:
        parent = kernel.open_path(os.fsencode(os.path.dirname(path)), follow=False, flags=_FOLDER)
    except OSError:
        return
    name = os.path.basename(path)
    try:
        if _is_ours_in(parent, name):
            how(name, dir_fd=parent)
    except OSError:
        pass  # filled by somebody between the look and the act: it is theirs now
    finally:
        os.close(parent)


def _is_ours_in(parent: int, name: str) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        return stat.S_IMODE(found.st_mode) == FOLDER_MODE
    if not stat.S_ISREG(found.st_mode) or found.st_size != len(EMPTY):
        return False
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        return os.read(file, len(EMPTY) + 1) == EMPTY
    finally:
        os.close(file)


def _is(folder: int, name: str, found: os.stat_result) -> bool:
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def _lock(file: int, kind: int) -> bool:
    """An open file description lock (fcntl(2)), which the kernel drops with the process. A box sees the file read-only and
    can take no lock on it that keeps others from a shared one."""
    try:
        # struct flock of a 64-bit machine: type, whence, start, length, pid (which must be 0 for these locks)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return True


# The list of repositories in which something may have been made: links named by a hash of where they lead. The link of a
# folder elsewhere has the name of its repository's before its own.


def _listed() -> str:
    if os.geteuid() == 0:
        return f"{STATE}/made"
    home = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(home if home.startswith("/") else os.path.expanduser("~/.local/state"), "ringfence", "made")


def _name(path: str) -> str:
    return digest(os.fsencode(path))[:32]


def _entries(wanted: Wanted) -> dict[str, str]:
    """The links of one repository: name to target."""
    name = _name(wanted.git)
    return {name: wanted.git} | {f"{name}-{_name(folder)}": folder for folder in wanted.folders}


def _list(wanted: Wanted) -> None:
    """Note the repository for later starts. Where that cannot be written, only a box over it cleans up after a crash."""
    folder = _listed()
    for name, target in _entries(wanted).items():
        try:
            os.symlink(target, f"{folder}/{name}")
        except FileExistsError:
            continue
        except FileNotFoundError:
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                os.symlink(target, f"{folder}/{name}")
            except OSError:
                return
        except OSError:
            return


def _unlist(wanted: Wanted) -> None:
    for name in _entries(wanted):
        try:
            os.unlink(f"{_listed()}/{name}")
        except OSError:
            pass


def sweep() -> None:
    """Remove what killed processes left behind in any repository; what live boxes hold stays. Done once in a process."""
    if _swept.is_set():
        return
    _swept.set()
    try:
        links = {name: os.readlink(f"{_listed()}/{name}") for name in os.listdir(_listed())}
    except OSError:
        return
    for name, path in links.items():
        if "-" not in name:
            folders = tuple(target for other, target in links.items() if other.startswith(f"{name}-"))
            try:
                _sweep(path, folders)
            except OSError:
                continue  # not ours to remove; the next start looks again


def _sweep(path: str, folders: tuple[str, ...]) -> None:
    wanted = Wanted(path, 0, 0, (0, 0), settings=True, hooks=True, folders=folders)
    try:
        git = kernel.open_path(os.fsencode(path), follow=False, flags=_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        _unlist(wanted)
        return
    try:
        lock = _open_ours(git)
        found = os.fstat(git)
    finally:
        os.close(git)
    if lock < 0:
        _unlist(wanted)
        return
    try:
        _let_go(lock, wanted._replace(device=found.st_dev, inode=found.st_ino))
    finally:
        os.close(lock)
