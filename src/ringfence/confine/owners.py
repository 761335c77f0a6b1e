"""How many entries of a root caller's workspace belong to others than its owner: the box may not write them."""

from __future__ import annotations

from ringfence.policy.resolve import Folder
from ringfence.policy.walk import Tree

MAX_ENTRIES = 2_000
"""Entries whose owners are asked for, once for each workspace of a process: 7 ms. Those of its folders are known from the walk."""


def note_of(workspace: Folder, tree: Tree | None) -> str:
    """What enforcement says of entries of other owners; empty where there are none. tree: the walk of the workspace.

    Not promised: that the count is of this moment, since another owner does not change the folder that an entry lies in. It is
    'at least' where the bound or a folder that cannot be read ended it.
    """
    count, whole = tree.others(workspace.owner[0]) if tree else (0, False)
    number = f"{count}" if whole else f"at least {count}"
    return f"{number} entries of the workspace belong to other owners" if count or not whole else ""
