"""The caps on files of a local box: sized memory for what is private, and what single files are bound to in shared folders."""

from __future__ import annotations

from ringfence.policy.resolve import Folder, ResolvedPolicy

SCRATCH_BYTES = 2 << 30
"""Bound of the private folders together (home, temp, shm, an ephemeral workspace); in memory, taken only as it is filled."""
SCRATCH_INODES = SCRATCH_BYTES // 4096
"""And of their files: one for each page. Each takes about a KiB of the kernel's memory, which tmpfs bounds by nothing else."""


def shared_folders(policy: ResolvedPolicy) -> tuple[Folder, ...]:
    """The folders of the host that the box may write."""
    workspace = (policy.workspace,) if policy.workspace and policy.mode != "read-only" else ()
    return (*workspace, *policy.writable)


def largest_file(policy: ResolvedPolicy) -> int | None:
    """Bytes of the largest file: the cap on it, or that on the disk where files go into a folder of the host.

    There nothing but this stops one call from taking what the whole box may, as fallocate(2) does at once.
    """
    caps = [policy.limits.file_size_bytes]
    if shared_folders(policy):
        caps.append(policy.limits.disk_bytes)
    return min((cap for cap in caps if cap is not None), default=None)
