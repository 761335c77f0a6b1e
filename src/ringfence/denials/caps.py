"""Which cap a refused call met, by its errno; one table for what is observed and what is inferred."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from ringfence.outcome import Denial
from ringfence.policy.keys import FIELDS, KEY_OF

if TYPE_CHECKING:
    from ringfence.confine.plan import LaunchPlan
    from ringfence.policy.resolve import Folder, ResolvedPolicy

BY_ERRNO = {
    errno.EMFILE: ("open_files",),
    errno.EFBIG: ("file_size", "disk"),  # no file may be larger than what all of them may take
    errno.ENOSPC: ("disk", "inodes"),
    errno.EAGAIN: ("processes",),
}
"""The caps that refuse a call with an errno; of these the first that is set."""
FULL_BYTES = 1 << 20
"""What a disk of the host has left when it counts as full; a little more is lost to its own rounding."""
LIMITS = {
    "processes": "max_processes",
    "open_files": "open_files",
    "file_size": "file_size_bytes",
    "disk": "disk_bytes",
    "inodes": "inodes",
}
"""The field of SandboxLimits that sets a cap."""


def refused(number: int, policy: ResolvedPolicy, plan: LaunchPlan) -> Denial | None:
    """The denial of a call that failed with errno number, as a program says; None where no cap of this box answers with it."""
    for cap in BY_ERRNO.get(number, ()):
        limit = getattr(policy.limits, LIMITS[cap])
        if limit is not None and _answers(number, limit, policy, plan):
            return of_cap(cap, limit, "inferred")
    return None


def _answers(number: int, limit: int, policy: ResolvedPolicy, plan: LaunchPlan) -> bool:
    match number:
        case errno.EFBIG:
            return plan.limits.get("file_size") == limit
        case errno.ENOSPC:  # only private folders answer so, or a disk of the host that is full by itself
            return bool(plan.beginning.scratch[0]) and not any(map(_is_full, policy.shared))
    return True


def _is_full(folder: Folder) -> bool:
    try:
        found = os.statvfs(folder.path)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize < FULL_BYTES or bool(found.f_files and not found.f_favail)


def of_cap(cap: str, limit: float, evidence: str, detail: str = "") -> Denial:
    """A denial of kind cap. Its remedy is the limit twice: how much would do, nobody knows."""
    key = KEY_OF[f"limits.{LIMITS[cap]}"]
    unit = FIELDS[key][1]
    return Denial("cap", cap, f"{key}: {limit / unit:g}", evidence, f"{key}: {2 * limit / unit:g}", detail)
