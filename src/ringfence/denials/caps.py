"""Which cap a refused call met, by its errno; one table for what is observed and what is inferred."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ringfence.outcome import Denial
from ringfence.policy.keys import FIELDS, KEY_OF

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxLimits

BY_ERRNO = {
    errno.EMFILE: ("open_files",),
    errno.EFBIG: ("file_size", "disk"),  # no file may be larger than what all of them may take
    errno.ENOSPC: ("disk", "inodes"),
    errno.EAGAIN: ("processes",),
}
"""The caps that refuse a call with an errno; of these the first that is set."""
LIMITS = {
    "processes": "max_processes",
    "open_files": "open_files",
    "file_size": "file_size_bytes",
    "disk": "disk_bytes",
    "inodes": "inodes",
}
"""The field of SandboxLimits that sets a cap."""


def refused(number: int, limits: SandboxLimits) -> Denial | None:
    """The denial of a call that failed with errno number, as a program says; None where no cap of it is set."""
    for cap in BY_ERRNO.get(number, ()):
        limit = getattr(limits, LIMITS[cap])
        if limit is not None:
            return of_cap(cap, limit, "inferred")
    return None


def of_cap(cap: str, limit: float, evidence: str, detail: str = "") -> Denial:
    """A denial of kind cap. Its remedy is the limit twice: how much would do, nobody knows."""
    key = KEY_OF[f"limits.{LIMITS[cap]}"]
    unit = FIELDS[key][1]
    return Denial("cap", cap, f"{key}: {limit / unit:g}", evidence, f"{key}: {2 * limit / unit:g}", detail)
