"""What is protected and how, as data: the plan holds it, the guest mounts by it, and what watches a run compares with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from ringfence.confine.plan import Step
from ringfence.policy.resolve import Folder
from ringfence.values import frozen, replace

How: TypeAlias = Literal["private", "read-only", "pin", "watch", "stub"]

COPIES = "/.ringfence/copies"
"""Where a box has its private copies; guest/protected.py has the same name."""


_TOLD: dict[How, str] = {
    "private": "the box changes a copy of its own, {}; the host's stays as it is",
    "read-only": "can be read and not changed, also not by a rename over it",
    "stub": "is made for as long as a box is open, so that the box cannot make it",
    "pin": "cannot be renamed or removed, and a rename into or out of it is a copy (EXDEV)",
    "watch": "is not there; what the box makes of it is taken away",
}


@frozen
class Protected:
    """One protected path.

    path: absolute, the same inside and on the host. how: 'private' (the box has a copy of its own, the host's is out of its
    reach), 'read-only' (a mount that cannot be written), 'pin' (a folder on the way, bound onto itself so that it cannot be
    renamed), 'stub' (made by us because it was not there, then held like read-only), 'watch' (not there: nothing is mounted,
    and what appears is to be taken away; its parent may not be there either). device, inode: the file that the outside looked
    at; 0 for 'watch', and for what is to be made. copy: the path inside the box of the private copy, or the empty string.
    """

    path: str
    how: How
    is_dir: bool
    device: int = 0
    inode: int = 0
    copy: str = ""

    def __str__(self) -> str:
        what = _TOLD[self.how].format(self.copy)
        return f"{self.how} {self.path}: {what}"


class Wanted(NamedTuple):
    """What is to be made in a git directory that lacks it, so that there is something to mount over; see stubs.py.

    git: the directory. device, inode, owner: as it was looked at. settings, hooks: whether these names are wanted beside
    `commondir`. folders: hooks folders elsewhere that the settings name.
    """

    git: str
    device: int
    inode: int
    owner: tuple[int, int]
    settings: bool
    hooks: bool
    folders: tuple[str, ...] = ()


class Found(NamedTuple):
    """What a look at the writable folders found. folders: git directories outside them that a linked worktree works in."""

    protected: tuple[Protected, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    folders: tuple[Folder, ...] = ()
    notes: tuple[str, ...] = ()


NOTHING_FOUND = Found()


def with_made(protected: Iterable[Protected], made: Mapping[str, tuple[int, int]]) -> tuple[Protected, ...]:
    """The same with what was made for the box; a name that could not be made is watched for."""
    return tuple(_with_made(each, made.get(each.path)) if each.how != "watch" and not each.inode else each for each in protected)


def _with_made(each: Protected, identity: tuple[int, int] | None) -> Protected:
    if identity is None:
        return Protected(each.path, "watch", each.is_dir)
    return replace(each, device=identity[0], inode=identity[1])


def steps_for(protected: Iterable[Protected]) -> Iterator[Step]:
    """The mounts, outer paths before inner ones: an outer mount made later would hide the inner."""
    made = [each for each in protected if each.how != "watch"]
    if any(each.copy for each in made):
        yield Step("private", COPIES, 0o700)
    for each in sorted(made, key=lambda each: each.path.count("/")):
        identity = (each.device, each.inode)
        if each.copy:
            kind = "private-folder" if each.is_dir else "private-file"
            yield Step(kind, each.path, content=os.fsencode(each.copy), identity=identity)
        else:
            yield Step("pin" if each.how == "pin" else "protect", each.path, identity=identity)
