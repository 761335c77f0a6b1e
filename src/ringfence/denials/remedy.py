"""The line of a policy that would allow what was refused, spelled as a policy file has its keys; None where no line does.

A line is offered only where it would be taken and the act would then succeed: not for secrets, protected settings or what a
policy closes by name, not for a folder that no policy may open, not for a file whose owner and mode close it to the box's user.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from ringfence.policy.decide import Decision
from ringfence.policy.patterns import within
from ringfence.policy.resolve import SYSTEM
from ringfence.policy.secrets import built_in_rule
from ringfence.policy.written import line

if TYPE_CHECKING:
    from ringfence.confine.plan import LaunchPlan
    from ringfence.policy.resolve import ResolvedPolicy

CLOSED_BY_NAME = ("filesystem.deny", "filesystem.protect", "built in", "protected")
"""How the rules begin that no other line of a policy opens."""
KERNELS = ("/proc", "/sys", "/dev")


def for_path(policy: ResolvedPolicy, plan: LaunchPlan, path: str, decision: Decision, *, write: bool) -> str | None:
    """The line that would let the box read path, or write it, where decision refuses that. path: without links of the box."""
    if decision.rule.startswith(CLOSED_BY_NAME):
        return None
    if decision.rule == "filesystem.workspace" and write:
        return "mode: workspace-write"
    opened = path if not write or os.path.lexists(path) else os.path.dirname(path)
    if os.path.realpath(opened) != opened:
        return None  # a link on the way, which would still not be there
    try:
        found = os.lstat(opened)
    except OSError:
        return None
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)) or any(within(opened, each) for each in KERNELS):
        return None
    home = os.path.expanduser("~").rstrip("/")
    if within(os.path.realpath(home), opened) or built_in_rule(opened, home) or (write and opened in SYSTEM):
        return None  # nothing opens all of a home; and / holds it
    if not _may(policy, plan, opened, found, write=write):
        return None
    if any(folder.path == opened for folder in (*policy.read_only, policy.workspace) if folder):
        return None  # it would say two things of one folder
    return line("filesystem.writable" if write else "filesystem.read_only", opened)


def _may(policy: ResolvedPolicy, plan: LaunchPlan, path: str, found: os.stat_result, *, write: bool) -> bool:
    """Whether owner and mode let the box's user do it, once path is mounted."""
    bits = (os.W_OK if write else os.R_OK) | (os.X_OK if stat.S_ISDIR(found.st_mode) else 0)
    if plan.ids is None or plan.ids.deny_setgroups:  # an ordinary caller's box has the caller's rights
        return os.access(path, bits)
    owner = policy.workspace.owner if policy.workspace else (0, 0)
    # A root caller's box is nobody, but in a writable mount, where it stands for the owner of the workspace.
    owned, grouped = write and found.st_uid == owner[0], write and found.st_gid == owner[1]
    return found.st_mode >> (6 if owned else 3 if grouped else 0) & bits == bits
