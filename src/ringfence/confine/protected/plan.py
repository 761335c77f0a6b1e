"""What is protected and how, as data: the plan holds it, the guest mounts by it, and what watches a run compares with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

How: TypeAlias = Literal["private", "read-only", "pin", "watch", "stub"]


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
