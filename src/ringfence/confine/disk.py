"""The caps on what a box adds to disks: sized memory for what is private, a monitor over the folders of the host that it shares."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from ringfence.confine.limits import Lacking, Offer
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

SCRATCH_BYTES = 2 << 30
"""Bound of the private folders together (home, temp, shm, an ephemeral workspace); in memory, taken only as it is filled."""
PAGE, LEAST_FILES = 4096, 4096
"""They hold a file for each page, and some in any case: each takes about a KiB of memory, which tmpfs bounds by nothing else."""
TMPFS, MONITOR = "tmpfs", "monitor"
SEEN = "shared folders are looked at, mostly every 0.2 s, and what runs is ended; a single file is bound at once"


def scratch(policy: ResolvedPolicy) -> tuple[int, int]:
    """Bytes and files of the private folders. They are kept in memory: files alone take at most half of its cap."""
    memory = policy.limits.memory_bytes
    most = SCRATCH_BYTES if memory is None else min(SCRATCH_BYTES, memory // 2)
    return most, max(LEAST_FILES, most // PAGE)


def offer(policy: ResolvedPolicy) -> Offer:
    """How far a box with a view of its own holds the caps on disk and inodes."""
    asked = {"disk": policy.limits.disk_bytes, "inodes": policy.limits.inodes}
    most, files = scratch(policy)
    bounds = {"disk": f"{most / (1 << 30):g} GiB in memory", "inodes": f"{files} files"}
    if policy.mode == "danger-full-access":
        return dict.fromkeys(asked, Lacking("mode danger-full-access opens all of the host's files"))
    if not policy.shared:
        said = "home, temp, shm and workspace together, at most "
        return {cap: Enforced(Level.FULL, TMPFS, said + bound) for cap, bound in bounds.items()}
    alone = {cap: Enforced(Level.PARTIAL, TMPFS, f"of the private folders alone: {bound}") for cap, bound in bounds.items()}
    watched = Enforced(Level.PARTIAL, f"{MONITOR} and {TMPFS}", SEEN)
    return {cap: held if asked[cap] is None else watched for cap, held in alone.items()}


def observed(policy: ResolvedPolicy, *, floor: bool = False) -> frozenset[str]:
    """The caps of which the warden sees that they are met."""
    asked = {"disk": policy.limits.disk_bytes, "inodes": policy.limits.inodes}
    return frozenset(cap for cap, value in asked.items() if value is not None or not floor)


def floor_offer(policy: ResolvedPolicy) -> Offer:
    """The same of a box that is not confined: all of its folders are the host's."""
    held = Enforced(Level.PARTIAL, MONITOR, f"of the workspace and the private folders alone; {SEEN}")
    asked = {"disk": policy.limits.disk_bytes, "inodes": policy.limits.inodes}
    return {cap: held for cap, value in asked.items() if value is not None}


def watchers(policy: ResolvedPolicy, private: str | None = None) -> dict[str, Mapping[str, object]]:
    """Who of the warden watches the disks for a box. private: the folder of the host that its private folders are in, if any is."""
    limits = policy.limits
    if limits.disk_bytes is None and limits.inodes is None and not limits.kills & {"disk", "inodes"}:
        return {}
    wanted: dict[str, Mapping[str, object]] = {}
    if private is None:
        wanted["full"] = {"disk": limits.disk_bytes or 0, "inodes": limits.inodes or 0, "ends": sorted(limits.kills)}
    folders = [(folder.path, folder.device, folder.inode) for folder in policy.shared]
    if private is not None:
        found = os.stat(private)
        folders.append((private, found.st_dev, found.st_ino))
    if folders and (limits.disk_bytes or limits.inodes):
        bounds = {"disk": limits.disk_bytes or 0, "inodes": limits.inodes or 0}
        wanted["disk"] = {**bounds, "folders": folders, "since": time.time_ns()}
    return wanted
