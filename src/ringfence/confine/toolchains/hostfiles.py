"""Reading the host's folders without trusting what a box can write: lstat, readlink and listings, nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import islice

from ringfence.values import frozen

MAX_CALLS = 4000
"""File system calls per look-up. A usual PATH takes 100 to 400; a PATH is at most 128 KiB (execve(2))."""
MAX_LINKS = 40
"""Links followed in one path, as the kernel does (path_resolution(7))."""
MAX_DEPTH = 200
"""Names and links in one path: bounds the recursion."""
MAX_LISTED = 8192
"""Names read of one folder."""
MAX_SETTINGS = 65536
"""Bytes read of a pyvenv.cfg."""


class Refused(Exception):
    """A path that must not decide a mount; the message completes 'it was dropped because it ...'."""


_LOOP = Refused("is a loop of links")
_LONG = Refused("has too many names or links in its path")
_MISSING = Refused("does not exist or cannot be reached")
_WRITABLE = Refused("lies in a writable folder, where a box could plant programs")


class Exhausted(Exception):
    """MAX_CALLS were made."""


@frozen
class Place:
    """Where a path leads: its path without links, its lstat, and the links on the way as (path, text)."""

    real: str
    status: os.stat_result
    links: tuple[tuple[str, str], ...]


def inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it. Both are absolute and normal."""
    return path == folder or folder == "/" or path.startswith(folder + "/")


def inside_any(path: str, folders: Iterable[str]) -> bool:
    return any(inside(path, folder) for folder in folders)


class HostFiles:
    """Look-ups for one `discover`, each file asked once. Nothing in or behind a `writable` folder is looked at."""

    def __init__(self, writable: Iterable[str]) -> None:
        self.writable = tuple(writable)
        self._calls = 0
        self._places: dict[str, Place | Refused] = {"/": Place("/", os.lstat("/"), ())}
        self._listed: dict[str, list[os.DirEntry[str]]] = {}

    def _count(self) -> None:
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise Exhausted

    def resolve(self, path: str) -> Place:
        """Follow the absolute `path` name by name.

        Raises Refused when it does not exist, loops, or enters a writable folder at any step, so that no link that a
        box could have written is ever read.
        """
        place = self._resolve(path, MAX_DEPTH)
        if isinstance(place, Refused):
            raise Refused(str(place))
        return place

    def exists(self, path: str) -> bool:
        """Whether `resolve` would succeed."""
        return isinstance(self._resolve(path, MAX_DEPTH), Place)

    def _resolve(self, path: str, depth: int) -> Place | Refused:
        found = self._places.get(path)
        if found is None:
            self._places[path] = _LOOP  # What is being looked up must not be met again on its own way.
            found = self._places[path] = self._step(path, depth)
        return found

    def _step(self, path: str, depth: int) -> Place | Refused:
        if depth == 0:
            return _LONG
        folder, _, name = path.rpartition("/")
        parent = self._resolve(folder or "/", depth - 1)
        if name in ("", ".") or isinstance(parent, Refused):
            return parent
        if name == "..":
            above = self._resolve(os.path.dirname(parent.real), depth - 1)
            return above if isinstance(above, Refused) else Place(above.real, above.status, parent.links)
        step = f"{parent.real.rstrip('/')}/{name}"
        if inside_any(step, self.writable):
            return _WRITABLE
        self._count()
        try:
            status = os.lstat(step)
            if not stat.S_ISLNK(status.st_mode):
                return Place(step, status, parent.links)
            text = os.readlink(step)
        except (OSError, ValueError):
            return _MISSING
        target = self._resolve(text if text.startswith("/") else f"{parent.real.rstrip('/')}/{text}", depth - 1)
        if isinstance(target, Refused):
            return target
        links = (*parent.links, (step, text), *target.links)
        return _LONG if len(links) > MAX_LINKS else Place(target.real, target.status, links)

    def read_link(self, path: str) -> str:
        self._count()
        try:
            return os.readlink(path)
        except OSError:
            raise Refused(str(_MISSING)) from None

    def entries(self, folder: str) -> list[os.DirEntry[str]]:
        """The entries of a resolved folder, at most MAX_LISTED; none when it cannot be read."""
        if folder not in self._listed:
            self._count()
            try:
                with os.scandir(folder) as listing:
                    self._listed[folder] = list(islice(listing, MAX_LISTED))
            except OSError:
                self._listed[folder] = []
        return self._listed[folder]

    def expand(self, prefix: str, part: str) -> list[str]:
        """The paths that `part` names below `prefix`; a trailing `*` stands for the rest of a name."""
        path = f"{prefix}/{part}" if part else prefix
        if not part.endswith("*"):
            return [path]
        folder, stem = os.path.split(path[:-1])
        try:
            real = self.resolve(folder).real
        except Refused:
            return []
        return sorted(os.path.join(folder, entry.name) for entry in self.entries(real) if entry.name.startswith(stem))

    def read_settings(self, path: str) -> dict[str, str]:
        """The `name = value` lines of a resolved regular file (a pyvenv.cfg); empty when it is none or too long."""
        self._count()
        try:
            # O_NONBLOCK: a FIFO put there since lstat must not block us.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return {}
        with open(fd, "rb") as file:
            data = file.read(MAX_SETTINGS) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        lines = (line.partition("=") for line in os.fsdecode(data).splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in lines}
