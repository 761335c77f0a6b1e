"""What a path of a box is, by its plan alone: which step made it, and which file of the host is behind it. Starts nothing.

The steps are read as the guest carries them out: of those at a path or above it the last one decides, since it was mounted
over the others. Links are followed as the box follows them. Not promised: what a program of the box has made meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

from ringfence.confine.plan import NOEXEC, RDONLY, WRITABLE, LaunchPlan, Step, Tree
from ringfence.policy.patterns import within
from ringfence.policy.resolve import ResolvedPolicy, mounts_below
from ringfence.values import frozen, replace

MAX_LINKS = 40
"""Links that the kernel follows in one path (MAXSYMLINKS, linux/namei.h)."""
SAMPLE = ".sample"
"""Ending of what is left out of a private copy of a hooks folder (guest/protected.py)."""

Kind: TypeAlias = Literal["host", "made", "own", "covered", "copy", "absent", "closed"]
"""host: a file of the host. made: ours, or of the box's kernel. own: in a private folder of the box. covered: there and not to be
read. copy: the box's own copy of a file of the host. absent: not there. closed: behind a folder that the box may not enter."""

_HOST = Tree("/", "/", WRITABLE)
"""What a box without a view of its own sees."""


@frozen
class Place:
    """A path of a box without links in it. by: the step that decides; None on the way to others, and where nothing is.

    host: the file of the host, or the empty string; found: what is there. read_only: no write gets there, whatever its mode.
    no_exec: nothing is executed there. stopped_at: where the walk ended, for what is absent, covered or closed.
    """

    path: str
    kind: Kind
    by: Tree | Step | None = None
    host: str = ""
    found: os.stat_result | None = None
    read_only: bool = True
    no_exec: bool = False
    is_folder: bool = False
    stopped_at: str = ""


class Places:
    """Looks into the view of one plan."""

    def __init__(self, plan: LaunchPlan, policy: ResolvedPolicy) -> None:
        self.plan = plan
        self._owner = policy.workspace.owner if policy.workspace else (0, 0)
        self._steps: dict[str, list[tuple[int, Tree | Step]]] = {}
        self._mounts: dict[str, list[str]] = {}
        for number, step in enumerate(plan.view.steps or (_HOST,)):
            self._steps.setdefault(step.target, []).append((number, step))

    @cached_property
    def _on_the_way(self) -> frozenset[str]:
        """Folders that are there because something below them is."""
        folders: set[str] = set()
        for target in self._steps:
            while target != "/" and (target := os.path.dirname(target)) not in folders:
                folders.add(target)
        return frozenset(folders)

    def look(self, path: str, *, follow: bool = True) -> Place:
        """What path is, from the folder that commands start in. follow: where its last name is a link, what that leads to."""
        names = _names(os.path.join(self.plan.workdir, path))
        place = self._entry("/")
        links = 0
        while names:
            name = names.pop()
            if name == "..":
                place = self._entry(os.path.dirname(place.path))
                continue
            if place.kind == "host" and not self.may(place, os.X_OK):
                return self._ended(place, "closed", [*names, name])
            place = self._entry(f"{place.path.rstrip('/')}/{name}")
            text = _link(place)
            if place.kind in ("absent", "covered") or (names and text is None and not place.is_folder):
                return self._ended(place, "covered" if place.kind == "covered" else "absent", names)
            if text is not None and (names or follow):
                links += 1
                if links > MAX_LINKS:
                    return self._ended(place, "absent", names)
                names += _names(text)
                place = self._entry("/" if text.startswith("/") else os.path.dirname(place.path))
        return place

    @staticmethod
    def _ended(place: Place, kind: Kind, names: list[str]) -> Place:
        return replace(place, kind=kind, path="/".join((place.path.rstrip("/"), *reversed(names))), stopped_at=place.path)

    def may(self, place: Place, bits: int) -> bool:
        """Whether the box's user may read, write or execute (os.R_OK, W_OK, X_OK) what is there, by its owner and mode alone."""
        found, ids = place.found, self.plan.ids
        if place.kind == "copy" or found is None:
            return True
        if ids is None:
            return os.access(place.host, bits)
        if ids.deny_setgroups:  # an ordinary caller's box, which has the caller's ids and groups
            owned, grouped = found.st_uid == os.getuid(), found.st_gid in (os.getgid(), *os.getgroups())
        else:
            idmapped = isinstance(place.by, Step) or (isinstance(place.by, Tree) and place.by.idmapped)
            owned, grouped = idmapped and found.st_uid == self._owner[0], idmapped and found.st_gid == self._owner[1]
        return found.st_mode >> (6 if owned else 3 if grouped else 0) & bits == bits

    def _entry(self, path: str) -> Place:
        protected: Step | None = None
        covered: Step | None = None
        for step in self._deciding(path):
            match step:
                case Tree():
                    place = self._host(path, step)
                case Step(kind="private-file" | "private-folder"):
                    place = _copy(path, step)
                case Step(kind="protect"):
                    protected = step
                    continue
                case Step(kind="cover"):
                    covered = step
                    continue
                case Step(kind="pin"):
                    continue
                case _:
                    place = self._made(path, step)
            break
        else:
            is_there = path == "/" or path in self._on_the_way
            place = Place(path, "made" if is_there else "absent", is_folder=is_there)
        if covered and place.kind != "absent":  # what is not there needs no cover
            return Place(path, "covered", covered, place.host)
        return replace(place, by=protected, read_only=True) if protected else place

    def _deciding(self, path: str) -> Iterator[Tree | Step]:
        """The steps that are at path, or above it and hold what is below them, last first."""
        at, found = path, list(self._steps.get(path, ()))
        while at != "/":
            at = os.path.dirname(at)
            found += [each for each in self._steps.get(at, ()) if each[1].holds_more]
        for _, step in sorted(found, key=lambda each: each[0], reverse=True):
            yield step

    def _host(self, path: str, tree: Tree) -> Place:
        host = os.path.join(tree.source, path[len(tree.target) :].lstrip("/")) if path != tree.target else tree.source
        on_the_way = path in self._on_the_way
        try:
            found = os.lstat(host)
        except OSError:
            return Place(path, "made" if on_the_way else "absent", tree, host, is_folder=on_the_way)
        if not tree.recursive and self._is_of_another_mount(tree, host):
            return Place(path, "absent", tree, host)
        read_only, no_exec = bool(tree.attributes & RDONLY), bool(tree.attributes & NOEXEC)
        return Place(path, "host", tree, host, found, read_only, no_exec, stat.S_ISDIR(found.st_mode))

    def _is_of_another_mount(self, tree: Tree, host: str) -> bool:
        if tree is _HOST:
            return False
        if tree.source not in self._mounts:
            self._mounts[tree.source] = mounts_below(tree.source)
        return any(host != each and within(host, each) for each in self._mounts[tree.source])

    def _made(self, path: str, step: Step) -> Place:
        if step.kind in ("file", "link", "replace"):
            return Place(path, "made", step)
        if step.kind in ("private", "folder"):
            is_there = path == step.target or path in self._on_the_way
            kind: Kind = "absent" if not is_there else "own" if step.kind == "private" else "made"
            return Place(path, kind, step, read_only=step.kind != "private", is_folder=is_there)
        return Place(path, "made", step, is_folder=True)  # the kernel's own files: what is there is known inside only


def _copy(path: str, step: Step) -> Place:
    try:
        found = os.lstat(path)
    except OSError:
        return Place(path, "absent", step, path, read_only=False)
    is_there = path == step.target or not path.endswith(SAMPLE)
    return Place(path, "copy" if is_there else "absent", step, path, found, False, is_folder=stat.S_ISDIR(found.st_mode))


def _names(path: str) -> list[str]:
    """The names of a path, last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _link(place: Place) -> str | None:
    """The text of a link, or None for what is none."""
    if isinstance(place.by, Step) and place.by.kind == "link":
        return os.fsdecode(place.by.content)
    if place.kind == "host" and place.found is not None and stat.S_ISLNK(place.found.st_mode):
        try:
            return os.readlink(place.host)
        except OSError:
            return None
    return None
