"""What a box planted for the git of the host: nested repositories and gitlinks that were not there when it began.

No mount prevents a new `.git` in a folder that may be written, and git runs what the settings of a repository name as soon
as somebody calls `git status` in it, or above it when the index has a gitlink to it. So it is looked for after each run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

from ringfence.confine.protected import gitindex
from ringfence.confine.protected.tree import GIT, MAX_ENTRIES, MAX_SECONDS, Repository, Tree
from ringfence.errors import WorkspaceError
from ringfence.outcome import Denial
from ringfence.policy.inotify import Queue
from ringfence.policy.resolve import Folder, ResolvedPolicy

KIND = "planted"
TICK_NS = 10_000_000
"""The slowest kernel clock by which changes are stamped (CONFIG_HZ=100)."""
MAX_TOLD = 200
"""Denials of one look; a box can plant more than anybody reads."""
MAX_REPORTED = 10_000
KEPT = 4
"""Trees without a box that are kept: most programs make one box after another over the same folder."""


class Trees:
    """The trees of this process, shared by the boxes over them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queue: Queue | None = None
        self._trees: dict[tuple[str, int, int], Tree] = {}
        self._boxes: dict[tuple[str, int, int], int] = {}

    def take(self, folder: Folder) -> Tree:
        key = (folder.path, folder.device, folder.inode)
        with self._guard:
            if self._queue is None:
                try:
                    self._queue = Queue()
                except OSError:
                    pass  # no instance left on this host (EMFILE): then everything is looked at when it is asked for
            tree = self._trees.pop(key, None) or Tree(folder.path, (folder.device, folder.inode), self._queue)
            self._trees[key] = tree  # last in order: the least recently used one comes first
            self._boxes[key] = self._boxes.get(key, 0) + 1
            return tree

    def give_back(self, folder: Folder) -> None:
        key = (folder.path, folder.device, folder.inode)
        with self._guard:
            self._boxes[key] -= 1
            if not self._boxes[key]:
                del self._boxes[key]
            for idle in [each for each in self._trees if each not in self._boxes][:-KEPT]:
                tree = self._trees.pop(idle)
                if self._queue is not None:
                    self._queue.leave(tree)

    @property
    def descriptor(self) -> int:
        """Readable when there is something to dispatch; -1 where this host tells nothing."""
        return self._queue.descriptor if self._queue is not None else -1

    @property
    def stamp(self) -> int:
        """Another number whenever something may have changed in any tree."""
        return self._queue.stamp if self._queue is not None else 0

    def dispatch(self) -> None:
        if self._queue is not None:
            self._queue.dispatch()

    def forget(self) -> None:
        """In a fork of this process: the queue is the parent's, and reading it would take the events away."""
        self._guard = threading.Lock()
        self._trees.clear()
        self._boxes.clear()
        if self._queue is not None:
            self._queue.close()
            self._queue = None


TREES = Trees()
os.register_at_fork(after_in_child=TREES.forget)


class Taken:
    """The trees of a box's folders, by path, kept from before the first look at them to the end of the box."""

    def __init__(self, policy: ResolvedPolicy) -> None:
        self._folders = writable_folders(policy)
        self.trees = {folder.path: TREES.take(folder) for folder in self._folders}

    def release(self) -> None:
        for folder in self._folders:
            TREES.give_back(folder)
        self._folders = []


class Planted:
    """What one box planted. Looked for after each run where the host tells of new names, else at the end of the box.

    owners_only: the caller has more rights than the box. since: the time.monotonic_ns() at which the box began to be made.
    Raises WorkspaceError where nothing can be found reliably and the policy asks for more than a report.
    """

    def __init__(self, policy: ResolvedPolicy, *, owners_only: bool, since: int) -> None:
        self.action, self._owners_only = policy.on_planted, owners_only
        self.reported: list[Denial] = []
        self._folders = writable_folders(policy)
        self._trees = [TREES.take(folder) for folder in self._folders]
        self._known: list[tuple[dict[str, Repository], dict[str, frozenset[str]]]] = []
        self._seen: list[int] = []
        self._closed: list[set[str]] = []  # folders that were closed to us before
        self._cut = False
        self._to_remove: list[tuple[int, str, Repository]] = []
        self._began = time.time_ns() - TICK_NS
        self._guard = threading.Lock()  # runs of one box may end in several threads
        try:
            TREES.dispatch()
            for tree in self._trees:
                tree.look(everything=not (tree.watched and tree.whole), since=since)
                self._known.append((dict(tree.repositories), dict(tree.gitlinks)))
                self._seen.append(tree.version)
                self._closed.append(set(tree.unseen))
            self.notes = tuple(self._left_out())
            self._blind = bool(self.notes)
        except OSError as error:
            self.close()
            raise WorkspaceError(
                f"a writable folder was replaced while the box was made: {error.strerror}.", hint="Try again."
            ) from None
        except BaseException:
            self.close()
            raise

    def _left_out(self) -> Iterator[str]:
        for tree in [tree for tree in self._trees if not tree.whole]:
            what = (
                f"{tree.root} is too large to be looked through for planted repositories ({MAX_ENTRIES} entries, {MAX_SECONDS:g} s)"
            )
            if self.action != "report":
                raise WorkspaceError(f"{what}, so on_planted: {self.action} cannot be kept.", hint="Name a smaller workspace.")
            yield f"{what}: none is reported."

    @property
    def stale(self) -> bool:
        """Whether there may be something new that another box was the first to hear of, or something is still to be done."""
        if self._to_remove:
            return True
        for tree, seen in zip(self._trees, self._seen, strict=True):
            if tree.stale or tree.version != seen or not tree.watched:
                return True
        return False

    def after_run(self, *, idle: bool) -> tuple[Denial, ...]:
        """What is new since the last call; does nothing where the host cannot tell. idle: no other run is under way."""
        TREES.dispatch()

        def look(tree: Tree) -> None:
            if tree.watched or self.action != "report":
                tree.look(everything=not tree.watched)

        # A program that closes a folder to itself does an ordinary thing: where a report will do, the end of the box tells of it.
        return self._look(look, idle=idle, closed=self.action != "report")

    def look(self, *, idle: bool) -> tuple[Denial, ...]:
        """What is new since the last call, by a look at everything that the box may write."""
        return self._look(lambda tree: tree.look(everything=True), idle=idle)

    def last(self) -> tuple[Denial, ...]:
        """What is new since the last call, when nothing runs any more: every index that changed is read, told of or not."""
        TREES.dispatch()
        return self._look(lambda tree: tree.look(everything=not tree.watched, indexes_since=self._began), idle=True)

    def close(self) -> None:
        for folder in self._folders:
            TREES.give_back(folder)
        self._folders = []

    def _look(self, look: Callable[[Tree], None], *, idle: bool, closed: bool = True) -> tuple[Denial, ...]:
        """What look finds. closed: told of is also what cannot be looked into."""
        if self._blind:
            return ()  # nobody knows what was there before
        with self._guard:
            return self._looked(look, idle, closed)

    def _looked(self, look: Callable[[Tree], None], idle: bool, closed: bool) -> tuple[Denial, ...]:
        if idle and self._to_remove:
            self._remove()
        found: list[Denial] = []
        for at, tree in enumerate(self._trees):
            try:
                look(tree)
            except OSError as error:
                self._remark(f"{tree.root} could not be looked through for planted repositories: {error.strerror}.")
                continue
            if not tree.watched and self.action == "report":
                self._remark(
                    f"what is planted in {tree.root} is found only when the box ends: this host tells of no changes there."
                )
            if tree.version != self._seen[at]:
                self._seen[at] = tree.version
                found += self._new(at, tree, idle)
            found += self._unseen(at, tree, closed)
        if len(found) > MAX_TOLD:
            more = self._denial(found[-1].target, f"one of {len(found) - MAX_TOLD} more that are not told one by one")
            found = [*found[:MAX_TOLD], more]
        self.reported += found[: max(0, MAX_REPORTED - len(self.reported))]
        return tuple(found)

    def _unseen(self, at: int, tree: Tree, closed: bool) -> Iterator[Denial]:
        """What may hide a repository: told like one, once. closed: folders that cannot be looked into too."""
        if not tree.whole and not self._cut:
            self._cut = True
            yield self._denial(tree.root, f"too much to be looked through ({MAX_ENTRIES} entries, {MAX_SECONDS:g} s)")
        for path in sorted(tree.unseen - self._closed[at])[: MAX_TOLD if closed else 0]:
            self._closed[at].add(path)
            yield self._denial(os.path.join(tree.root, path), "a folder that cannot be looked into")

    def _remark(self, note: str) -> None:
        if note not in self.notes:
            self.notes += (note,)

    def _new(self, at: int, tree: Tree, idle: bool) -> Iterator[Denial]:
        repositories, gitlinks = self._known[at]
        for path, repository in sorted(tree.repositories.items()):
            if repositories.get(path) == repository or not tree.has(path, repository):
                continue
            repositories[path] = repository
            what = "a new repository" if os.path.basename(path) == GIT else "a new bare repository"
            if self.action == "remove":
                self._to_remove.append((at, path, repository))
                what += ", to be removed when nothing runs in the box" if not idle else self._remove()
            yield self._denial(os.path.join(tree.root, path), what)
        for directory, links in sorted(tree.gitlinks.items()):
            new = links - gitlinks.get(directory, frozenset())
            gitlinks[directory] = links | gitlinks.get(directory, frozenset())
            index = os.path.join(tree.root, directory, "index")
            for link in sorted(new):
                if link == gitindex.UNREADABLE:
                    yield self._denial(index, "an index that cannot be read whole; it may have gitlinks")
                else:
                    yield self._denial(os.path.join(tree.root, os.path.dirname(directory), link), f"a new gitlink in {index}")

    def _remove(self) -> str:
        """Remove what is still to be removed; returns what became of the last of it, in words."""
        from ringfence.confine.protected import removal  # no box but one that planted something needs it

        what = ""
        while self._to_remove:
            at, path, repository = self._to_remove.pop()
            tree = self._trees[at]
            bare = os.path.basename(path) != GIT
            owner = self._folders[at].owner[0] if self._owners_only else None
            try:
                removal.remove(tree.root, path, (repository.device, repository.inode), layout_only=bare, owner=owner)
                self._known[at][0].pop(path, None)  # made again it is new again, though its inode may have the same number
                what = ", removed"
            except OSError as error:
                what = f", which could not be removed: {error.strerror}"
                self._remark(f"{os.path.join(tree.root, path)} could not be removed: {error.strerror}.")
        return what

    def _denial(self, target: str, what: str) -> Denial:
        remedy = None if self.action == "report" else "on_planted: report"
        return Denial(KIND, target, f"on_planted: {self.action}", "observed", remedy, what)


def writable_folders(policy: ResolvedPolicy) -> list[Folder]:
    """The folders of the host that a box of this policy may write."""
    folders = [folder for folder in policy.writable if folder.is_dir]
    if policy.workspace and policy.mode != "read-only":
        folders.append(policy.workspace)
    return folders
