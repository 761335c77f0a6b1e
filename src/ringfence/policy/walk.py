"""One bounded walk over a folder that a box sees: which names in it match, remembered from box to box.

What a folder holds is remembered with its device, inode and times. A later walk asks for those once a folder, and reads only the
folders that differ: adding, removing or renaming an entry changes them, and no program can set a change time. A folder that
changed less than SETTLED_NS before it was read is read again, since the next change may fall into the same tick of the clock.

No link is followed and nothing is walked below a match, a mount or a folder that cannot be read. A folder that is read
while someone exchanges the folders above it by links is told by its identity at the next walk, not in this one.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from ringfence.errors import HostError, WorkspaceError
from ringfence.policy.patterns import compiled, is_glob

MAX_ENTRIES = 200_000
"""Names looked at in one walk where the config says nothing else; about 0.2 s on a warm disk."""
LEAST_NS = 2_000_000_000
"""How long a walk may take that looks at MAX_ENTRIES or fewer; one that may look at more may take that much longer."""
SETTLED_NS = 50_000_000
"""Five ticks of the slowest kernel clock (CONFIG_HZ=100), by which file systems stamp a change."""
COARSE_NS = 2_500_000_000
"""The same where times are whole seconds, or two of them (vfat)."""
TREES_KEPT = 8
"""Walks remembered at once; one of 10,000 folders takes about 5 MB."""

TWIN = "another name of what is covered"
"""The rule of a match that was found by its inode."""

Signature = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that a rule names: its path, which file it is, and the rule. kind is that of stat.S_IFMT."""

    path: str
    device: int
    inode: int
    kind: int
    links: int
    rule: str


class _Folder:
    """What one folder held when it was read."""

    __slots__ = ("below", "entries", "hits", "names", "others", "signature", "twins")

    def __init__(self, signature: Signature) -> None:
        self.signature: Signature | None = signature  # None: read it again
        self.entries = 0
        self.below: list[str] = []
        self.hits: list[tuple[str, str]] = []
        self.twins: list[str] = []
        self.names: list[str] | None = []  # whose owners were not looked at yet
        self.others: int | None = None


class Selector:
    """Which entries match: globs by the name that they end with, so that most entries cost one look-up."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        self.by_name: dict[str, list[str]] = {}
        self.any_name: list[str] = []
        for pattern in globs:
            last = pattern.rpartition("/")[2]
            name = last if not is_glob(last) and "\\" not in last else None
            self.any_name.append(pattern) if name is None else self.by_name.setdefault(name, []).append(pattern)

    def rule(self, folder: str, name: str) -> str | None:
        """The first pattern that matches, or None."""
        for pattern in (*self.by_name.get(name, ()), *self.any_name):
            if compiled(pattern).matches(f"{folder}/{name}"):
                return str(pattern)
        return None


def most_ns(entries: int) -> int:
    """How long a walk of at most so many entries may take."""
    return LEAST_NS * max(entries, MAX_ENTRIES) // MAX_ENTRIES


class Tree:
    """The walk of one folder for one set of globs, and what it remembers."""

    def __init__(self, root: str, globs: tuple[str, ...]) -> None:
        self.root = root
        self.selector = Selector(globs)
        self.wanted: set[tuple[int, int]] = set()  # files with further names, which the walk looks for
        self.unlisted: list[tuple[str, str]] = []  # (path, why) of folders whose content cannot be known
        self._folders: dict[str, _Folder] = {}
        self._mounts: frozenset[str] | None = None
        self._count: tuple[int, bool] | None = None
        self._guard = threading.Lock()

    def find(self, most: int = MAX_ENTRIES, count: int = 0) -> list[Match]:
        """Every match, and every further name of a wanted file, as they are now.

        count: names whose owners others() may look at later, beyond those that an earlier walk gave it. Raises WorkspaceError when
        there is more to look at than most, HostError where the host fails.
        """
        with self._guard:
            found = [match(path, rule) for path, rule in self._walk(most, count)]
        return [each for each in found if each is not None]

    def _walk(self, most: int, count: int) -> list[tuple[str, str]]:
        known, fresh = self._folders, {}
        hits: list[tuple[str, str]] = []
        entries, until = 0, time.monotonic_ns() + most_ns(most)
        self.unlisted, self._mounts = [], None
        pending, device = [self.root], os.lstat(self.root).st_dev
        while pending:
            path = pending.pop()
            folder = known.get(path)
            try:
                found = os.lstat(path)
                if found.st_dev != device and self._is_mount(path):
                    self.unlisted.append((path, "a mount"))
                    continue
                if folder is None or folder.signature != _signature(found):
                    folder = self._read(path, most - entries, count > 0)
                    count -= folder.entries
                    self._count = None
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed or exchanged since its parent was read
            except PermissionError:
                self.unlisted.append((path, "a folder that cannot be read"))
                continue
            except OSError as error:
                raise HostError(f"{_short(path)} cannot be looked into: {error.strerror}.", errno=error.errno or 0) from None
            fresh[path] = folder
            entries += folder.entries
            if entries > most or time.monotonic_ns() > until:
                raise _too_large(self.root, most)
            pending += folder.below
            hits += folder.hits
            hits += [(twin, TWIN) for twin in folder.twins]
        if len(fresh) != len(known):
            self._count = None
        self._folders = fresh
        return hits

    def want(self, files: set[tuple[int, int]]) -> bool:
        """Look for these files by whatever name; whether the tree has to be walked again for it."""
        with self._guard:
            if files <= self.wanted:
                return False
            self.wanted |= files
            self._folders = {}
            return True

    def others(self, owner: int) -> tuple[int, bool]:
        """(entries whose uid is not owner, whether all were looked at) of the last walk, by what is remembered of it."""
        with self._guard:
            if self._count is None:
                folders = self._folders
                for path, folder in folders.items():
                    if folder.names is not None:
                        folder.others = sum(_is_others(f"{path}/{name}", owner) for name in folder.names)
                        folder.names = None
                counted = [folder.others for folder in folders.values() if folder.others is not None]
                self._count = sum(counted), len(counted) == len(folders) and not self.unlisted
            return self._count

    def _read(self, path: str, left: int, named: bool) -> _Folder:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            now = time.time_ns()
            signature = _signature(os.fstat(descriptor))
            folder = _Folder(signature)
            with os.scandir(descriptor) as entries:
                self._entries(path, folder, entries, left)
            if not named:
                folder.names = None
            changed = signature[3]
            settled = COARSE_NS if changed % 1_000_000_000 == 0 else SETTLED_NS
            if changed + settled > now or _signature(os.fstat(descriptor)) != signature:
                folder.signature = None
            return folder
        finally:
            os.close(descriptor)

    def _entries(self, path: str, folder: _Folder, entries: Iterator[os.DirEntry[str]], left: int) -> None:
        prefix = path if path == "/" else path + "/"
        by_name, any_name, wanted = self.selector.by_name, self.selector.any_name, self.wanted
        device = folder.signature[0] if folder.signature else 0
        names = folder.names = []
        for entry in entries:
            folder.entries += 1
            if folder.entries > left:
                return
            name = entry.name
            names.append(name)
            if (any_name or name in by_name) and (rule := self.selector.rule(path.rstrip("/"), name)):
                folder.hits.append((prefix + name, rule))
            elif entry.is_dir(follow_symlinks=False):
                folder.below.append(prefix + name)
            elif wanted and (device, entry.inode()) in wanted:
                folder.twins.append(prefix + name)

    def _is_mount(self, path: str) -> bool:
        if self._mounts is None:
            from ringfence.policy.resolve import mounts_below  # a subvolume of btrfs has a device of its own too

            self._mounts = frozenset(mounts_below(self.root))
        return path in self._mounts


def match(path: str, rule: str) -> Match | None:
    """What is at path, no link followed; None where nothing is, or nothing that can be asked for."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return Match(path, found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_nlink, rule)


def _signature(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _is_others(path: str, owner: int) -> bool:
    try:
        return os.lstat(path).st_uid != owner
    except OSError:  # removed meanwhile
        return False


def _short(path: str) -> str:
    return path if len(path) <= 300 else f"{path[:200]}...{path[-80:]}"


def _too_large(root: str, most: int) -> WorkspaceError:
    return WorkspaceError(
        f"{root} has more than {most:,} entries, or took longer than {most_ns(most) / 1e9:.0f} s to look through, so "
        "what must be covered in it is not known and no box is made.",
        hint="Name a smaller folder (and patterns that begin with one), or raise walk_entries of the config.",
    )


_trees: OrderedDict[tuple[str, tuple[str, ...]], Tree] = OrderedDict()
_guard = threading.Lock()


def remembered(root: str, globs: tuple[str, ...]) -> Tree:
    """The tree of root for globs, kept for the next box that asks for the same."""
    with _guard:
        key = (root, globs)
        tree = _trees.pop(key, None) or Tree(root, globs)
        _trees[key] = tree
        while len(_trees) > TREES_KEPT:
            _trees.popitem(last=False)
        return tree
