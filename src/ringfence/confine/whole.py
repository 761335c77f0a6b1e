"""The view of mode danger-full-access: the host's files at their own paths, as the caller sees them.

What is of this machine and not of its files stays the box's own: /proc, /sys, /dev, and /run, whose sockets lead to programs of the
host that act for whoever asks. A root caller's box has the rights of the workspace's owner, through mounts that are idmapped one
by one; a file system below / that cannot be is there as anybody may see it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ringfence.confine.plan import WRITABLE, Step, Tree
from ringfence.policy.patterns import is_glob, within
from ringfence.policy.resolve import ResolvedPolicy, mounts_below

OWN = ("/proc", "/sys", "/dev", "/run", "/.ringfence", "/.old-root", "/.scratch")


def host_files(*, root_caller: bool) -> Iterator[Tree | Step]:
    """Every entry of / but the box's own; for a root caller, whose mounts are idmapped one by one, with the mounts below them."""
    for name in sorted(os.listdir("/")):
        path = f"/{name}"
        kind = os.lstat(path).st_mode
        if path in OWN:
            continue
        if stat.S_ISLNK(kind):
            yield Step("link", path, content=os.fsencode(os.readlink(path)))
        elif stat.S_ISDIR(kind) or stat.S_ISREG(kind):
            folder = stat.S_ISDIR(kind)
            yield Tree(path, path, WRITABLE, recursive=folder and not root_caller, idmapped=root_caller)
    if root_caller:
        for path in sorted(dict.fromkeys(mounts_below("/"))):
            if not any(within(path, own) for own in OWN) and os.path.lexists(path):
                yield Tree(path, path, WRITABLE, idmapped=True, optional=True)


def held_files(policy: ResolvedPolicy) -> Iterator[Step]:
    """What `protect` names outside the shared folders, where all is writable: held, with every folder above it."""
    shared = [folder.path for folder in (policy.workspace, *policy.writable) if folder]
    held = {os.path.realpath(path) for path in policy.protect if not is_glob(path) and os.path.exists(path)}
    held = {path for path in held if not any(within(path, root) for root in shared)}
    above = {parent for path in held for parent in _folders_above(path)} - held
    for path in sorted(held | above, key=lambda path: path.count("/")):
        found = os.stat(path)
        yield Step("protect" if path in held else "pin", path, identity=(found.st_dev, found.st_ino))


def _folders_above(path: str) -> Iterator[str]:
    """The folders above path, without the first: that is a mount already."""
    while (path := os.path.dirname(path)).count("/") > 1:
        yield path
