"""What a box covers: acts that cannot go beyond its policy, so that nobody needs to be asked.

An act is covered where the policy allows it and the box's enforcement of it is full. What a command does beyond what its words say
is covered too, since the kernel refuses it. Never covered is what acts outside of every box: a push, a deployment, a host that the
policy does not open.
"""

from __future__ import annotations

from collections.abc import Callable

from ringfence.outcome import Enforcement, Level
from ringfence.permission.places import View
from ringfence.permission.programs import fetches, leaves, mentions
from ringfence.permission.shell import Command
from ringfence.permission.wrappers import program_name
from ringfence.policy.decide import decide
from ringfence.policy.resolve import ResolvedPolicy

HOLD = ("filesystem", "secrets", "network", "processes", "syscalls", "environment", "descriptors")
"""The dimensions of enforcement that have to be full for a command to be covered, whatever it is."""


class Cover:
    """What one box covers. missing: the dimension that is not enforced in full, or the empty string."""

    def __init__(self, policy: ResolvedPolicy, enforcement: Enforcement, view: View) -> None:
        self.policy, self.enforcement, self.view = policy, enforcement, view
        lacking = [name for name in HOLD if getattr(enforcement, name).level is not Level.FULL]
        self.missing = f"{lacking[0]} is not enforced in full" if lacking else ""

    def path(self, kind: str, path: str) -> str:
        """Why reading or writing a path is not covered, or the empty string."""
        for name in ("filesystem", "secrets"):
            if getattr(self.enforcement, name).level is not Level.FULL:
                return f"{name} is not enforced in full"
        found = decide(self.policy, kind, path, home=self.view.home)
        return "" if found.allowed else f"{kind} {path} is refused by {found.rule}: {found.why}"

    def host(self, host: str, port: int) -> str:
        """Why reaching a host is not covered, or the empty string."""
        if self.enforcement.network.level is not Level.FULL:
            return "network is not enforced in full"
        found = decide(self.policy, "connect", f"{host}:{port}", home=self.view.home)
        return "" if found.allowed else f"{host}:{port} is refused by {found.rule}: {found.why}"

    def outside(self, command: Command, let_through: Callable[[str, int], bool]) -> str:
        """What of a command the box does not cover, or the empty string."""
        if self.missing:
            return self.missing
        if leaves(command.words):
            return f"{program_name(command.words[0])} acts outside of the box"
        hosts = False
        for each in mentions(command.words):
            if each.kind == "net":
                host, _, port = each.what.rpartition(":")
                hosts = True
                if not let_through(host.strip("[]"), int(port)) and (why := self.host(host, int(port))):
                    return why
                continue
            for path in () if each.plain else self.view.paths(each.what, command.folders):
                if why := self.path(each.kind, path):
                    return why
        if not hosts and fetches(command.words) and not self.policy.network.open:
            return f"{program_name(command.words[0])} needs a host, and the policy opens none"
        return ""
