"""The caps of a local box: what the kernel is told, and what may be claimed of each."""

from __future__ import annotations

from ringfence.outcome import Enforced, Level
from ringfence.policy.config import SandboxLimits
from ringfence.policy.resolve import ResolvedPolicy


def rlimits(policy: ResolvedPolicy) -> dict[str, int]:
    """The limits that the kernel checks for each process (getrlimit(2)); CPU seconds are whole, rounded up."""
    limits = policy.limits
    wanted = {
        "cpu": -(-limits.cpu_seconds // 1) if limits.cpu_seconds is not None else None,
        "open_files": limits.open_files,
        "file_size": limits.file_size_bytes,
    }
    return {name: int(value) for name, value in wanted.items() if value is not None}


def asked_for(policy: ResolvedPolicy) -> bool:
    """Whether a limit of single processes differs from its default; then commands start by the slower, exact way."""
    default = SandboxLimits()
    names = ("cpu_seconds", "open_files", "file_size_bytes")
    return any(getattr(policy.limits, name) not in (None, getattr(default, name)) for name in names)


def limits_enforced(policy: ResolvedPolicy) -> dict[str, Enforced]:
    """The caps that every local box has alike, each with its mechanism."""
    limits = policy.limits
    enforced = {"output": Enforced(Level.FULL, "bounded reading")}
    if limits.wall_seconds is not None:
        enforced["wall"] = Enforced(Level.FULL, "timer outside the box")
    if limits.cpu_seconds is not None:
        enforced["cpu"] = Enforced(Level.PARTIAL, "rlimit", "counted for each process, not for the tree")
    if limits.open_files is not None:
        exact = Enforced(Level.FULL, "rlimit", "for each process")
        late = Enforced(Level.PARTIAL, "rlimit", "for each process; hard only a moment after it began, as for every default")
        enforced["open_files"] = exact if asked_for(policy) else late
    if limits.file_size_bytes is not None:
        enforced["file_size"] = Enforced(Level.FULL, "rlimit", "for each process")
    for dimension, seconds in (("lifetime", limits.lifetime_seconds), ("idle", limits.idle_seconds)):
        if seconds is not None:
            enforced[dimension] = Enforced(Level.FULL, "timer outside the box")
    without = "not built in this version" + ("; best_effort goes without it" if policy.best_effort else "")
    for dimension, asked in (
        ("memory", limits.memory_bytes or limits.memory_guaranteed_bytes),
        ("max_processes", limits.max_processes),
        ("disk", limits.disk_bytes),
        ("inodes", limits.inodes),
        ("cpu_share", limits.cpu_limit or limits.cpu_guaranteed),
    ):
        if asked is not None:
            enforced[dimension] = Enforced(Level.NONE, "", without)
    return enforced
