"""A cap on processes that needs no control group: RLIMIT_NPROC, counted in the box's own user namespace."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.confine.limits import Lacking, Offer
from ringfence.outcome import Enforced, Level
from ringfence.policy.resolve import ResolvedPolicy

BACKSTOP = 4096
"""Processes and threads of a box for which nothing was asked: more than builds start, and less than a host stands."""
OWN = 2
"""What a box has itself: its first process, and the interpreter that programs are forked from."""
BY = "RLIMIT_NPROC of the box's user namespace"
