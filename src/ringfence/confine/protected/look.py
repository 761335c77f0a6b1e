"""How a path of a writable folder is held: what it leads to, what is on the way, and by what.

Every path is walked from its writable folder, name by name: a folder on the way is pinned, a link is held itself and its
target too where that lies in a writable folder. A target elsewhere is never mounted: the box could have made the link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice

from ringfence.confine.protected.plan import Found, How, Protected, Wanted
from ringfence.errors import WorkspaceError
from ringfence.policy import settings as names
from ringfence.policy.resolve import Folder, ResolvedPolicy

MAX_LINKS = 40
"""Links on one path, as the kernel allows (path_resolution(7))."""
MAX_HELD = 20_000
"""Entries of a folder that are asked for further names of theirs; about 30 ms."""
MAX_COPIED = 250
MAX_COPIED_BYTES = 2 << 20
"""What a private copy of a folder may hold; a larger folder is read-only instead."""

Entry = tuple[str, os.stat_result | None]


class Look:
    """One look. found: what is held, by path."""

    def __init__(self, policy: ResolvedPolicy, home: str, covered: Collection[str]) -> None:
        self.policy, self.home, self.covered = policy, home, frozenset(covered)
        self.named = _named(policy)  # path: whether the box may write it
        self.found: dict[str, Protected] = {}
        self.wanted: list[Wanted] = []
        self.notes: list[str] = []
        self._names: dict[str, set[str]] = {}
        self._below: dict[str, list[tuple[str, os.stat_result]]] = {}

    # Paths

    def root_of(self, path: str) -> str | None:
        """The innermost folder that the config names and path lies strictly inside."""
        found = None
        for root in self.named:
            if path.startswith(root) and path[len(root) : len(root) + 1] == "/" and (found is None or len(root) > len(found)):
                found = root
        return found

    def is_writable(self, path: str) -> bool:
        """Whether the box could write path. A path that the config itself names is as it says, whichever that is."""
        return path not in self.named and self.named.get(self.root_of(path) or "", False)

    def resolve(self, path: str) -> Entry | None:
        """Where path leads, with everything on the way held; None where that is nothing a box may write."""
        at = self.root_of(path) or ""
        pending, links = path[len(at) :].split("/")[::-1], 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                at = os.path.dirname(at).rstrip("/")
                continue
            at = f"{at}/{name}"
            found = look(at)
            if found is None:
                if ".." in pending:
                    return self.resolve(os.path.normpath("/".join([at, *pending[::-1]])))
                at = "/".join([at, *(rest for rest in pending[::-1] if rest not in ("", "."))])
                return (at, None) if self.is_writable(at) else None
            if stat.S_ISLNK(found.st_mode):
                self.hold(at, found, "read-only")
                links += 1
                if links > MAX_LINKS:
                    return None
                target = os.readlink(at)
                at = "" if target.startswith("/") else os.path.dirname(at).rstrip("/")
                pending += target.split("/")[::-1]
            elif pending:
                self.hold(at, found, "pin")
            else:
                return (at, found) if self.is_writable(at) else None
        return None

    def hold(self, path: str, found: os.stat_result, how: How, copy: str = "") -> None:
        """Note one path that is there; what is held already stays, but a pin gives way to more."""
        if not self.is_writable(path) or (path in self.found and self.found[path].how != "pin"):
            return
        whole = stat.S_ISDIR(found.st_mode) and how in ("read-only", "private")
        for name, each in self.below(path) if whole else ((path, found),):
            if stat.S_ISREG(each.st_mode) and each.st_nlink > 1 and not name.endswith(names.SAMPLE):
                raise _two_names(name, each.st_nlink)
        self.found[path] = Protected(path, how, stat.S_ISDIR(found.st_mode), found.st_dev, found.st_ino, copy)

    def settings(self, folder: str, wanted: tuple[str, ...], *, missing: bool) -> None:
        """Hold these names of a folder, as protect does, with one look for those that are not there."""
        there = self._names.get(folder)
        if there is None:
            there = self._names[folder] = _names_in(folder)
        for name in there.intersection(wanted):
            self.protect(f"{folder}/{name}", missing=missing)
        if missing and self.is_writable(f"{folder}/-"):
            for each in _watched(folder, tuple(name for name in wanted if name not in there)):
                self.found.setdefault(each.path, each)

    def protect(self, path: str, *, missing: bool) -> Entry | None:
        """Hold path, and where it leads, read-only; with missing it is watched for where it is not there."""
        entry = self.resolve(path)
        if entry is not None and entry[1] is not None:
            self.hold(entry[0], entry[1], "read-only")
        elif entry is not None and missing:
            self.found.setdefault(entry[0], Protected(entry[0], "watch", False))
        return entry

    def narrow(self, path: str) -> None:
        """Hold path, and where it leads, read-only, whatever it was held by before: the config says so."""
        entry = self.resolve(path)
        if entry is None:
            return
        before = self.found.pop(entry[0], None)
        if entry[1] is not None and not (before and not before.inode):
            self.hold(entry[0], entry[1], "read-only")
        elif before and before.how != "watch":  # to be made for the box
            self.found[entry[0]] = Protected(entry[0], "stub", before.is_dir)
        else:
            self.found[entry[0]] = Protected(entry[0], "watch", False)

    def private(self, path: str, copy: str) -> Entry | None:
        """Hold path, and where it leads, by a private copy; read-only where the box may not read it or it is too large."""
        entry = self.resolve(path)
        if entry is not None and entry[1] is not None:
            copied = self._may_copy(*entry)
            self.hold(entry[0], entry[1], "private" if copied else "read-only", copy if copied else "")
        return entry

    def _may_copy(self, path: str, found: os.stat_result | None) -> bool:
        if found is None or not self._may_read(found):
            return False
        if not stat.S_ISDIR(found.st_mode):
            return stat.S_ISREG(found.st_mode) and found.st_size <= MAX_COPIED_BYTES
        if any(inner.startswith(path + "/") for inner in (*self.named, *self.covered)):
            return False
        held = self.below(path)
        if len(held) > MAX_COPIED or sum(each.st_size for _, each in held) > MAX_COPIED_BYTES:
            return False
        return all(stat.S_ISLNK(each.st_mode) or self._may_read(each) for _, each in held)

    def below(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a folder that is held as a whole, and of those in it, but for the hooks of git's templates."""
        if path not in self._below:
            self._below[path] = held = list(islice(_entries_below(path, self.named), MAX_HELD + 1))
            if len(held) > MAX_HELD:
                self.notes.append(f"{path} is protected and holds more than {MAX_HELD:,} entries: one may have another name.")
        return self._below[path]

    def _may_read(self, found: os.stat_result) -> bool:
        owner = self.policy.workspace.owner[0] if self.policy.workspace and os.geteuid() == 0 else os.geteuid()
        return found.st_uid == owner or bool(found.st_mode & stat.S_IROTH)

    def _folders_of(self, path: str) -> Iterator[str]:
        """A folder and those above it, up to the innermost that the config names: that is a mount of its own."""
        while path and path not in self.named:
            yield path
            path = path.rpartition("/")[0]

    # What the look comes to

    def result(self, folders: tuple[Folder, ...] = ()) -> Found:
        """What was found, without what is covered or lies in a folder that is held as a whole."""
        whole = {path for path, each in self.found.items() if each.is_dir and each.how in ("read-only", "private")}
        kept: list[Protected] = []
        inside: dict[str, tuple[bool, bool]] = {}  # of each folder: whether it is covered, whether it is held as a whole
        for path, each in self.found.items():
            folder = path.rpartition("/")[0]
            if folder not in inside:
                above = set(self._folders_of(folder))
                inside[folder] = (not above.isdisjoint(self.covered), not above.isdisjoint(whole))
            covered, held = inside[folder]
            if not (covered or path in self.covered or (held and each.how != "private")):
                kept.append(each)
        return Found(tuple(kept), tuple(self.wanted), folders, tuple(self.notes))


def _named(policy: ResolvedPolicy) -> dict[str, bool]:
    named = {folder.path: False for folder in policy.read_only}
    named |= {folder.path: True for folder in policy.writable}
    return named | ({policy.workspace.path: policy.mode != "read-only"} if policy.workspace else {})


@lru_cache(maxsize=64)
def _watched(folder: str, missing: tuple[str, ...]) -> tuple[Protected, ...]:
    return tuple(Protected(f"{folder}/{name}", "watch", False) for name in missing)


def look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be looked at, so it cannot be protected: {error.strerror}.") from None


def _names_in(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be looked into, so it cannot be protected: {error.strerror}.") from None


def _entries_below(path: str, named: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    # Objects of git have as many names as clones share them, and none that is run.
                    apart = entry.path in named or entry.path.endswith("/.git/objects")
                    if entry.is_dir(follow_symlinks=False) and not apart:
                        pending.append(entry.path)
                    if not entry.name.endswith(names.SAMPLE):
                        yield entry.path, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise WorkspaceError(f"{folder} cannot be looked into, so it cannot be protected: {error.strerror}.") from None


def _two_names(path: str, links: int) -> WorkspaceError:
    return WorkspaceError(
        f"{path} is protected, but has {links} names: it could be written through another.",
        hint=f"Give it one name: `cp -p {path} {path}.one && mv {path}.one {path}`, or set mode='read-only'.",
    )
