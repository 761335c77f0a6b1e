"""A cap on processes that needs no control group: RLIMIT_NPROC, which the kernel counts in the box's own user namespace."""

from __future__ import annotations

from collections.abc import Mapping

from ringfence.confine.limits import MONITOR, Lacking, Offer
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

BACKSTOP = 4096
"""Processes and threads of a box for which nothing was asked: more than builds start, and less than a host stands."""
BY = "RLIMIT_NPROC"
NOTHING_ASKED = f"nothing was asked: {BACKSTOP} is a backstop"

_probed: list[Lacking | None] = []


def rlimits(policy: ResolvedPolicy) -> dict[str, int]:
    """What the guest is told: a limit of commands, or the backstop of everything in the box."""
    most = policy.limits.max_processes
    return {"backstop": BACKSTOP} if most is None else {"processes": most}


def offer(policy: ResolvedPolicy) -> Offer:
    """What the limit holds of a box in a user namespace; for a policy that asks for a cap it is tried first."""
    note = "counted in the box's user namespace, threads too"
    if policy.limits.max_processes is None:
        return {"max_processes": Enforced(Level.FULL, BY, f"{NOTHING_ASKED}, {note}")}
    lacking = _lacking()
    return {"max_processes": lacking or Enforced(Level.FULL, BY, f"{note}; that it is met is seen by looking")}


def watchers(policy: ResolvedPolicy, *, counted: bool) -> dict[str, Mapping[str, object]]:
    """Who looks whether the limit is met, which nothing counts. counted: a control group does."""
    most = policy.limits.max_processes
    if most is None or counted or _lacking():
        return {}
    return {"reached": {"open_files": policy.limits.open_files or 0, "processes": most, "by": f"{MONITOR}; held by {BY}"}}


def _lacking() -> Lacking | None:
    """Why the limit cannot hold a box alone here: kernels before 5.14 count a user's processes in all namespaces together."""
    if not _probed:
        from ringfence.confine import probes  # only for those who ask for this cap where no control group holds it

        failure = probes.in_namespaces(0, probes.count_processes)
        cause = f"RLIMIT_NPROC does not count a user namespace alone here ({failure.call})" if failure else ""
        _probed.append(Lacking(cause, "a newer kernel") if failure else None)
    return _probed[0]
