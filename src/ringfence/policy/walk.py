"""One bounded walk over a folder that a box sees: which names in it match, remembered from box to box.

What a folder holds is remembered with its device, inode and times. The next walk asks for those once a folder, and reads only
the folders that differ: adding, removing or renaming an entry changes them, and no program can set a change time. A folder that
changed less than SETTLED_NS before it was read is read again, since the next change may fall into the same tick of the clock.
The walks after that ask only where the kernel tells of a change, if it tells of all of them: see watched.py.

No link is followed and nothing is walked below a match, a mount or a folder that cannot be read. What was found once is never
lost because somebody moved it while the walk was under way: see Tree.find.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from contextlib import nullcontext
from itertools import islice
from typing import NamedTuple, Protocol

from ringfence.errors import HostError, WorkspaceError
from ringfence.policy.patterns import Glob, compiled, is_glob
from ringfence.policy.watched import NotTold, Watched

MAX_ENTRIES = 200_000
"""Names looked at in one walk where the config says nothing else; about 0.2 s on a warm disk."""
LEAST_NS = 2_000_000_000
"""How long a walk may take that looks at MAX_ENTRIES or fewer; one that may look at more may take that much longer."""
SETTLED_NS = 50_000_000
"""Five ticks of the slowest kernel clock, by which file systems stamp a change."""
COARSE_NS = 2_500_000_000
"""The same where times are whole seconds, or two of them (vfat)."""
ROOTS_KEPT = 100
"""Folders whose matches are remembered, so that one that is moved while the next walk is under way is missed."""
TREES_KEPT = 8
"""Walks remembered at once; one of 10,000 folders takes about 5 MB."""

TWIN = "another name of what is covered"
"""The rule of a match that was found by its inode."""

CLOSED, MOUNTED = "a folder that cannot be read", "a mount of the host"
TOO_DEEP = "a folder whose entries have longer paths than the kernel takes"
TICK_NS = 10_000_000
"""The slowest kernel clock by which changes are stamped (CONFIG_HZ=100)."""


class Match(NamedTuple):
    """An entry that a rule names: its path, which file it is, and the rule. kind is that of stat.S_IFMT."""

    path: str
    device: int
    inode: int
    kind: int
    links: int
    rule: str


class Along(Protocol):
    """Who reads along in a walk, so that a folder is read once for both. Asked and told in the thread of the walk."""

    guard: threading.RLock
    """Held from the begin of the walk to its end."""

    def enters(self, path: str, descriptor: int, found: os.stat_result) -> bool:
        """A folder is about to be read; whether its content is wanted."""

    def reads(self, path: str, descriptor: int, names: list[str], folders: list[os.DirEntry[str]]) -> None:
        """All that a wanted folder holds, and which of it are folders themselves."""

    def missed(self) -> None:
        """A wanted folder could not be read whole."""


class _Folder:
    """What one folder held when it was read."""

    __slots__ = (
        "below",
        "changed",
        "device",
        "entries",
        "hits",
        "inode",
        "names",
        "others",
        "owner",
        "settled",
        "touched",
        "twins",
    )

    def __init__(self, found: os.stat_result) -> None:
        self.device, self.inode, self.owner = found.st_dev, found.st_ino, found.st_uid
        self.changed, self.touched = found.st_ctime_ns, found.st_mtime_ns
        self.settled = False  # its times would tell of the next change
        self.entries = 0
        self.below: list[str] = []
        self.hits: list[tuple[str, str]] = []
        self.twins: list[str] = []
        self.names: list[str] | None = None  # whose owners were not looked at yet
        self.others: int | None = None

    def is_still(self, found: os.stat_result) -> bool:
        """Whether a folder is this one, and holds what this one held."""
        return (
            self.settled
            and self.changed == found.st_ctime_ns
            and self.inode == found.st_ino
            and self.touched == found.st_mtime_ns
            and self.device == found.st_dev
        )


class Selector:
    """Which entries match: globs by the name that they end with, so that most entries cost one look-up."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        self.by_name: dict[str, list[str]] = {}
        self.any_name: list[Glob] = []
        for pattern in globs:
            last = pattern.rpartition("/")[2]
            if is_glob(last) or "\\" in last:
                self.any_name.append(compiled(pattern))
            else:
                self.by_name.setdefault(last, []).append(pattern)
        depths = [None if pattern.startswith("/**/") else compiled(pattern).deepest for pattern in globs]
        self.deepest = None if None in depths else max((depth for depth in depths if depth is not None), default=0)
        lasts = "|".join(f"(?:{glob.last.pattern})" for glob in self.any_name)
        self.may_end = re.compile(lasts, re.DOTALL).fullmatch if self.any_name else None

    def rule(self, folder: str, name: str) -> str | None:
        """The first pattern that matches, or None. folder without a slash at its end."""
        for pattern in self.by_name.get(name, ()):
            if compiled(pattern).matches(f"{folder}/{name}"):
                return pattern
        for glob in self.any_name:
            if glob.matches(f"{folder}/{name}"):
                return glob.pattern
        return None


def most_ns(entries: int) -> int:
    """How long a walk of at most so many entries may take."""
    return LEAST_NS * max(entries, MAX_ENTRIES) // MAX_ENTRIES


class Tree:
    """The walk of one folder for one set of globs, and what it remembers."""

    def __init__(self, root: str, globs: tuple[str, ...]) -> None:
        self.root, self.globs = root, frozenset(globs)
        self.selector = Selector(globs)
        self.wanted: set[tuple[int, int]] = set()  # files with further names, which the walk looks for
        self.unlisted: dict[str, str] = {}  # folders whose content cannot be known, and why
        self._folders: dict[str, _Folder] = {}
        self._stale: set[str] = set()
        self._hits: list[tuple[str, str]] = []
        self._mounts: frozenset[str] = frozenset()
        self._entries = 0
        self._doubt = False
        self._count: tuple[int, bool] | None = None
        self._guard = threading.Lock()
        self._watched: Watched | None = None
        self._may_watch = True

    def find(
        self, most: int = MAX_ENTRIES, count: int = 0, *, mounts: Collection[str] = (), along: Along | None = None
    ) -> list[Match]:
        """Every match, and every further name of a wanted file, as they are now.

        count: names whose owners others() may look at later, beyond those that an earlier walk gave it. mounts: mount points
        below the root, whose content is another one in the box. along: who wants to know what the folders hold that are read.
        Raises WorkspaceError when there is more to look at than most, or when a match of the last walk is gone while folders are
        being moved, HostError where the host fails.
        """
        with self._guard, along.guard if along else nullcontext():
            until = time.monotonic_ns() + most_ns(most)
            while True:
                hits = self._walk(most, count, frozenset(mounts), along)
                matches = [each for each in (self._match(*hit) for hit in hits) if each is not None]
                found = {(each.device, each.inode) for each in matches}
                # A program that lives in another box over this folder could move what is covered there out of the way of the
                # walk. So a match that was known is gone only when the walk shows that no folder was moved meanwhile.
                if not self._doubt or not _lost(self.root, self.globs, found):
                    _remember(self.root, self.globs, matches)
                    return matches
                if time.monotonic_ns() > until:
                    raise WorkspaceError(
                        f"Something that a rule of the policy is about has left its place in {self.root} while folders were being "
                        "moved there, so the rule cannot be kept and no box is made.",
                        hint="Try again when nothing moves folders in it.",
                    )
                time.sleep(2 * TICK_NS / 1e9)

    def _match(self, path: str, rule: str) -> Match | None:
        try:
            found = os.lstat(path)
        except PermissionError:
            self.unlisted[os.path.dirname(path)] = CLOSED
            return None
        except OSError:
            self._doubt = True
            return None
        return Match(path, found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_nlink, rule)

    def _walk(self, most: int, count: int, mounts: frozenset[str], along: Along | None) -> list[tuple[str, str]]:
        began = time.time_ns() - TICK_NS
        known, fresh = self._folders, {}
        self._stale, self._doubt = self._changed(), False
        kept = bool(known) and not self.unlisted and self._mounts == mounts and self._entries <= most
        if kept and (not self._stale or self._is_renewed(most, count, along, began)):
            return self._hits
        hits: list[tuple[str, str]] = []
        entries, until = 0, time.monotonic_ns() + most_ns(most)
        self.unlisted = {}
        pending = [self.root]
        while pending:
            path = pending.pop()
            if path in mounts:
                self.unlisted[path] = MOUNTED
                continue
            folder = known.get(path)
            try:
                if folder is None or path in self._stale:
                    before, folder = folder, self._read(path, most - entries, count > 0, along)
                    self._doubt |= _is_doubtful(before, folder, began)
                    count -= folder.entries
                    self._count = None
            except OSError as error:
                self._unread(path, error)
                continue
            fresh[path] = folder
            entries += folder.entries
            if entries > most or time.monotonic_ns() > until:
                raise _too_large(self.root, most)
            pending += folder.below
            hits += folder.hits
            if folder.twins:
                hits += [(twin, TWIN) for twin in folder.twins]
        if len(fresh) != len(known):
            self._count = None
        self._folders, self._hits, self._mounts, self._entries = fresh, hits, mounts, entries
        return hits

    def _is_renewed(self, most: int, count: int, along: Along | None, began: int) -> bool:
        """Read again what has changed; whether that was all, since no folder and no match came or went."""
        for path in self._stale:
            before = self._folders[path]
            try:
                now = self._read(path, most - self._entries + before.entries, count > 0, along)
            except OSError:
                return False
            self._doubt |= _is_doubtful(before, now, began)
            self._folders[path], self._count = now, None
            self._entries += now.entries - before.entries
            alike = before.twins == now.twins and before.hits == now.hits and sorted(before.below) == sorted(now.below)
            if not alike or self._entries > most:
                return False
        return True

    def _changed(self) -> set[str]:
        """Of the folders that were read, those that may have changed since."""
        if self._watched is None and self._may_watch and self._folders:
            stale = self._watch_all()
            if stale is not None:
                return stale
        told = self._watched.changed() if self._watched is not None else None
        root = self._folders.get(self.root)
        if told is None or root is None or not _is_at(self.root, root):  # of a folder above it nobody tells
            return self._asked()
        return told.intersection(self._folders)

    def _asked(self) -> set[str]:
        lstat, stale = os.lstat, set()
        for path, folder in self._folders.items():
            try:
                found = lstat(path)
            except OSError:
                stale.add(path)
                continue
            if (
                folder.changed != found.st_ctime_ns
                or folder.inode != found.st_ino
                or folder.touched != found.st_mtime_ns
                or folder.device != found.st_dev
                or not folder.settled
            ):
                stale.add(path)
        return stale

    def _watch_all(self) -> set[str] | None:
        """The same as _asked(), and from now on the kernel tells; None where it does not."""
        stale = set()
        try:
            self._watched = Watched(len(self._folders))
            for path, folder in self._folders.items():
                try:
                    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                except OSError:
                    stale.add(path)
                    continue
                try:
                    self._watched.add(descriptor, path, folder.device)
                    if not folder.is_still(os.fstat(descriptor)):
                        stale.add(path)
                finally:
                    os.close(descriptor)
        except NotTold:
            self._unwatch()
            return None
        return stale

    def _unwatch(self) -> None:
        self._may_watch = False
        if self._watched is not None:
            self._watched.close()
            self._watched = None

    def retire(self) -> None:
        """Give back what the kernel holds for it; a walk that comes after that asks every folder."""
        with self._guard:
            self._unwatch()

    def _unread(self, path: str, error: OSError) -> None:
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR | errno.ELOOP:
                self._doubt = True  # removed or exchanged since its parent was read
            case errno.EACCES | errno.EPERM:
                # Where it is there to be seen it is closed itself; else the folder above it is.
                self.unlisted[path if os.path.lexists(path) else os.path.dirname(path)] = CLOSED
            case errno.ENAMETOOLONG:
                self.unlisted[os.path.dirname(path)] = TOO_DEEP
            case _:
                raise HostError(f"{_short(path)} cannot be looked into: {error.strerror}.", errno=error.errno or 0) from None

    def want(self, files: set[tuple[int, int]]) -> bool:
        """Look for these files by whatever name; whether the tree has to be walked again for it."""
        with self._guard:
            if files <= self.wanted:
                return False
            self.wanted |= files
            self._folders = {}
            return True

    def others(self, owner: int) -> tuple[int, bool]:
        """(entries whose uid is not owner, whether all were looked at) of the last walk, by what is remembered of it.

        Beyond the names that were to be counted it is the folders among the entries, whose owners the walk has seen.
        """
        with self._guard:
            if self._count is None:
                folders, count = self._folders, 0
                foreign = any(folder.owner != owner for folder in folders.values())
                for path, folder in folders.items():
                    if folder.names is not None:
                        folder.others = _others_among(path, folder.names, owner)
                        folder.names = None
                    if folder.others is not None:
                        count += folder.others
                    elif foreign:
                        count += sum(inner in folders and folders[inner].owner != owner for inner in folder.below)
                whole = all(folder.others is not None for folder in folders.values())
                self._count = count, whole and not self.unlisted
            return self._count

    def _read(self, path: str, left: int, named: bool, along: Along | None) -> _Folder:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        owed = False
        try:
            now = time.time_ns()
            state = os.fstat(descriptor)
            if self._watched is not None:
                try:
                    self._watched.add(descriptor, path, state.st_dev)
                except NotTold:
                    self._unwatch()
            folder = _Folder(state)
            owed = along is not None and along.enters(path, descriptor, state)
            with os.scandir(descriptor) as entries:
                found = list(islice(entries, left + 1))
            names = [entry.name for entry in found]
            folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
            if along is not None and owed and len(found) <= left:
                along.reads(path, descriptor, names, folders)
                owed = False
            folder.entries = len(found)
            folder.names = names if named else None
            self._sort(path, folder, found, names, folders)
            age = COARSE_NS if folder.changed % 1_000_000_000 == 0 else SETTLED_NS
            folder.settled = folder.changed + age < now
            folder.settled = folder.is_still(os.fstat(descriptor))
            return folder
        finally:
            os.close(descriptor)
            if along is not None and owed:
                along.missed()

    def _sort(
        self, path: str, folder: _Folder, found: list[os.DirEntry[str]], names: list[str], folders: list[os.DirEntry[str]]
    ) -> None:
        path = path.rstrip("/")
        prefix = path + "/"
        deepest = self.selector.deepest
        by_name, may_end, rule_of, wanted = self.selector.by_name, self.selector.may_end, self.selector.rule, self.wanted
        hits = set()
        if may_end or not by_name.keys().isdisjoint(names):
            for name in names:
                if (name in by_name or (may_end and may_end(name))) and (rule := rule_of(path, name)):
                    folder.hits.append((prefix + name, rule))
                    hits.add(name)
        if deepest is None or path.count("/") + 1 < deepest:
            folder.below = [prefix + entry.name for entry in folders if entry.name not in hits]
        if wanted:
            others = {entry.name for entry in folders} | hits
            twins = (entry.name for entry in found if entry.name not in others and (folder.device, entry.inode()) in wanted)
            folder.twins = [prefix + name for name in twins]


def _is_doubtful(before: _Folder | None, now: _Folder, began: int) -> bool:
    """Whether something may have been moved out of a folder between the begin of a walk and its coming here."""
    if before is None or (before.device, before.inode) != (now.device, now.inode):
        return True
    return now.changed >= began


def _is_at(path: str, folder: _Folder) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (folder.device, folder.inode)


def match(path: str, rule: str) -> Match | None:
    """What is at path, no link followed; None where nothing is, or nothing that can be asked for."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return Match(path, found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_nlink, rule)


def _others_among(path: str, names: list[str], owner: int) -> int:
    """How many of these entries of a folder have another uid than owner; those that were removed meanwhile have none."""
    others = 0
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        for name in names:
            try:
                others += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid != owner
            except OSError:
                continue
    finally:
        os.close(descriptor)
    return others


def _short(path: str) -> str:
    return path if len(path) <= 300 else f"{path[:200]}...{path[-80:]}"


def _too_large(root: str, most: int) -> WorkspaceError:
    return WorkspaceError(
        f"{root} has more than {most:,} entries, or took longer than {most_ns(most) / 1e9:.0f} s to look through, so "
        "what must be covered in it is not known and no box is made.",
        hint="Name a smaller folder (and patterns that begin with one), or raise walk_entries of the config.",
    )


_trees: OrderedDict[tuple[str, tuple[str, ...]], Tree] = OrderedDict()
_matched: OrderedDict[str, dict[tuple[int, int], str]] = OrderedDict()  # by root: what was found, by which rule
_guard = threading.Lock()


def _forget() -> None:
    """In a fork of this process: another thread may have held a lock, and nobody is left to give it back."""
    global _guard  # the fork's own
    _guard = threading.Lock()
    _trees.clear()


os.register_at_fork(after_in_child=_forget)


def _lost(root: str, globs: frozenset[str], found: set[tuple[int, int]]) -> bool:
    """Whether something that any tree of the root found by one of the globs is not among found."""
    with _guard:
        return any(rule in globs and file not in found for file, rule in _matched.get(root, {}).items())


def _remember(root: str, globs: frozenset[str], matches: list[Match]) -> None:
    with _guard:
        kept = {file: rule for file, rule in _matched.pop(root, {}).items() if rule not in globs}
        _matched[root] = kept | {(each.device, each.inode): each.rule for each in matches if each.rule != TWIN}
        while len(_matched) > ROOTS_KEPT:
            _matched.popitem(last=False)


def remembered(root: str, globs: tuple[str, ...]) -> Tree:
    """The tree of root for globs, kept for the next box that asks for the same."""
    with _guard:
        key = (root, globs)
        tree = _trees.pop(key, None) or Tree(root, globs)
        _trees[key] = tree
        retired = [_trees.popitem(last=False)[1] for _ in range(len(_trees) - TREES_KEPT)]
    for each in retired:
        each.retire()
    return tree
