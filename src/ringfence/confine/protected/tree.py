"""The repositories in a writable folder, kept true by what the kernel tells of new names in it.

One walk when the first box over the folder is made; then only folders that got a new name are looked at. Everything in the
folder may be moved while it is looked at: each look opens the folder below the root without following a link.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from ringfence.confine.protected import gitindex
from ringfence.guest import kernel
from ringfence.policy.inotify import IN_IGNORED, IN_ISDIR, IN_MODIFY, NAMES, Queue

MAX_ENTRIES = 200_000
MAX_SECONDS = 2.0
"""One look at a folder ends here; what was not seen is said, never taken for absent."""

GIT = ".git"
PARTS = (GIT, "HEAD", "commondir", "objects", "refs")
"""Names that make a folder a repository, or a part of one (gitrepository-layout(5))."""
_PARTS = frozenset(PARTS)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Repository(NamedTuple):
    """A `.git` entry or a folder that git takes for a bare repository; complete unless git would not read it yet."""

    device: int
    inode: int
    complete: bool


class Tree:
    """What is known of one folder. Raises OSError from look() where the root itself is gone or is another by now."""

    def __init__(self, root: str, identity: tuple[int, int], queue: Queue | None) -> None:
        self.root, self.identity, self.queue = root, identity, queue
        self.repositories: dict[str, Repository] = {}
        self.gitlinks: dict[str, frozenset[str]] = {}  # of each index, by the path of its git directory
        self.unseen: set[str] = set()  # folders that could not be looked into
        self.whole = True  # no bound ended the look
        self.watched = queue is not None
        self.version = 0
        self.guard = threading.RLock()
        self._folders: dict[str, int] = {}
        self._to_look: set[str] = {""}
        self._to_read: set[str] = set()  # git directories whose index may have changed
        self._everything = 0  # when the last look at everything began
        self._along = 0  # entries that were read along
        self._listed: dict[str, int] = {}  # inodes of folders that were listed there

    @property
    def stale(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._to_look or self._to_read or self.unseen)

    # What the queue tells

    def notice(self, path: str, mask: int, name: str) -> None:
        inner = os.path.join(path, name)
        if path in self.gitlinks:
            if mask & IN_IGNORED or name == "index" or name.startswith("sharedindex."):
                self._to_read.add(path)
        elif mask & IN_IGNORED or name in PARTS:
            self._to_look.add(path)
        if mask & IN_ISDIR and name != GIT and path not in self.gitlinks:
            self._to_look.add(inner)

    def forget_all(self) -> None:
        """Events were lost: everything is looked at again."""
        self._folders.clear()
        self._to_look.add("")
        self._to_read.update(self.gitlinks)

    # Looking

    def look(self, *, everything: bool = False, since: int | None = None, indexes_since: int | None = None) -> None:
        """Bring what is known up to date with what the queue told, or with everything that is there.

        since: not with everything, where that was done after this time.monotonic_ns().
        indexes_since: read every index that changed since, by the clock of files; a write through a memory map is told there alone.
        """
        began = time.monotonic_ns()
        everything = everything and not (since is not None and self._everything > since)
        if everything:
            self.whole = True
            self.forget_all()
        if indexes_since is not None:
            self._to_read.update(path for path in self.gitlinks if self._changed(f"{self.root}/{path}/index") >= indexes_since)
        if not self.stale and self.version:
            return
        with self.guard:
            root = kernel.open_path(os.fsencode(self.root), follow=False, flags=_FOLDER)
            try:
                found = os.fstat(root)
                if (found.st_dev, found.st_ino) != self.identity:
                    raise FileNotFoundError(errno.ENOENT, "it was replaced")
                self._look(root)
            finally:
                os.close(root)
            self.version += 1
            if everything:
                self._everything = began
            if self.queue is not None:
                self.queue.stamp += 1

    def _changed(self, path: str) -> int:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return 0
        except OSError:
            return time.time_ns()
        return time.time_ns() if stat.S_ISLNK(found.st_mode) else found.st_ctime_ns

    def has(self, path: str, repository: Repository) -> bool:
        """Whether it is there at this moment: what is known of a folder that was moved away stays known."""
        full = os.path.join(self.root, path)
        try:
            found = os.lstat(full)
            if os.path.basename(path) != GIT:
                os.lstat(f"{full}/HEAD")
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (repository.device, repository.inode)

    # Reading along in the walk for covers: see policy.walk.Along

    def enters(self, path: str, descriptor: int, found: os.stat_result) -> bool:
        """Watch a folder that the first look would come to, before it is read. It must be what the folder above listed by that
        name, on the same device: the walk opens whole paths, on which folders may be exchanged."""
        inner = path[len(self.root) + 1 :]
        if self.version or not self.watched or inner not in self._to_look or self._along > MAX_ENTRIES:
            return False
        expected = self._listed.pop(inner, 0) if inner else self.identity[1]
        if (found.st_dev, found.st_ino) != (self.identity[0], expected):
            return False
        self._to_look.discard(inner)
        self._folders[inner] = expected
        self._watch_open(descriptor, inner, NAMES)  # before it is read: what comes after is told
        return True

    def reads(self, path: str, descriptor: int, names: list[str], folders: list[os.DirEntry[str]]) -> None:
        inner = path[len(self.root) + 1 :]
        self._along += len(names)
        try:
            self._listed.update(self._note_all(inner, descriptor, names, folders))
        except OSError:
            self._to_look.add(inner)

    def missed(self) -> None:
        """Begin the first look again."""
        self._folders.clear()
        self._listed.clear()
        self._to_look.add("")

    def _look(self, root: int) -> None:
        entries, until = MAX_ENTRIES - self._along, time.monotonic() + MAX_SECONDS
        self._along = 0
        self._listed.clear()
        self._to_look |= self.unseen
        self.unseen = set()
        while self._to_look:
            if entries < 0 or time.monotonic() > until:
                self.whole = False
                self._to_look.clear()
                break
            entries -= self._folder(root, self._to_look.pop())
        while self._to_read:
            directory = self._to_read.pop()
            self._watch(root, directory, NAMES | IN_MODIFY)
            self.gitlinks[directory] = gitindex.gitlinks_of(root, directory)

    def _open(self, root: int, path: str) -> int:
        return kernel.open_beneath(root, os.fsencode(path or "."), _FOLDER)

    def _watch(self, root: int, path: str, mask: int) -> None:
        try:
            folder = self._open(root, path)
        except OSError:
            return  # gone; its parent tells when it comes back
        try:
            self._watch_open(folder, path, mask)
        finally:
            os.close(folder)

    def _watch_open(self, folder: int, path: str, mask: int) -> None:
        if self.queue is not None and self.watched:
            try:
                self.queue.watch(folder, self, path, mask)
            except OSError:
                self.watched = False  # the host has no watch left: from now on everything is looked at when it is asked for

    def _folder(self, root: int, path: str) -> int:
        """Look at one folder, and note those in it that are new; returns how many entries it has."""
        try:
            folder = self._open(root, path)
        except OSError as error:
            self._folders.pop(path, None)
            if error.errno not in _GONE:
                self.unseen.add(path)
            else:
                self._drop(path)
            return 1
        try:
            self._watch_open(folder, path, NAMES)  # before the look: what comes after is told
            self._folders[path] = os.fstat(folder).st_ino
            with os.scandir(folder) as listing:
                found = list(islice(listing, MAX_ENTRIES + 1))
            if len(found) > MAX_ENTRIES:
                self.whole = False
            folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
            self._note_all(path, folder, [entry.name for entry in found], folders)
            return len(found)
        except OSError:
            self.unseen.add(path)
            return 1
        finally:
            os.close(folder)

    def _drop(self, path: str) -> None:
        """Forget what lay in a folder that is gone."""
        for known in (self.repositories, self.gitlinks):
            for inner in [inner for inner in known if inner == path or inner.startswith(f"{path}/")]:
                known.pop(inner, None)

    def _note_all(self, path: str, folder: int, names: list[str], folders: list[os.DirEntry[str]]) -> dict[str, int]:
        """Note what a folder holds; returns the folders of it that are to be looked at, with their inodes."""
        parts = _PARTS.intersection(names)
        bare = _is_repository(parts)
        self._note(path, folder, ".", bare, bare)
        prefix = f"{path}/" if path else ""
        complete = GIT in parts and self._is_complete(folder, prefix + GIT)
        self._note(prefix + GIT, folder, GIT, GIT in parts, complete)
        inner = {prefix + entry.name: entry.inode() for entry in folders}
        if complete:
            inner.pop(prefix + GIT, None)
        if bare:
            for name in ("objects", "refs"):
                inner.pop(prefix + name, None)
        new = {path: inode for path, inode in inner.items() if self._folders.get(path) != inode}
        self._to_look.update(new)
        return new

    def _is_complete(self, folder: int, git: str) -> bool:
        """Whether the `.git` of a folder is one that git reads: then what is in it is git's, and only its index matters here."""
        try:
            opened = kernel.open_beneath(folder, os.fsencode(GIT), _FOLDER)
        except OSError:
            return True  # a file, a link, or closed to us: taken for one
        try:
            if not _is_repository(_PARTS.intersection(os.listdir(opened))):
                return False
        finally:
            os.close(opened)
        if git not in self.gitlinks:
            self.gitlinks[git] = frozenset()
            self._to_read.add(git)
        return True

    def _note(self, path: str, folder: int, name: str, there: bool, complete: bool) -> None:
        if there:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            self.repositories[path] = Repository(found.st_dev, found.st_ino, complete)
        elif path in self.repositories and not (name == "." and os.path.basename(path) == GIT):
            del self.repositories[path]


def _is_repository(names: Collection[str]) -> bool:
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))
