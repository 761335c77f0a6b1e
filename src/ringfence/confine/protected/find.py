"""Look at the writable folders of a policy for what has to be protected in them. Reads names and settings, runs nothing.

Every path is walked from its writable folder, name by name: a folder on the way is pinned, a link is held itself and its
target too where that lies in a writable folder. A target elsewhere is never mounted: the box could have made the link.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringfence.confine.protected import names
from ringfence.confine.protected.look import Look
from ringfence.confine.protected.plan import Found
from ringfence.confine.protected.repository import Repositories
from ringfence.policy.resolve import ResolvedPolicy


def find(policy: ResolvedPolicy, home: str, covered: Collection[str] = (), nested: Iterable[str] = ()) -> Found:
    """What is protected for a box of this policy, and how.

    home: the caller's. covered: paths that the box may not even read, which are held by that. nested: worktrees of
    repositories further in.

    Raises WorkspaceError for a protected file that has another name too, through which it could be written.
    """
    look = Look(policy, home, covered)
    repositories = Repositories(look)
    roots = [folder.path for folder in (*policy.writable, *((policy.workspace,) if policy.workspace else ())) if folder.is_dir]
    for root in (*roots, *nested):
        repositories.at(root)
        look.settings(root, names.SETTINGS, missing=True)
    for root in roots:
        look.settings(root, names.SHELLS, missing=False)
    for pattern in policy.protect:
        look.narrow(pattern)
    return look.result(tuple(repositories.folders))
