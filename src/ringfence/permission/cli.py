"""CliPermissionManager: rules, and a person at the terminal who is asked where they do not decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringfence.permission.permissions import PermissionManager
from ringfence.permission.questions import DEADLINE_SECONDS
from ringfence.permission.terminal import CliApprover
from ringfence.policy.permissions import Rule

if TYPE_CHECKING:
    from ringfence.outcome import Enforcement
    from ringfence.policy.resolve import ResolvedPolicy


class CliPermissionManager(PermissionManager):
    """Decides by rules, and asks at the terminal of this process what they do not decide: once, for this session, or no.

    rules, default, confined: those of PermissionManager; confined="allow" asks about nothing that the box covers in full.
    deadline_seconds: how long an answer is waited for. Where there is no terminal everything that would be asked is refused. mark:
    what each question shows; print it before a box runs, so that a person knows a true one.
    """

    def __init__(
        self,
        rules: Iterable[Rule | str] = (),
        *,
        default: str = "ask",
        confined: str = "ask",
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        approver = CliApprover(deadline_seconds=deadline_seconds)
        super().__init__(rules, default=default, confined=confined, approver=approver)
        self.mark = approver.mark

    def reach(self, policy: ResolvedPolicy, enforcement: Enforcement) -> str:
        """What a command could touch in its box, in words, which is shown with each question."""
        if enforcement.filesystem.level == "none" or policy.mode == "danger-full-access":
            files = "whatever this user may write"
        else:
            files = ", ".join(folder.path for folder in policy.shared) or "no folder of this host"
        if enforcement.network.level == "none" or policy.network.default == "allow":
            hosts = "any host"
        else:
            hosts = ", ".join(rule.said for rule in policy.network.allow) or "no host"
        return f"that it is started in the box, where it could write to {files}, and reach {hosts}"
