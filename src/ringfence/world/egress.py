"""The way out of one live box: its sockets with the egress server, and what was refused of it, told of the run that asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ringfence.denials.network import once, refused_by_kernel, refused_by_server, whose
from ringfence.outcome import Denial
from ringfence.process import decisions, refusals
from ringfence.process.egress import DIED, current
from ringfence.process.evidence import LEFT

if TYPE_CHECKING:
    from ringfence.confine.ways import Network
    from ringfence.policy.network import NetworkPolicy
    from ringfence.process.egress import Registration
    from ringfence.process.network import Made

DROPPED = "Network: so much was refused that not all of it is told."
MOST_KEPT = 5000
"""Refused connections that wait for the end of a run."""
UNKNOWN = "by a run that is not known, since several were under way"


class Closes(Protocol):
    def close(self) -> None: ...


class Egress:
    """Made when its box is, before anything runs in it."""

    def __init__(self, network: Network, made: Made, registration: Registration) -> None:
        self.policy, self.made, self.registration = network.policy, made, registration
        self.names = {address: name for name, address in network.names}
        self.connections = 0  # that were allowed
        self.lost = False  # the server's process is gone
        self.asked: Callable[[decisions.Asks], None] | None = None  # called with each question of the server, by whoever hears it
        self.asker: Closes | None = None  # who hears the questions, where there may be some
        self._notes: list[str] = []
        self._decided: list[decisions.Decision] = []
        self._guard = threading.Lock()

    @classmethod
    def begin(cls, network: Network, made: Made) -> Egress:
        """Have it served. Raises HostError where it cannot be, SandboxLostError where the server has died."""
        return cls(network, made, current().register(network.policy, made.listeners, made.redirected))

    def before_run(self, *, idle: bool) -> list[Denial]:
        """What was refused since the last run, where none is under way: to what earlier runs had left behind."""
        return [whose(each, LEFT) for each in self._take()] if idle else []

    def after_run(self, *, alone: bool) -> tuple[Denial, ...]:
        """What was refused to a run that has ended. alone: no other was under way meanwhile."""
        denials = self._take()
        return once(denials if alone else (whose(each, UNKNOWN) for each in denials))

    def take_notes(self) -> tuple[str, ...]:
        """What went wrong, since it was last asked."""
        notes, self._notes = tuple(dict.fromkeys(self._notes)), []
        return notes

    def _take(self) -> list[Denial]:
        self.hear()
        decided, self._decided = self._decided, []
        denials = [refused_by_server(each.host, each.port, each.rule, each.remedy, each.why) for each in decided]
        if "refusals" in self.made.sockets:
            refused, dropped = refusals.read(self.made.sockets["refusals"])
            self._notes += [DROPPED] if dropped else []
            denials += (
                refused_by_kernel(self.policy, self.names.get(each.address, each.address), each.port, each.protocol)
                for each in dict.fromkeys(each._replace(source=0) for each in refused)
            )
        return denials

    def hear(self) -> None:
        """Take what the server has said until now. Called by the thread of a run, and by one that waits for questions."""
        asked = []
        with self._guard:
            said, there = decisions.read(self.registration.records)
            if not (there or self.lost):
                self.lost = True
                self._notes.append(f"Network: {DIED}.")
            for each in said:
                match each:
                    case decisions.Decision():
                        self.connections += each.allowed and each.via != "dns"
                        self._decided += () if each.allowed else (each,)
                    case decisions.Named(name, address):
                        self.names[address] = name
                    case decisions.Noted(text):
                        self._notes.append(f"Network: {text}.")
                    case decisions.Spent():
                        self._notes.append(DROPPED)
                    case decisions.Asks():
                        asked.append(each)
            if len(self._decided) > MOST_KEPT:
                del self._decided[:-MOST_KEPT]
                self._notes.append(DROPPED)
        for question in asked if self.asked else ():
            self.asked(question)  # type: ignore[misc]  # it is there

    def change(self, policy: NetworkPolicy, rules: bytes) -> None:
        """Decide by another policy from now on. rules: the packet rules of it, for a network that has some.

        Raises SandboxLostError where the server has died, HostError where the kernel refuses the rules.
        """
        if "rules" in self.made.sockets:
            self.made.tell(rules)
        self.registration.set_rules(policy)
        self.policy = policy

    def close(self) -> None:
        """Give back what it had. The sockets are closed with the box."""
        if self.asker:
            self.asker.close()
        self.registration.end()
