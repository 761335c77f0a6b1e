"""Which caps of a policy control groups hold: what is wanted of the groups of a box, and what may be claimed once it has them."""

from __future__ import annotations

from ringfence.confine import processes
from ringfence.confine.groups.places import PERIOD_US, PLACES, Groups
from ringfence.confine.limits import Lacking, Offer
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

CONTROLLERS = {"max_processes": "pids"}
"""The caps that a group can hold, by their names in an enforcement, and the controller of each as version 1 calls it."""
LEAST_QUOTA_US = 1000  # a smaller one is refused (Documentation/scheduler/sched-bwc.rst)


def groups_for(policy: ResolvedPolicy, *, floor: bool) -> Groups:
    """Groups for what the policy caps. floor: of a box without namespaces, where only a group counts processes."""
    limits = policy.limits
    wanted: dict[str, int | None] = {}
    if limits.max_processes is not None or floor:
        wanted["pids"] = processes.most(policy)
    if limits.cpu_limit is not None:
        wanted["cpu"] = max(LEAST_QUOTA_US, round(limits.cpu_limit * PERIOD_US))
    return PLACES.take(wanted)


def offer(policy: ResolvedPolicy, groups: Groups, *, floor: bool) -> Offer:
    """What the groups that a box has hold, and why they do not hold the rest."""
    said: dict[str, Enforced | Lacking] = {}
    for cap, controller in CONTROLLERS.items():
        group = groups.of(controller)
        if group is not None:
            asked = cap != "max_processes" or policy.limits.max_processes is not None
            notes = ["" if asked else processes.NOTHING_ASKED, "as root a box without namespaces could leave it" if floor else ""]
            level = Level.PARTIAL if floor else Level.FULL
            said[cap] = Enforced(level, f"{group.version} {controller}", "; ".join(filter(None, notes)))
        elif controller in groups.missing:
            said[cap] = Lacking(groups.missing[controller])
    return said


def with_quota(affinity: Offer, groups: Groups, *, floor: bool) -> Offer:
    """The offer of what else holds a cap of cores, with the quota that makes it exact where the box has one."""
    group, held = groups.of("cpu"), affinity.get("cpu_share")
    if group is None or not isinstance(held, Enforced):
        return affinity
    by = f"{group.version} cpu, {held.by}"
    return {**affinity, "cpu_share": Enforced(Level.PARTIAL if floor else Level.FULL, by, held.note)}
