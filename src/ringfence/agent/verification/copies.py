"""A copy of a tree for one candidate: made without following links, removed whatever is in it, reclaimed after a crash.

The tree may be one that a box writes at this moment, so every name is opened below a folder that is held open. The copy itself is
in a folder that nobody else can enter until its commands run, and again after they ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from ringfence.errors import FileTooLargeError, HostError, OutsideError, WorkspaceError

PREFIX = "ringfence-verify-"
MAKING = "ringfence-verifying-"
DEEPEST = 200
"""Folders in folders; a path of so many fits PATH_MAX with names of usual length."""
MOST_ENTRIES = 2_000_000
MOST_BYTES = 64 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def holder(place: str) -> Iterator[str]:
    """A private folder in place for one copy; removed at the end with all that is in it. Removes what killed callers left there.

    The lock says that its caller lives: the kernel drops it with the process. Raises HostError.
    """
    with ExitStack() as held:
        try:
            _reclaim(place)
            made = tempfile.mkdtemp(prefix=MAKING, dir=place)
            lock = os.open(made, _FOLDER)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = os.path.join(place, PREFIX + os.path.basename(made).removeprefix(MAKING))
            os.rename(made, path)  # under this name it is reclaimed, so it is locked before
        except OSError as error:
            raise HostError(f"no folder for a copy can be made in {place}: {error}.", errno=error.errno or 0) from None
        held.callback(_removed, path)
        yield path


def _removed(holder: str) -> None:
    try:
        remove(holder)
    except OSError as error:
        raise HostError(f"the copy in {holder} was not removed: {error}.", errno=error.errno or 0) from None


def _reclaim(place: str) -> None:
    for entry in list(os.scandir(place)):
        if not entry.name.startswith(PREFIX):
            continue
        try:
            lock = os.open(entry.path, _FOLDER)
        except OSError:
            continue  # another user's, or gone
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(entry.path)
        except OSError:
            continue  # in use, or another caller removes it
        finally:
            os.close(lock)


def remove(holder: str) -> None:
    """Remove a holder. Each folder is first moved up beside the others, so that no depth and no length of paths is in the way."""
    work, count = [holder], 0
    while work:
        folder = work.pop()
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)  # to move a folder writes its `..`; nothing of the box is alive
                path, count = f"{holder}/.{count}", count + 1
                while os.path.lexists(path):
                    path, count = f"{holder}/.{count}", count + 1
                os.rename(entry.path, path)
                work.append(path)
            else:
                os.unlink(entry.path)
        if folder != holder:
            os.rmdir(folder)
    os.rmdir(holder)


class Copying:
    """One copy of the tree at source to target, which does not exist. check is called now and then, to raise where it is given up.

    Modes and times are kept, for make goes by them; set-id bits are not. Links are copied as links; one to an absolute path in the
    tree leads into the copy. Left out: FIFOs, sockets, devices, what cannot be read, and a `.git` file that names an absolute path,
    for it would lead git to the settings and the index of the tree that is copied. venvs: the virtual environments found.
    """

    def __init__(self, source: str, target: str, check: Callable[[], None] = lambda: None) -> None:
        self.source, self.target, self.check = source, target, check
        self.venvs: list[str] = []
        self._entries = self._bytes = 0
        self._folders: list[tuple[str, os.stat_result]] = []

    def run(self) -> None:
        """Raises WorkspaceError for a source that is no folder, FileTooLargeError, HostError."""
        try:
            root = os.open(self.source, _FOLDER & ~os.O_NOFOLLOW)
        except OSError as error:
            raise WorkspaceError(f"the tree {self.source!r} cannot be read: {error.strerror}.") from None
        try:
            pending: list[tuple[str, ...]] = [()]
            while pending:
                self._folder(root, pending.pop(), pending)
            for path, found in reversed(self._folders):  # a folder that is not writable is filled first
                os.chmod(path, stat.S_IMODE(found.st_mode) & 0o777)
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        except OSError as error:
            if isinstance(error, HostError):
                raise
            raise HostError(f"the tree {self.source!r} was not copied: {error}.", errno=error.errno or 0) from None
        finally:
            os.close(root)

    def _folder(self, root: int, parts: tuple[str, ...], pending: list[tuple[str, ...]]) -> None:
        self.check()
        if len(parts) > DEEPEST:
            raise FileTooLargeError(f"the tree {self.source!r} has more than {DEEPEST} folders in each other.")
        try:
            folder = opened(root, parts)
        except OSError:
            if not parts:
                raise
            return  # unreadable, or replaced at this moment
        try:
            there = os.path.join(self.target, *parts)
            os.mkdir(there, 0o700)
            self._folders.append((there, os.fstat(folder)))
            for entry in list(os.scandir(folder)):
                self._count(1, 0)
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith((PREFIX, MAKING)):
                        pending.append((*parts, entry.name))
                elif entry.is_symlink():
                    self._link(folder, entry.name, there)
                elif entry.is_file(follow_symlinks=False):
                    self._file(folder, entry.name, there)
                    if entry.name == "pyvenv.cfg":
                        self.venvs.append(there)
        finally:
            os.close(folder)

    def _link(self, folder: int, name: str, there: str) -> None:
        try:
            text = os.readlink(name, dir_fd=folder)
        except OSError:
            return  # replaced at this moment
        if text == self.source or text.startswith(f"{self.source}/"):
            text = self.target + text[len(self.source) :]
        os.symlink(text, f"{there}/{name}")

    def _file(self, folder: int, name: str, there: str) -> None:
        try:
            source = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            return
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode) or (name == ".git" and _leads_away(source)):
                return
            self._count(0, found.st_size)
            target = os.open(f"{there}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _bytes(source, target, found.st_size, self.check)
                os.fchmod(target, stat.S_IMODE(found.st_mode) & 0o777)
                os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _count(self, entries: int, size: int) -> None:
        self._entries, self._bytes = self._entries + entries, self._bytes + size
        if self._entries > MOST_ENTRIES or self._bytes > MOST_BYTES:
            raise FileTooLargeError(f"the tree {self.source!r} has more than {MOST_ENTRIES} entries or {MOST_BYTES >> 30} GiB.")


def opened(root: int, parts: tuple[str, ...], *, make: bool = False) -> int:
    """A descriptor of the folder at parts below root, through no link; make: folders that are missing are made."""
    folder = os.dup(root)
    for part in parts:
        above = folder
        try:
            if make:
                try:
                    os.mkdir(part, 0o777, dir_fd=above)
                except FileExistsError:
                    pass
            folder = os.open(part, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return folder


def _bytes(source: int, target: int, size: int, check: Callable[[], None]) -> None:
    """Copy what the file had when it was opened; one that grows meanwhile does not keep us."""
    left, by_kernel = size, True
    while left > 0:
        check()
        try:
            count = os.copy_file_range(source, target, min(left, 64 << 20)) if by_kernel else 0
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
            by_kernel = False
            continue
        if not by_kernel:
            data = os.read(source, min(left, 1 << 20))
            count = os.write(target, data) if data else 0
            if 0 < count < len(data):
                os.lseek(source, count - len(data), os.SEEK_CUR)
        if count == 0:
            break
        left -= count


def _leads_away(git_file: int) -> bool:
    return re.match(rb"gitdir:\s*/", os.pread(git_file, 4096, 0)) is not None


def lay(tree: str, files: Mapping[str, str | bytes | None]) -> None:
    """Write the files of a candidate into its copy, None takes one away. Nothing is written through a link.

    A file that is there keeps its mode. Raises OutsideError for a path that leads out of the tree, or through a link of it.
    """
    root = os.open(tree, _FOLDER)
    try:
        for path, content in files.items():
            parts = tuple(part for part in path.split("/") if part != ".")
            if not parts or "\0" in path or any(part in ("", "..") for part in parts):
                raise OutsideError(f"{path!r} is no path of a file in the tree.", hint="Name a file relative to the tree.")
            try:
                _lay_one(root, parts, content)
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise OutsideError(f"{path!r} was not written: {why}.", hint="Name a file that no link leads to.") from None
    finally:
        os.close(root)


def _lay_one(root: int, parts: tuple[str, ...], content: str | bytes | None) -> None:
    folder, mode = opened(root, parts[:-1], make=content is not None), 0o666
    try:
        try:
            found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            mode = stat.S_IMODE(found.st_mode) & 0o777 if stat.S_ISREG(found.st_mode) else mode
            os.unlink(parts[-1], dir_fd=folder)  # a new file, so that no other name of the old one is written
        except FileNotFoundError:
            pass
        if content is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(parts[-1], flags, mode, dir_fd=folder), "wb") as file:
                file.write(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    finally:
        os.close(folder)
