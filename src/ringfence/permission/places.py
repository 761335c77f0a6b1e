"""What paths and program names of a command are on this host: by every spelling that a rule may be written in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from ringfence.permission.shell import Folders
from ringfence.permission.words import absolute
from ringfence.values import frozen

MANY_IN_ONE = ("busybox", "toybox", "coreutils", "box", "uutils")
"""Files that are many programs: that two names lead to one of these does not make them one program."""
MAX_LINKS = 8


@frozen
class View:
    """Where a command starts: root, the folder; home, the caller's; path, the folders that the box looks for programs in.

    checked: whether a box's own PATH is known, so that a program which is not in it is started by nobody.
    """

    root: str
    home: str
    path: tuple[str, ...]
    checked: bool = False

    def paths(self, said: str, folders: Folders) -> tuple[str, ...]:
        """Every absolute path that a word may mean, as it is spelled and where it leads."""
        found: list[str] = []
        for folder in folders:
            if folder is None and not said.startswith(("/", "~")):
                continue
            spelled = absolute(said, absolute(folder or "", self.root, self.home), self.home)
            found += [spelled, os.path.realpath(spelled)]
        return tuple(dict.fromkeys(found))

    def names(self, program: str, folders: Folders) -> tuple[str, ...]:
        """What the program that a word starts is called: paths and names, through every link."""
        starts = self.paths(program, folders) if "/" in program else (self.found(program),)
        found: list[str] = []
        for path in filter(None, starts):
            for _ in range(MAX_LINKS):
                found += [path, os.path.basename(path)]
                try:
                    path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
                except OSError:
                    break
        return tuple(dict.fromkeys(found))

    def found(self, program: str) -> str:
        """The file that a name starts by the box's PATH, or the empty string."""
        for folder in self.path:
            path = os.path.join(folder, program)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return ""

    def same(self, one: str, names: Sequence[str]) -> bool:
        """Whether the program that a rule names is the file that one of names is, however both are called."""
        own = one if one.startswith("/") else self.found(one) if "/" not in one else ""
        mine = _identity(own) if own else None
        return mine is not None and any(name.startswith("/") and _identity(name) == mine for name in names)


@lru_cache(maxsize=512)
def _identity(path: str) -> tuple[int, int] | None:
    """Which file a path leads to. Kept, since it is asked for each rule: a box's programs do not change under a caller."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return None if os.path.basename(os.path.realpath(path)) in MANY_IN_ONE else (found.st_dev, found.st_ino)


def view_of(root: str, home: str, closed: Sequence[str] = (), *, checked: bool = False) -> View:
    """The view of a box: of the caller's PATH what is absolute and not within folders that the box may write."""
    given = os.environ.get("PATH", os.defpath).split(":")
    kept = [
        folder for folder in given if folder.startswith("/") and not any(_within(os.path.realpath(folder), each) for each in closed)
    ]
    return View(root, home.rstrip("/") or "/", tuple(dict.fromkeys(kept)), checked)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
