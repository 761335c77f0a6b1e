"""Look at the writable folders of a policy for what has to be protected in them. Reads names and settings, runs nothing."""

from __future__ import annotations

import os
import stat

from ringfence.confine.protected.plan import COPIES, Protected
from ringfence.errors import WorkspaceError
from ringfence.policy.resolve import Folder, ResolvedPolicy


def find(policy: ResolvedPolicy) -> tuple[Protected, ...]:
    """What is protected for a box of this policy, and how.

    Raises WorkspaceError for a protected file that has another name too, through which it could be written.
    """
    found: list[Protected] = []
    for root in _writable(policy):
        _repository(f"{root.path}/.git", len(found), found)
    return tuple(found)


def _writable(policy: ResolvedPolicy) -> list[Folder]:
    roots = [folder for folder in policy.writable if folder.is_dir]
    if policy.workspace and policy.mode == "workspace-write":
        roots.append(policy.workspace)
    return roots


def _repository(path: str, number: int, found: list[Protected]) -> None:
    git = _look(path)
    if git is None or not stat.S_ISDIR(git.st_mode):
        return
    found.append(Protected(path, "pin", True, git.st_dev, git.st_ino))
    for name in ("config", "hooks"):
        inner = _look(f"{path}/{name}")
        if inner is not None:
            is_dir = stat.S_ISDIR(inner.st_mode)
            copy = f"{COPIES}/{number}/{name}"
            found.append(Protected(f"{path}/{name}", "private", is_dir, inner.st_dev, inner.st_ino, copy))


def _look(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be looked at, so it cannot be protected: {error.strerror}.") from None
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise WorkspaceError(
            f"{path} is protected, but has {found.st_nlink} names: it could be written through another.",
            hint=f"Give it one name: `cp -p {path} {path}.one && mv {path}.one {path}`.",
        )
    return found
