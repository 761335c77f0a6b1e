"""How many entries of a root caller's workspace belong to others than its owner: the box may not write them."""

from __future__ import annotations

import os

from ringfence.policy.resolve import Folder

MAX_ENTRIES = 20_000
"""Entries looked at, once for each workspace of a process; about 0.1 s on a warm disk."""

_notes: dict[tuple[str, int, int], str] = {}


def note_of(workspace: Folder) -> str:
    """What enforcement says of entries of other owners; empty where there are none. Counted once for each process.

    Not promised: that the count is of this moment. It is 'at least' where the bound or a folder that cannot be read ended it.
    """
    key = (workspace.path, workspace.device, workspace.inode)  # an inode alone is used again when its folder is removed
    if key not in _notes:
        count, whole = others(workspace.path, workspace.owner[0])
        number = f"{count}" if whole else f"at least {count}"
        _notes[key] = f"{number} entries of the workspace belong to other owners" if count or not whole else ""
    return _notes[key]


def others(path: str, owner: int, most: int = MAX_ENTRIES) -> tuple[int, bool]:
    """(entries below path whose uid is not owner, whether all were looked at). Links are counted and never followed."""
    count, left, whole = 0, most, True
    folders = [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if left == 0:
                        return count, False
                    left -= 1
                    count += entry.stat(follow_symlinks=False).st_uid != owner
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # removed meanwhile, or a path longer than the kernel takes
            whole = False
    return count, whole
