"""Look at the writable folders of a policy for what has to be protected in them. Reads names and settings, runs nothing.

Every path is walked from its writable folder, name by name: a folder on the way is pinned, a link is held itself and its
target too where that lies in a writable folder. A target elsewhere is never mounted: the box could have made the link.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from ringfence.confine.protected.look import Look
from ringfence.confine.protected.plan import Found
from ringfence.confine.protected.planted import TREES, writable_folders
from ringfence.confine.protected.repository import Repositories
from ringfence.errors import ConfigError, WorkspaceError
from ringfence.policy import patterns
from ringfence.policy import settings as names
from ringfence.policy.resolve import ResolvedPolicy
from ringfence.policy.walk import remembered

MAX_REPOSITORIES = 2000


def find(policy: ResolvedPolicy, home: str, covered: Collection[str] = (), nested: Iterable[str] = ()) -> Found:
    """What is protected for a box of this policy, and how.

    home: the caller's. covered: paths that the box may not even read, which are held by that. nested: worktrees of
    repositories further in.

    Raises WorkspaceError for a protected file that has another name too, through which it could be written, and for more
    repositories than can be held; ConfigError for a protect that would close the folder itself.
    """
    look = Look(policy, home, covered)
    repositories = Repositories(look)
    roots = [folder.path for folder in (*policy.writable, *((policy.workspace,) if policy.workspace else ())) if folder.is_dir]
    for root in roots:
        repositories.above(root)
        repositories.at(root)
        look.settings(root, names.SETTINGS, missing=True)
        look.settings(root, names.SHELLS, missing=False)
    for worktree in nested:
        repositories.at(worktree)
        look.settings(worktree, names.SETTINGS, missing=False)
    _asked_for(policy, look)
    return look.result(tuple(repositories.folders))


def _asked_for(policy: ResolvedPolicy, look: Look) -> None:
    """What the config names in protect: paths whether they are there or not, patterns by what they match now."""
    globs = tuple(pattern for pattern in policy.protect if patterns.is_glob(pattern))
    for pattern in policy.protect:
        if pattern in globs:
            continue
        path = patterns.literal(pattern)
        if any(writable and patterns.within(root, path) for root, writable in look.named.items()):
            raise ConfigError(
                f"protect names {path}, and a folder that the box may write is or lies in it.",
                hint="Name it in read_only, or set mode='read-only', for a folder that is not to be written at all.",
            )
        look.narrow(path)
    if not globs:
        return
    matched = set()
    for folder in writable_folders(policy):
        for each in remembered(folder.path, globs).find(policy.walk_entries, 0):
            matched.add(each.rule)
            look.narrow(each.path)
    look.notes += [
        f"protect {pattern!r} matches nothing now; what comes to match it is not held."
        for pattern in globs
        if pattern not in matched
    ]


def nested_in(policy: ResolvedPolicy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(worktrees of the repositories further in the writable folders, outer before inner, and the bare ones; what was not seen).

    Taken from what is looked through for planted repositories, which the kernel keeps true from one box to the next. Raises
    WorkspaceError where there are more than can be held.
    """
    found: list[str] = []
    unseen: list[str] = []
    for folder in writable_folders(policy):
        tree = TREES.take(folder)
        try:
            TREES.dispatch()
            tree.look(everything=not (tree.watched and tree.whole))
            there = [path for path, repository in list(tree.repositories.items()) if tree.has(path, repository)]
            inner = (os.path.dirname(path) if os.path.basename(path) == names.GIT else path for path in there)
            found += [f"{folder.path}/{path}" for path in inner if path not in ("", ".")]
            if not tree.whole:
                unseen.append(f"{folder.path} is too large to be looked through: repositories further in it may not be held.")
        finally:
            TREES.give_back(folder)
    if len(found) > MAX_REPOSITORIES:
        raise WorkspaceError(
            f"the box could write {len(found)} repositories; {MAX_REPOSITORIES} can be protected.",
            hint="Name a folder that holds fewer of them, or set mode='read-only'.",
        )
    return tuple(sorted(found)), tuple(unseen)
