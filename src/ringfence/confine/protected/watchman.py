"""One thread for all boxes of this process: it takes away what appears under a name that is watched for, and has mounts put back.

It lives as long as a box needs it, and some seconds more. What it has not come to when a run ends, the end of the run does
itself, under the same locks: so a result tells of everything that happened before, and nothing depends on the thread alone.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterable

from ringfence.guest import kernel
from ringfence.outcome import Denial
from ringfence.policy.inotify import IN_IGNORED, IN_Q_OVERFLOW, NAMES, Inotify

LINGER_SECONDS = 5.0
"""How long the thread stays after the last box: most programs make one box after another."""
BETWEEN_SECONDS = 0.05
"""Mounts are looked at no more often: a box that moves its folders about could keep the thread, and its caller, busy."""
KEPT_GROUPS = 8
KIND = "write"
MAX_KEPT = 100
"""Things kept of one box: one that makes them in a loop would fill the host's disk with folders."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Group:
    """The names that boxes alike watch for. Kept for a while without a box, since most programs make one after another."""

    def __init__(self, paths: Iterable[str], roots: Iterable[str]) -> None:
        self.roots = tuple(roots)
        self.paths = set(paths)
        self.boxes: list[Names] = []

    def steps(self, path: str) -> Iterable[tuple[str, str]]:
        """(folder, name) of every step from the root that holds path down to it: any of them may be made, or exchanged."""
        root = max((root for root in self.roots if path.startswith(root.rstrip("/") + "/")), key=len, default=os.path.dirname(path))
        while len(path) > len(root):
            path, name = os.path.split(path)
            yield path, name


class Names:
    """What one box watches for, and what was found there and not told yet.

    paths: names that are to stay empty. held: names under which another file would take a mount off; then came_off is called, in
    the thread, and what has the name stays.
    """

    def __init__(self, paths: Iterable[str], held: Iterable[str], roots: Iterable[str], came_off: Callable[[], None]) -> None:
        self.expected = dict.fromkeys(held, came_off)
        self.paths, self.roots = (*paths, *self.expected), tuple(roots)
        self.found: list[Denial] = []
        self.kept = 0
        self.groups: list[Group] = []


class Watchman:
    """Every box's names. guard is held while something is taken away."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.descriptor = -1
        self._inotify: Inotify | None = None
        self._thread: threading.Thread | None = None
        self._live = 0  # boxes that need the thread
        self._idle_since = 0.0
        self._groups: dict[tuple[tuple[str, ...], tuple[str, ...]], Group] = {}
        self._due: list[Callable[[], None]] = []
        self._numbers: dict[str, int] = {}  # of the watch, by folder
        self._folders: dict[int, str] = {}
        self._meant: dict[str, set[str]] = {}  # by the path of each step: the paths it leads to

    def add(self, names: Names) -> None:
        """Watch for the names of a box, from now on."""
        with self.guard:
            self._live += 1
            self._start()
            self._join(names, names.paths)

    def remove(self, names: Names) -> None:
        with self.guard:
            for group in names.groups:
                group.boxes.remove(names)
            names.groups = []
            self._live -= 1
            self._idle_since = time.monotonic()
            if len(self._groups) > KEPT_GROUPS:
                self._forget_idle()

    def settle(self, names: Names) -> None:
        """Take away whatever has appeared until now."""
        with self.guard:
            if self._inotify is None:
                for group in names.groups:
                    for path in group.paths:
                        self._take(path)
            else:
                self._hear(self._inotify)

    def forget(self) -> None:
        """In a fork of this process: queue and thread are the parent's."""
        self.guard = threading.RLock()
        if self._inotify is not None:
            self._inotify.close()
        self._clear()

    # The rest is called with the guard held

    def _join(self, names: Names, paths: tuple[str, ...]) -> None:
        group = self._groups.get((paths, names.roots))
        if group is None:
            group = self._groups[paths, names.roots] = Group(paths, names.roots)
            for path in paths:
                self._expect(group, path)
        group.boxes.append(names)
        names.groups.append(group)

    def _forget_idle(self) -> None:
        """Begin again with the groups that have a box."""
        self._groups = {key: group for key, group in self._groups.items() if group.boxes}
        for number in self._folders:
            assert self._inotify is not None
            self._inotify.forget(number)
        for held in (self._numbers, self._folders, self._meant):
            held.clear()
        for group in self._groups.values():
            for path in group.paths:
                self._expect(group, path)

    def _expect(self, group: Group, path: str) -> None:
        for folder, name in group.steps(path):
            self._meant.setdefault(f"{folder}/{name}", set()).add(path)
            if folder not in self._numbers:
                self._watch(folder)

    def _watch(self, folder: str) -> None:
        try:
            opened = kernel.open_path(os.fsencode(folder), follow=False, flags=_FOLDER)
        except OSError:
            return  # not there yet: the step above it tells
        try:
            if self._inotify is not None:
                number = self._inotify.watch(opened, NAMES)
                self._numbers[folder] = number
                self._folders[number] = folder
        except OSError:
            pass  # no watch left on this host: the look at the end of a run remains
        finally:
            os.close(opened)

    def _hear(self, inotify: Inotify) -> None:
        steps: dict[str, None] = {}  # each once, however often: a box makes names faster than they are looked at
        for number, mask, name in inotify.events():
            if mask & IN_Q_OVERFLOW:
                steps |= dict.fromkeys(self._meant)
            folder = self._folders.get(number, "")
            if mask & IN_IGNORED:
                self._folders.pop(number, None)
                if self._numbers.get(folder) == number:
                    del self._numbers[folder]
            elif folder:
                steps[f"{folder}/{name}"] = None
        for step in steps:
            self._appeared(step)

    def _appeared(self, step: str) -> None:
        paths = self._meant.get(step)
        if not paths:
            return
        if paths != {step}:  # a folder on the way, maybe in the place of another: what lies in it is looked for anew
            self._numbers.pop(step, None)
            self._watch(step)
            for inner in [inner for inner in self._meant if inner.startswith(step + "/")]:
                self._numbers.pop(os.path.dirname(inner), None)
                self._watch(os.path.dirname(inner))
        for path in list(paths):
            self._take(path)

    def _take(self, path: str) -> None:
        watching = [names for group in self._groups.values() if path in group.paths for names in group.boxes]
        self._due += [names.expected[path] for names in watching if path in names.expected]
        watching = [names for names in watching if path not in names.expected]
        if not watching:
            return  # of a box that has ended
        from ringfence.confine.protected.quarantine import take_away  # most boxes need none of it

        keep = all(names.kept < MAX_KEPT for names in watching)
        try:
            kept = take_away(path, keep=keep)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return  # not a folder on the way, so nothing has that name
            detail = f"appeared, and could not be taken away: {error.strerror}"
        else:
            if kept is None:
                return
            detail = f"appeared, and was moved to {kept}" if keep else f"appeared, and was removed, after {MAX_KEPT} that were kept"
        for names in watching:
            names.kept += 1
            if len(names.found) < MAX_KEPT:
                names.found.append(Denial(KIND, path, "protected: watch", "observed", None, detail))

    def _start(self) -> None:
        if self._thread is not None:
            return
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                self.descriptor = self._inotify.descriptor
            self._thread = threading.Thread(target=self._serve, args=(self._inotify,), name="ringfence-watchman", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError):  # no instance, descriptor or thread left: then the end of each run looks
            self._thread = None

    def _serve(self, inotify: Inotify) -> None:
        poll = select.poll()
        poll.register(inotify.descriptor, select.POLLIN)
        last = 0.0
        while True:
            poll.poll((BETWEEN_SECONDS if self._due else LINGER_SECONDS) * 1000)
            due: dict[Callable[[], None], None] = {}
            with self.guard:
                if self._inotify is not inotify:
                    return
                self._hear(inotify)
                if time.monotonic() - last >= BETWEEN_SECONDS:
                    due, self._due = dict.fromkeys(self._due), []
                if not self._live and time.monotonic() - self._idle_since > LINGER_SECONDS:
                    inotify.close()
                    self._clear()
                    return
            for each in due:  # without the guard: it takes the box's own first
                each()
            last = time.monotonic() if due else last

    def _clear(self) -> None:
        self._inotify, self._thread, self.descriptor, self._live = None, None, -1, 0
        self._due = []
        self._groups, self._numbers, self._folders, self._meant = {}, {}, {}, {}


WATCHMAN = Watchman()
os.register_at_fork(after_in_child=WATCHMAN.forget)
