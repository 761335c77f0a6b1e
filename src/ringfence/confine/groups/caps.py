"""Which caps of a policy control groups hold: what is wanted of the groups of a box, and what may be claimed once it has them."""

from __future__ import annotations

from ringfence.confine.groups.places import PERIOD_US, PLACES, Groups
from ringfence.confine.limits import Lacking, Offer
from ringfence.confine.processes import BACKSTOP, OWN
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

CONTROLLERS = {"memory": "memory", "cpu": "cpuacct", "max_processes": "pids", "cpu_share": "cpu"}
"""The caps that a group can hold, by their names in an enforcement, and the controller of each, as version 1 calls it."""


def groups_for(policy: ResolvedPolicy, *, floor: bool) -> Groups:
    """Groups for what the policy caps. floor: of a box without namespaces, where nothing but a group can count processes."""
    limits = policy.limits
    wanted: dict[str, int | None] = {}
    if limits.memory_bytes is not None:
        wanted["memory"] = int(limits.memory_bytes)
    if limits.cpu_seconds is not None:
        wanted["cpuacct"] = None
    if limits.max_processes is not None or floor:
        wanted["pids"] = (limits.max_processes or BACKSTOP) + OWN
    if limits.cpu_limit is not None:
        wanted["cpu"] = max(1000, round(limits.cpu_limit * PERIOD_US))  # a quota below 1 ms is refused (sched-bwc.rst)
    return PLACES.take(wanted)


def offer(policy: ResolvedPolicy, groups: Groups, *, floor: bool) -> Offer:
    """What the groups that a box has hold, and why others cannot."""
    said: dict[str, Enforced | Lacking] = {}
    for cap, controller in CONTROLLERS.items():
        group = groups.of(controller)
        if group is None:
            if controller in groups.missing:
                said[cap] = Lacking(groups.missing[controller])
            continue
        note = "as root the box could leave its group" if floor else ""
        if cap == "max_processes" and policy.limits.max_processes is None:
            note = f"nothing was asked: {BACKSTOP} as a backstop for the host"
        said[cap] = Enforced(Level.PARTIAL if floor else Level.FULL, f"{group.by} {controller if not group.unified else ''}".strip(), note)
    return said
