"""The caps on what a box adds to disks: sized memory for what is private, a monitor over the folders of the host that it shares."""

from __future__ import annotations

from ringfence.confine.limits import Lacking, Offer, shared_folders
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

SCRATCH_BYTES = 2 << 30
"""Bound of the private folders together (home, temp, shm, an ephemeral workspace); in memory, taken only as it is filled."""
SCRATCH_INODES = SCRATCH_BYTES // 4096
"""And of their files: one for each page. Each takes about a KiB of the kernel's memory, which tmpfs bounds by nothing else."""
TMPFS = "tmpfs"


def scratch(policy: ResolvedPolicy) -> tuple[int, int]:
    """Bytes and files of the private folders. They are kept in memory: files alone take at most half of its cap."""
    memory = policy.limits.memory_bytes
    return (SCRATCH_BYTES if memory is None else min(SCRATCH_BYTES, memory // 2)), SCRATCH_INODES


def offer(policy: ResolvedPolicy) -> Offer:
    """How far a box with a view of its own holds the caps on disk and inodes."""
    asked = {"disk": policy.limits.disk_bytes, "inodes": policy.limits.inodes}
    most, files = scratch(policy)
    bounds = {"disk": f"{most / (1 << 30):g} GiB in memory", "inodes": f"{files} files"}
    if policy.mode == "danger-full-access":
        return dict.fromkeys(asked, Lacking("mode danger-full-access opens all of the host's files"))
    if not shared_folders(policy):
        said = "home, temp, shm and workspace together, at most "
        return {cap: Enforced(Level.FULL, TMPFS, said + bound) for cap, bound in bounds.items()}
    alone = {cap: Enforced(Level.PARTIAL, TMPFS, f"of the private folders alone: {bound}") for cap, bound in bounds.items()}
    return {cap: held for cap, held in alone.items() if asked[cap] is None}
