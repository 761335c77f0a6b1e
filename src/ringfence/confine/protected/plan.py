"""What is protected and how, as data: the plan holds it, the guest mounts by it, and what watches a run compares with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ringfence.confine.plan import Step

How: TypeAlias = Literal["private", "read-only", "pin", "watch", "stub"]

COPIES = "/.ringfence/copies"
"""Where a box has its private copies; guest/protected.py has the same name."""


@dataclass(frozen=True, slots=True)
class Protected:
    """One protected path.

    path: absolute, the same inside and on the host. how: 'private' (the box has a copy of its own, the host's is out of its
    reach), 'read-only' (a mount that cannot be written), 'pin' (a folder on the way, bound onto itself so that it cannot be
    renamed), 'stub' (made by us because it was not there, then held like read-only), 'watch' (not there: nothing is mounted,
    and what appears is to be taken away). device, inode: the file that the outside looked at; 0 for 'watch'.
    copy: the path inside the box of the private copy, or the empty string.
    """

    path: str
    how: How
    is_dir: bool
    device: int = 0
    inode: int = 0
    copy: str = ""

    def __str__(self) -> str:
        return f"{self.how} {self.path}" + (f" (the box has {self.copy})" if self.copy else "")


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
