"""What a box would be, before there is one: the policy, the very plan, what holds it, and which rule decides one act.

Made by the same steps as a box; only the plan is never sent, and everything that was taken for it is given back. So a config
that a box cannot be made from raises here what it raises there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ringfence.confine.acts import Acts
from ringfence.explanation.answers import Answer, Permission, of_command, of_host, of_line, of_path, of_variable
from ringfence.policy.config import SandboxConfig
from ringfence.process.wait import blocking
from ringfence.values import field, fields, frozen
from ringfence.world.local import rehearse

if TYPE_CHECKING:
    from ringfence.confine.places import Places
    from ringfence.confine.plan import LaunchPlan
    from ringfence.outcome import Enforcement
    from ringfence.permission.permissions import PermissionManager
    from ringfence.policy.network import NetworkPolicy
    from ringfence.policy.resolve import ResolvedPolicy


@frozen(caches=True)
class Explanation:
    """What explain() found. str() is all of it as text; data() the same as plain values for JSON.

    config is what was asked, policy what that means here, plan what would be carried out, backend the mechanism that would hold
    it and enforcement how far, dimension by dimension. notes: what is left out or has no effect. covered: the rule behind each
    path that is covered.
    """

    config: SandboxConfig
    policy: ResolvedPolicy
    plan: LaunchPlan
    backend: str
    enforcement: Enforcement
    notes: tuple[str, ...]
    covered: Mapping[str, str] = field(repr=False)

    def sections(self) -> list[tuple[str, list[str]]]:
        """Headings, each with its lines."""
        width = max(len(name) for name, _ in self._policy())
        policy = [f"{name:{width}}  {', '.join(values) if values else 'none'}" for name, values in self._policy()]
        held = [f"{entry.name}: {getattr(self.enforcement, entry.name)}" for entry in fields(self.enforcement)]
        sections = [("policy", policy), ("plan", self.plan_lines()), (f"enforcement, tier {self.backend}", held)]
        return [*sections, ("notes", list(self.notes))] if self.notes else sections

    def plan_lines(self) -> list[str]:
        """The plan as lines, in the order in which it is carried out; values that are passed from the caller are left out."""
        passed = {f"set {name}={value}": f"set {name} to the caller's" for name, value in self._passed().items()}
        return [passed.get(line, line) for line in self.plan.describe()]

    def _passed(self) -> dict[str, str]:
        return {name: self.plan.environment[name] for name in self.config.pass_environment if name in self.plan.environment}

    def _policy(self) -> list[tuple[str, list[str]]]:
        policy = self.policy
        limits = [f"{name} {value:,}" for name, value in self._limits().items() if isinstance(value, (int, float))]
        limits += [f"{cap} beyond which the run is ended" for cap in sorted(policy.limits.kills)]
        floor = self.backend == "process"
        network = ["the host's"] if floor else _network(policy.network)
        return [
            ("tier", [self.config.tier + (f" ({self.backend})" if self.config.tier != self.backend else "")]),
            ("mode", [policy.mode]),
            ("workspace", [policy.workspace.path if policy.workspace else f"{policy.workdir}, which ends with the box"]),
            ("read_only", [folder.path for folder in policy.read_only]),
            ("writable", [folder.path for folder in policy.writable]),
            ("deny", [*policy.deny, *([] if floor else ["the built-in list of secrets"])]),
            ("protect", [*policy.protect, *([] if floor else ["the built-in settings that something outside would run"])]),
            ("environment", [name for name, _ in policy.environment]),
            ("network", network),
            ("limits", limits),
            ("policy files", [os.fspath(file) for file in self.config.policy_files]),
            ("hash", [policy.hash]),
        ]

    def _limits(self) -> dict[str, object]:
        """Every limit as a plain value."""
        limits = self.policy.limits
        return {entry.name: getattr(limits, entry.name) for entry in fields(limits)} | {"on_breach": dict(limits.on_breach)}

    def data(self) -> dict[str, object]:
        """Everything as plain values."""
        return {
            "backend": self.backend,
            "policy": self._policy_data(),
            "plan": self.plan_lines(),
            "enforcement": {
                entry.name: {
                    "level": str(getattr(self.enforcement, entry.name).level),
                    "by": getattr(self.enforcement, entry.name).by,
                    "note": getattr(self.enforcement, entry.name).note,
                }
                for entry in fields(self.enforcement)
            },
            "covered": dict(self.covered),
            "notes": list(self.notes),
        }

    def _policy_data(self) -> dict[str, object]:
        policy = self.policy
        return {
            "tier": self.config.tier,
            "mode": policy.mode,
            "workspace": policy.workspace.path if policy.workspace else None,
            "workdir": policy.workdir,
            "read_only": [folder.path for folder in policy.read_only],
            "writable": [folder.path for folder in policy.writable],
            "deny": list(policy.deny),
            "protect": list(policy.protect),
            "environment": [name for name, _ in policy.environment],
            "allow_network": policy.network.default == "allow",
            "network": _network_data(policy.network),
            "limits": self._limits(),
            "policy_files": [os.fspath(file) for file in self.config.policy_files],
            "hash": policy.hash,
        }

    def __str__(self) -> str:
        return "\n".join(line for name, lines in self.sections() for line in (f"{name}:", *(f"  {each}" for each in lines)))

    @cached_property
    def acts(self) -> Acts:
        """What decides whether a path may be read or written."""
        return Acts(self.policy, self.plan, self.backend, self.covered)

    @property
    def places(self) -> Places:
        """The view of the plan, to look up paths in."""
        return self.acts.places

    def command(self, argv: Sequence[str]) -> Answer:
        """Which file argv would start in the box, by the box's own PATH, and what keeps it from running."""
        return of_command(self, argv)

    def permission(self, line: str | Sequence[str], manager: PermissionManager | None = None) -> Permission:
        """What PermissionManager.check says of a shell line or an argv in this box, by the policy's rules and those of manager."""
        return of_line(self, line, manager)

    def path(self, path: str) -> Answer:
        """What path is in the box, relative to where commands start, and which rule decides whether it is read and written."""
        return of_path(self, path)

    def host(self, host: str) -> Answer:
        """Whether the box may connect to host, `name:port` or a name for port 443, and by which rule."""
        return of_host(self, host)

    def variable(self, name: str) -> Answer:
        """What a variable is in the box, and which rule set it."""
        return of_variable(self, name)


def _network(network: NetworkPolicy) -> list[str]:
    """What can be reached, in words."""
    if not network.open:
        return ["none but loopback", *(f"published {entry}" for entry in network.publish)]
    said = ["what no rule names" if network.default == "allow" else "what rules name"]
    said += [f"allow {rule.said}" for rule in network.allow] + [f"deny {rule.said}" for rule in network.deny]
    said += ["other names are asked about"] if network.on_unknown == "ask" else []
    said += ["private addresses"] if network.private_addresses else []
    said += [f"through {network.shown_proxy}"] if network.upstream_proxy else []
    return [*said, *(f"published {entry}" for entry in network.publish)]


def _network_data(network: NetworkPolicy) -> dict[str, object]:
    plain = {entry.name: getattr(network, entry.name) for entry in fields(network)}
    for name in ("allow", "deny"):
        plain[name] = [rule.said for rule in plain[name]]
    return plain | {"upstream_proxy": network.shown_proxy, "publish": list(network.publish)}


def explain(config: SandboxConfig | None = None) -> Explanation:
    """What the box of this config would be. Blocks for about as long as making a box takes, and starts nothing of the caller's.

    Raises what opening the box would raise: TierUnavailableError, ConfigError, WorkspaceError, HostError. Not promised: that
    the host is the same when the box is made, or that its kernel then builds the view.
    """
    asked = config if config is not None else SandboxConfig()
    policy, prepared, enforcement = blocking(rehearse(asked))
    return Explanation(asked, policy, prepared.plan, prepared.backend, enforcement, prepared.notes, prepared.covered)
