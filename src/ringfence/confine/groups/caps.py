"""Which caps of a policy control groups hold: what is wanted of the groups of a box, and what may be claimed once it has them."""

from __future__ import annotations

from ringfence.confine import processes
from ringfence.confine.groups.places import COMMANDS, PERIOD_US, PLACES, Groups
from ringfence.confine.limits import Lacking, Offer
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

LEAVES = "a box of root without namespaces can leave its group"
LEAST_QUOTA_US = 1000  # a smaller one is refused (Documentation/scheduler/sched-bwc.rst)


def groups_for(policy: ResolvedPolicy, *, floor: bool) -> Groups:
    """Groups for what the policy caps. floor: of a box without namespaces, where only a group counts processes."""
    limits = policy.limits
    wanted: dict[str, int | None] = {}
    if limits.max_processes is not None:
        wanted["pids"] = limits.max_processes + 1 + processes.RESERVE
        wanted[COMMANDS] = limits.max_processes + 1
    elif floor:
        wanted["pids"] = processes.BACKSTOP
    if limits.cpu_limit is not None:
        wanted["cpu"] = max(LEAST_QUOTA_US, round(limits.cpu_limit * PERIOD_US))
    return PLACES.take(wanted)


def offer(policy: ResolvedPolicy, groups: Groups, *, floor: bool) -> Offer:
    """What the groups that a box has hold, and why they do not hold the rest."""
    asked = policy.limits.max_processes is not None
    wanted = COMMANDS if asked else "pids"
    group = groups.of(wanted)
    if group is None:
        return {"max_processes": Lacking(groups.missing[wanted])} if wanted in groups.missing else {}
    notes = ["" if asked else processes.NOTHING_ASKED, LEAVES if floor else ""]
    level = Level.PARTIAL if floor else Level.FULL
    return {"max_processes": Enforced(level, f"{group.version} pids", "; ".join(filter(None, notes)))}


def with_quota(affinity: Offer, groups: Groups, *, floor: bool) -> Offer:
    """The offer of what else holds a cap of cores, with the quota that makes it exact where the box has one."""
    group, held = groups.of("cpu"), affinity.get("cpu_share")
    if group is None or not isinstance(held, Enforced):
        return affinity
    by = f"{group.version} cpu, {held.by}"
    return {**affinity, "cpu_share": Enforced(Level.PARTIAL if floor else Level.FULL, by, held.note)}
