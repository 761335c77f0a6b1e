"""What this host has of cores and memory, and what of it this process may use: by affinity, by the control groups that it is in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ringfence.confine.cgroups import hierarchies
from ringfence.confine.processors import listed
from ringfence.errors import UnenforceableError
from ringfence.outcome import NOT_ENFORCED, Enforced, Level
from ringfence.policy.config import CEILING_OF_GUARANTEED, SandboxLimits, Unasked
from ringfence.policy.keys import KEY_OF
from ringfence.policy.resolve import ResolvedPolicy
from ringfence.policy.unbuilt import Refusal, is_excused

FILES = {
    "v1": ("memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "v2": ("memory.max", "cpu.max", ""),
}
"""Where a control group has its limits, in each version; cpu.max has quota and period (cgroups(7), and the kernel's cgroup-v2)."""


class Bound(NamedTuple):
    """Something that has so much and no more: the host, the affinity of this process, a control group. None: it bounds no such."""

    name: str
    cores: float | None
    memory: int | None


@cache
def host() -> Bound:
    """All processors that are online, and MemTotal of proc_meminfo(5)."""
    memory = None
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                memory = int(line.split()[1]) * 1024
    return Bound("this host", os.cpu_count(), memory)


def bounds() -> list[Bound]:
    """The host first, then what bounds this process further: boxes that have a bound in common share it."""
    found = [host()]
    own = os.sched_getaffinity(0)
    if len(own) < (os.cpu_count() or 0):
        found.append(Bound(f"processors {listed(sorted(own))}, those of this process", len(own), None))
    for hierarchy in hierarchies():
        if hierarchy.controllers & {"memory", "cpu"} or not hierarchy.controllers:
            found += of_groups(hierarchy.group, hierarchy.mount, "v1" if hierarchy.controllers else "v2")
    return found


def of_groups(group: str, mount: str, version: str) -> Iterator[Bound]:
    """A group and those above it, as far as they are mounted here."""
    memory_file, quota_file, period_file = FILES[version]
    most = host().memory
    while group == mount or group.startswith(mount.rstrip("/") + "/"):
        memory = _number(_read(f"{group}/{memory_file}"))
        quota, _, period = _read(f"{group}/{quota_file}").partition(" ")
        if period_file:
            period = _read(f"{group}/{period_file}")
        cores = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
        if memory is not None and most is not None and memory >= most:
            memory = None  # no limit is a number too, in version 1
        if memory is not None or cores is not None:
            yield Bound(f"control group {group}", cores, memory)
        if group == mount:
            return
        group = os.path.dirname(group)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


class Guarantee(NamedTuple):
    """What a box is to be guaranteed, and what it is taken from."""

    cores: float
    memory: int
    bounds: list[Bound]


SHARES = (("cpu_guaranteed", "cores", 1), ("memory_guaranteed_bytes", "GiB", 1 << 30))
CEILINGS = (("cpu_limit", "cores", 1), ("memory_bytes", "GiB", 1 << 30))


def guaranteed(policy: ResolvedPolicy) -> tuple[Guarantee | None, tuple[str, ...]]:
    """What a policy guarantees, if anything, and notes about what cannot be met here.

    Raises UnenforceableError for more than there is, unless best_effort names it: then it is left out. A ceiling above what the
    host has is a note.
    """
    limits = policy.limits
    notes = list(_out_of_reach(limits))
    if limits.cpu_guaranteed is None and limits.memory_guaranteed_bytes is None:
        return None, tuple(notes)
    found = bounds()
    kept: list[float] = []
    for name, of, unit in SHARES:
        value = getattr(limits, name) or 0
        amounts = ((each.name, each.cores if name == "cpu_guaranteed" else each.memory) for each in found)
        tight = next(((holder, most) for holder, most in amounts if most is not None and value > most), None)
        if tight:
            has = f"{tight[0]} has {tight[1] / unit:.4g}"
            _refuse(policy, name, f"{value / unit:g} {'core' if of == 'cores' and value == 1 else of}", has)
            notes.append(f"{KEY_OF[f'limits.{name}']} is not enforced, as best_effort allows: {has}.")
        kept.append(0 if tight else value)
    cores, memory = kept
    return (Guarantee(cores, int(memory), found) if cores or memory else None), tuple(notes)


def _out_of_reach(limits: SandboxLimits) -> Iterator[str]:
    """A note for each ceiling that was asked for and is above all that there is."""
    for (name, of, unit), (share, *_), most in zip(CEILINGS, SHARES, (host().cores, host().memory), strict=True):
        value, implied = getattr(limits, name), CEILING_OF_GUARANTEED * (getattr(limits, share) or 0)
        if value is not None and most is not None and value > most and value != implied and not isinstance(value, Unasked):
            yield f"limits.{name} of {value / unit:g} {of} is more than this host has, {most / unit:.4g}: it cannot be met."


def _refuse(policy: ResolvedPolicy, name: str, asked: str, has: str) -> None:
    key = KEY_OF[f"limits.{name}"]
    if not is_excused(key, policy.best_effort):
        raise UnenforceableError(
            f"limits.{name} of {asked} is more than there is: {has}.",
            hint=f"Guarantee less, or name {key} in best_effort to go on without.",
            refusals=(Refusal(f"limits.{name}", key, getattr(policy.limits, name), f"a host that has {asked}", False),),
        )


def excused(policy: ResolvedPolicy) -> bool:
    """Whether best_effort names all that a policy guarantees."""
    asked = [f"limits.{name}" for name, *_ in SHARES if getattr(policy.limits, name) is not None]
    return all(is_excused(KEY_OF[name], policy.best_effort) for name in asked)


def enforced(policy: ResolvedPolicy, given: Guarantee | None) -> Enforced:
    """How far a guarantee holds: by the register, against those who are in it."""
    limits = policy.limits
    if limits.cpu_guaranteed is None and limits.memory_guaranteed_bytes is None:
        return NOT_ENFORCED
    if given is None:
        return Enforced(Level.NONE, "", "not to be had here; best_effort goes without it")
    note = "against other boxes of this user; what is no box may use it all the same"
    return Enforced(Level.PARTIAL, "register of live boxes", note)
