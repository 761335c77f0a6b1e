"""The way out of one live box: its sockets with the egress server, and what was refused of it, told of the run that asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringfence.denials.network import once, refused_by_kernel, refused_by_server, whose
from ringfence.outcome import Denial
from ringfence.process import decisions, refusals
from ringfence.process.egress import DIED, current
from ringfence.process.evidence import LEFT

if TYPE_CHECKING:
    from ringfence.confine.ways import Network
    from ringfence.process.egress import Registration
    from ringfence.process.network import Made

DROPPED = "Network: so much was refused that not all of it is told."
UNKNOWN = "by a run that is not known, since several were under way"


class Egress:
    """Made when its box is, before anything runs in it."""

    def __init__(self, network: Network, made: Made, registration: Registration) -> None:
        self.policy, self.made, self.registration = network.policy, made, registration
        self.names = {address: name for name, address in network.names}
        self.connections = 0  # that were allowed
        self._notes: list[str] = []

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
        denials = [
            refused_by_server(each.host, each.port, each.rule, each.remedy, each.why) for each in self._said() if not each.allowed
        ]
        if "refusals" in self.made.sockets:
            refused, dropped = refusals.read(self.made.sockets["refusals"])
            self._notes += [DROPPED] if dropped else []
            denials += (
                refused_by_kernel(self.policy, self.names.get(each.address, each.address), each.port, each.protocol)
                for each in dict.fromkeys(each._replace(source=0) for each in refused)
            )
        return denials

    def _said(self) -> Iterable[decisions.Decision]:
        said, there = decisions.read(self.registration.records)
        self._notes += [] if there else [f"Network: {DIED}."]
        for each in said:
            match each:
                case decisions.Decision():
                    self.connections += each.allowed and each.via != "dns"
                    yield each
                case decisions.Named(name, address):
                    self.names[address] = name
                case decisions.Noted(text):
                    self._notes.append(f"Network: {text}.")
                case decisions.Spent():
                    self._notes.append(DROPPED)

    def close(self) -> None:
        """Give back what it had. The sockets are closed with the box."""
        self.registration.end()
