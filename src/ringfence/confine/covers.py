"""What of the secrets lies in the folders that a box sees, and is covered there: by path, by glob, by link, by further name."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ringfence.confine.owners import MAX_ENTRIES
from ringfence.confine.plan import Step
from ringfence.errors import ConfigError, WorkspaceError
from ringfence.policy import patterns
from ringfence.policy.patterns import within
from ringfence.policy.resolve import ResolvedPolicy, mounts_below
from ringfence.policy.secrets import BY_VARIABLE, IN_HOME, Secrets, secrets_of
from ringfence.policy.walk import MOUNTED, TWIN, Along, Match, Tree, match, remembered

MAX_COVERS = 50_000
"""Mounts that covers may take of a box: half of what the kernel allows a mount namespace (fs.mount-max, namespaces(7))."""
MAX_NAMED = 5
"""Covers that enforcement names."""
MAX_NOTED = 20
"""Entries of deny that match nothing and are named in notes."""
HOME_SECONDS = 2.0
"""How long it is remembered which places of the built-in list the caller's home has."""

NOBODY: Mapping[str, Along] = {}

_last_home: list[tuple[str, float, list[tuple[str, str]]]] = []


class Covers(NamedTuple):
    """The steps that cover, the rule behind each path, what to say of patterns that cover nothing, and the workspace's walk."""

    steps: tuple[Step, ...]
    rules: Mapping[str, str]
    notes: tuple[str, ...]
    tree: Tree | None

    @property
    def said(self) -> str:
        """What enforcement says of them."""
        names = ", ".join(step.target for step in self.steps[:MAX_NAMED]) + (", ..." if len(self.steps) > MAX_NAMED else "")
        return f"absent outside the shared folders, {len(self.steps)} covered inside" + (f": {names}" if names else "")


def covers_for(
    policy: ResolvedPolicy, home: str, mounted: Sequence[str], *, count_owners: bool, along: Mapping[str, Along] = NOBODY
) -> Covers:
    """Look for what must be covered. mounted: what else of the host the box sees. along: who reads along in the walk of a folder.

    Raises WorkspaceError where that cannot be known within the bounds, ConfigError where all of a folder would be covered.
    """
    shared = tuple(folder.path for folder in (policy.workspace, *policy.writable, *policy.read_only) if folder)
    secrets = secrets_of(policy.deny, policy.workdir, shared, os.environ)
    look = _Look(shared, tuple(mounted), policy.workdir, along, whole=policy.mode == "danger-full-access")
    look.paths(secrets, home)
    look.globs(secrets, policy.walk_entries, MAX_ENTRIES if count_owners else 0)
    return look.covers(policy)


class _Look:
    def __init__(
        self, shared: tuple[str, ...], mounted: tuple[str, ...], workspace: str, along: Mapping[str, Along], *, whole: bool
    ) -> None:
        self.whole = whole  # all of the host is in the box
        self.shared, self.mounted, self.workspace, self.along = shared, mounted, workspace, along
        self.found: dict[str, Match] = {}
        self.named: list[Match] = []  # by path, wherever they lie
        self.used: set[str] = set()  # rules that name something, wherever it lies
        self.notes: list[str] = []
        self.trees: dict[str, Tree] = {}
        self._real: dict[str, str] = {}

    def real(self, folder: str) -> str:
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return self._real[folder]

    def paths(self, secrets: Secrets, home: str) -> None:
        """What is named by its path. Where a link is named, both it and what it leads to are covered."""
        for path, rule in (*secrets.paths, *_home_places(home)):
            folder, name = os.path.split(path)
            here = match(os.path.join(self.real(folder), name), rule)
            if here is not None:
                self.used.add(rule)
                self.named.append(here)
                self.add(here, named=True)

    def add(self, here: Match, *, named: bool) -> None:
        """Cover a match, and what it leads to where it is a link. named: by its path, not found by a walk."""
        if any(within(root, here.path) for root in self.shared):
            self._holds_a_root(here, here.path, named)
            return
        if self.whole or any(within(here.path, root) for root in self.shared):
            self.found.setdefault(here.path, here)
        elif any(within(here.path, place) for place in self.mounted):
            # A small file of the system is copied into the box, so there it is another one.
            self.found.setdefault(here.path, here._replace(device=0, inode=0))
        if stat.S_ISLNK(here.kind):
            target = match(os.path.realpath(here.path), here.rule)
            if target is None or stat.S_ISLNK(target.kind):
                return
            if any(within(root, target.path) for root in self.shared):
                self._holds_a_root(here, target.path, named)
            else:
                self.add(target, named=named)

    def _holds_a_root(self, here: Match, path: str, named: bool) -> None:
        """A folder of the box is in what must not be read. That is a contradiction, unless a box can have made the link, or a
        variable of the caller says only where things lie."""
        if named and not here.rule.startswith(BY_VARIABLE):
            raise ConfigError(
                f"{here.path} must not be read ({here.rule}), and a folder of the box is or lies in it.",
                hint="Take one of the two away.",
            )
        self.notes.append(f"{path}, where {here.path} leads ({here.rule}), holds a folder of the box, so it is not covered.")

    def globs(self, secrets: Secrets, most: int, count: int) -> None:
        """What is named by patterns: one walk of each folder, which ends where another one begins."""
        denied = {self._moved(pattern): pattern for pattern in secrets.denied}
        for root in self.shared:
            if os.path.isdir(root) and not any(other != root and within(root, other) for other in self.shared):
                named = tuple(pattern for pattern in denied if _meets(pattern, root))
                in_system = any(within(root, place) for place in self.mounted)
                self._plan_walk(root, named, () if in_system else secrets.built_in)
        for pattern in denied:
            prefix = patterns.compiled(pattern).prefix
            if (self.whole or any(within(prefix, place) for place in self.mounted)) and not any(
                within(prefix, root) for root in self.shared
            ):
                self._plan_walk(prefix, (pattern,), ())
        for each in self._walked(most, count):
            self.used.add(denied.get(each.rule, each.rule))
            self.add(each, named=False)
        for tree in self.trees.values():
            self._unlisted(tree)

    def _walked(self, most: int, count: int) -> list[Match]:
        """What the walks find; where a match has further names they are looked for too, in all of the folders."""
        while True:
            matches = [
                each
                for root, tree in self.trees.items()
                for each in tree.find(most, count=count, mounts=self._mounts(root), along=self.along.get(root))
            ]
            named = [each for each in (*matches, *self.named, *self.found.values()) if each.rule != TWIN]
            linked = {(each.device, each.inode) for each in named if each.links > 1 and not stat.S_ISDIR(each.kind)}
            again = [tree.want(linked) for tree in self.trees.values()]
            if not any(again):
                return [each for each in matches if each.rule != TWIN or (each.device, each.inode) in linked]

    def _mounts(self, root: str) -> tuple[str, ...]:
        """Mount points below a shared folder, which are not in the box: there the folders below them are."""
        return tuple(mounts_below(root)) if root in self.shared and root != self.workspace else ()

    def _plan_walk(self, root: str, named: tuple[str, ...], built_in: tuple[str, ...]) -> None:
        if (named or built_in) and os.path.isdir(root):
            self.trees[root] = remembered(root, named + built_in)

    def _moved(self, pattern: str) -> str:
        prefix = patterns.compiled(pattern).prefix
        return pattern if self.real(prefix) == prefix else patterns.moved(pattern, self.real(prefix))

    def _unlisted(self, tree: Tree) -> None:
        """A folder that could not be looked into is covered as a whole: its owner could open it inside."""
        for path, why in tree.unlisted.items():
            here = match(path, why)
            if here is None or path == tree.root:
                raise WorkspaceError(f"{path} cannot be read, so what must be covered in it is not known and no box is made.")
            # Below a mount the box sees another folder than the one that was looked at.
            self.found.setdefault(path, here._replace(device=0, inode=0) if why == MOUNTED else here)

    def covers(self, policy: ResolvedPolicy) -> Covers:
        outermost = list(self._outermost())
        if len(outermost) > MAX_COVERS:
            raise WorkspaceError(
                f"{len(outermost):,} files and folders of the box must be covered; {MAX_COVERS:,} can be.",
                hint="Deny the folders that hold them, which takes one cover for each.",
            )
        idle = [pattern for pattern in policy.deny if pattern not in self.used and not self._elsewhere(pattern)]
        self.notes += [f"deny {pattern!r} matches nothing." for pattern in idle[:MAX_NOTED]]
        if len(idle) > MAX_NOTED:
            self.notes.append(f"{len(idle) - MAX_NOTED} more entries of deny match nothing.")
        workspace = policy.workspace.path if policy.workspace else ""
        return Covers(
            tuple(Step("cover", each.path, identity=(each.device, each.inode)) for each in outermost),
            {each.path: each.rule for each in outermost}, tuple(self.notes), self.trees.get(workspace),
        )  # fmt: skip

    def _outermost(self) -> Iterator[Match]:
        """What lies in no other folder that is covered, by path."""
        last = "\0"
        for path in sorted(f"{path}/" for path in self.found):  # so a folder comes right before what lies in it
            if not path.startswith(last):
                last = path
                yield self.found[path[:-1]]

    def _elsewhere(self, pattern: str) -> bool:
        """Whether a pattern is about a place that exists and that the box does not see: all of it is absent."""
        if not patterns.is_glob(pattern):
            return False
        prefix = self.real(patterns.compiled(pattern).prefix)
        return not any(_meets(self._moved(pattern), root) for root in (*self.shared, *self.mounted)) and os.path.isdir(prefix)


def _meets(pattern: str, root: str) -> bool:
    """Whether pattern may match below root, by its fixed folder."""
    prefix = patterns.compiled(pattern).prefix
    return within(prefix, root) or within(root, prefix)


def _home_places(home: str) -> list[tuple[str, str]]:
    """The places of the built-in list that the caller's home has; the list is long, and boxes are made in bursts."""
    now = time.monotonic()
    if not _last_home or _last_home[0][0] != home or now - _last_home[0][1] > HOME_SECONDS:
        _last_home[:] = [(home, now, list(_places(home)))]
    return _last_home[0][2]


def _places(home: str) -> Iterator[tuple[str, str]]:
    for name in IN_HOME:
        if os.path.lexists(f"{home}/{name}"):
            yield f"{home}/{name}", f"built in: ~/{name}"
