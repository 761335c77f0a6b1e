"""Which caps of a policy control groups hold: what is wanted of the groups of a box, and what may be claimed once it has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from ringfence.confine import limits, processes
from ringfence.confine.groups.places import BACKSTOP, PERIOD_US, PLACES, Groups
from ringfence.confine.limits import Lacking, Offer
from ringfence.confine.plan import Grouped
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

NAMES = {(BACKSTOP, False): "pids", (BACKSTOP, True): "pids", ("cpuacct", True): "cpu.stat"}
TOLD_APART = "runs at the same time, or beside what an earlier one left, each by its processes"
LEAVES = "a box of root without namespaces can leave its group"
LEAST_QUOTA_US = 1000  # a smaller one is refused (Documentation/scheduler/sched-bwc.rst)


def groups_for(policy: ResolvedPolicy, *, floor: bool) -> Groups:
    """Groups for what the policy caps. floor: of a box without namespaces, where only a group counts processes."""
    asked = policy.limits
    wanted: dict[str, int | None] = {}
    if asked.memory_bytes is not None:
        wanted["memory"] = asked.memory_bytes
    if asked.cpu_seconds is not None:
        wanted["cpuacct"] = None
    if asked.max_processes is not None:
        wanted["pids"] = asked.max_processes
    elif floor:
        wanted[BACKSTOP] = processes.BACKSTOP
    if asked.cpu_limit is not None:
        wanted["cpu"] = max(LEAST_QUOTA_US, round(asked.cpu_limit * PERIOD_US))
    return PLACES.take(wanted)


def offer(policy: ResolvedPolicy, groups: Groups, *, floor: bool) -> Offer:
    """What the groups that a box has hold, and why they do not hold the rest."""
    asked = policy.limits.max_processes is not None
    notes = {"max_processes": "" if asked else processes.NOTHING_ASKED, "cpu": TOLD_APART}
    said: dict[str, Enforced | Lacking] = {}
    for cap, controller in {"memory": "memory", "max_processes": "pids" if asked else BACKSTOP, "cpu": "cpuacct"}.items():
        group = groups.of(controller)
        if group is not None:
            note = "; ".join(filter(None, (notes.get(cap, ""), LEAVES if floor else "")))
            by = f"{group.version} {NAMES.get((controller, group.unified), controller)}"
            said[cap] = Enforced(Level.PARTIAL if floor else Level.FULL, by, note)
        elif controller in groups.missing:
            said[cap] = Lacking(groups.missing[controller])
    return said


def watchers(policy: ResolvedPolicy, groups: Groups) -> dict[str, Mapping[str, object]]:
    """Who of the warden watches a box of this policy: what its groups hold by them, the rest as limits.py has it."""
    wanted = limits.watchers(policy)
    if groups.all:
        wanted["membership"] = {}
    if groups.of("memory"):
        wanted["memory_events" if groups.shielded else "memory_group"] = wanted.pop("memory")
    if "cpu" in wanted and (group := groups.of("cpuacct")):
        wanted["cpu"] = {**wanted["cpu"], "unified": int(group.unified)}
    if (group := groups.of("pids")) and "processes" in observed(policy, groups) & policy.limits.kills:
        wanted["forks"] = {"limit": policy.limits.max_processes, "by": f"{group.version} pids"}
    return wanted


def observed(policy: ResolvedPolicy, groups: Groups) -> frozenset[str]:
    """The caps of which groups count that they are met."""
    return frozenset({"processes"} if groups.of("pids") and policy.limits.max_processes is not None else ())


def grouped(policy: ResolvedPolicy, groups: Groups) -> Grouped:
    """What goes with the groups that a box has."""
    pids, memory, limits = groups.of("pids"), groups.of("memory"), policy.limits
    counted: list[tuple[str, int, str, int, str]] = []
    if pids and limits.max_processes is not None:
        events = groups.hold(os.open(f"{pids.capped}/pids.events", os.O_RDONLY | os.O_CLOEXEC))
        counted.append(("processes", events, "max", limits.max_processes, f"{pids.version} pids"))
    if groups.shielded and memory and limits.memory_bytes is not None:
        events = groups.hold(os.open(f"{memory.folder}/memory.events", os.O_RDONLY | os.O_CLOEXEC))
        counted.append(("memory", events, "oom_kill", limits.memory_bytes, f"{memory.version} memory"))
    return Grouped(partial(_given, groups, "processes" in limits.kills), tuple(counted), groups.prefixes)


def _given(groups: Groups, ends: bool) -> dict[str, int]:
    memory, cpu, pids = groups.of("memory"), groups.of("cpuacct"), groups.of("pids")
    folders = {"memory_group": memory and memory.capped, "cpu_group": cpu and cpu.folder}
    given = {name: os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for name, folder in folders.items() if folder}
    return given | ({"pids_events": os.open(f"{pids.capped}/pids.events", os.O_RDONLY | os.O_CLOEXEC)} if pids and ends else {})


def with_quota(affinity: Offer, groups: Groups, *, floor: bool) -> Offer:
    """The offer of what else holds a cap of cores, with the quota that makes it exact where the box has one."""
    group, held = groups.of("cpu"), affinity.get("cpu_share")
    if group is None or not isinstance(held, Enforced):
        return affinity
    by = f"{group.version} cpu, {held.by}"
    return {**affinity, "cpu_share": Enforced(Level.PARTIAL if floor else Level.FULL, by, held.note)}
