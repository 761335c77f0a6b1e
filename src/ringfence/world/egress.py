"""The way out of one live box: its sockets with the egress server, and what was refused of it, told of the run that asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ringfence.denials.network import once, refused_by_kernel, refused_by_server, whose
from ringfence.outcome import Denial
from ringfence.process import decisions, refusals
from ringfence.process.evidence import LEFT

if TYPE_CHECKING:
    from _socket import socket

    from ringfence.confine.ways import Network
    from ringfence.process.network import Made

UNKNOWN = "by a run that is not known, since several were under way"


class Registration(Protocol):
    """A box as the egress server has it."""

    records: socket

    def end(self) -> None: ...


class Egress:
    """Made when its box is, before anything runs in it."""

    def __init__(self, network: Network, made: Made, registration: Registration | None) -> None:
        self.policy, self.made, self.registration = network.policy, made, registration
        self.names = {address: name for name, address in network.names}
        self.connections = 0  # that were allowed
        self.lost = False  # the server's process is gone, and nobody answers
        self._dropped = False

    def before_run(self, *, idle: bool) -> list[Denial]:
        """What was refused since the last run, where none is under way: to what earlier runs had left behind."""
        return [whose(each, LEFT) for each in self._take()] if idle else []

    def after_run(self, *, alone: bool) -> tuple[Denial, ...]:
        """What was refused to a run that has ended. alone: no other was under way meanwhile."""
        denials = self._take()
        return once(denials if alone else (whose(each, UNKNOWN) for each in denials))

    def take_dropped(self) -> bool:
        """Whether some refusals could not be told, since it was last asked."""
        dropped, self._dropped = self._dropped, False
        return dropped

    def _take(self) -> list[Denial]:
        denials = [
            refused_by_server(each.host, each.port, each.rule, each.remedy, each.why) for each in self._said() if not each.allowed
        ]
        if "refusals" in self.made.sockets:
            refused, dropped = refusals.read(self.made.sockets["refusals"])
            self._dropped |= dropped
            denials += (
                refused_by_kernel(self.policy, self.names.get(each.address, each.address), each.port, each.protocol)
                for each in dict.fromkeys(each._replace(source=0) for each in refused)
            )
        return denials

    def _said(self) -> Iterable[decisions.Decision]:
        if self.registration is None:
            return
        said, there = decisions.read(self.registration.records)
        self.lost |= not there
        for each in said:
            match each:
                case decisions.Decision():
                    self.connections += each.allowed and each.via != "dns"
                    yield each
                case decisions.Named(name, address):
                    self.names[address] = name
                case decisions.Spent():
                    self._dropped = True

    def close(self) -> None:
        """Give back what it had. The sockets are closed with the box."""
        if self.registration:
            self.registration.end()
