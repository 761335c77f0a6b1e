"""The way out of one live box: its sockets with the egress server, and what was refused of it, told of the run that asked."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from ringfence.denials.network import once, refused_by_kernel, refused_by_server, whose
from ringfence.outcome import Denial
from ringfence.process import decisions, refusals
from ringfence.process.egress import DIED, current
from ringfence.process.evidence import LEFT
from ringfence.process.owners import runs_of

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

    def __init__(self, network: Network, made: Made, registration: Registration, guest: int) -> None:
        self.policy, self.made, self.registration = network.policy, made, registration
        self.names = {address: name for name, address in network.names}
        self.connections = 0  # that were allowed
        self.lost = False  # the server's process is gone
        self.asked: Callable[[decisions.Asks], None] | None = None  # called with each question of the server, by whoever hears it
        self.asker: Closes | None = None  # who hears the questions, where there may be some
        self._notes: list[str] = []
        self._denials: list[
            tuple[Denial, frozenset[int]]
        ] = []  # each with what its run is known by; of none where that is not known
        self._guest = guest
        self._guard = threading.Lock()
        self._listening: threading.Thread | None = None
        self._ended, self._end = -1, -1

    @classmethod
    def begin(cls, network: Network, made: Made, guest: int) -> Egress:
        """Have it served. Raises HostError where it cannot be, SandboxLostError where the server has died."""
        return cls(network, made, current().register(network.policy, made.listeners, made.redirected), guest)

    def before_run(self, *, idle: bool) -> list[Denial]:
        """What was refused since the last run, where none is under way: to what earlier runs had left behind.

        Where one is, who asks for what is looked up as it happens from now on.
        """
        if not idle:
            self._listen()
            return []
        self.hear()
        with self._guard:
            taken, self._denials = self._denials, []
        return [whose(denial, LEFT) for denial, _ in taken]

    def after_run(self, pids: Collection[int], *, alone: bool) -> tuple[Denial, ...]:
        """What was refused to a run that has ended, and that is known by pids. alone: no other was under way meanwhile."""
        self.hear()
        mine: list[Denial] = []
        with self._guard:
            kept = []
            for denial, runs in self._denials:
                if alone or not runs.isdisjoint(pids):
                    mine.append(denial)
                elif not runs:
                    mine.append(whose(denial, UNKNOWN))
                else:
                    kept.append((denial, runs))
            self._denials = kept
        return once(mine)

    def take_notes(self) -> tuple[str, ...]:
        """What went wrong, since it was last asked."""
        notes, self._notes = tuple(dict.fromkeys(self._notes)), []
        return notes

    def note(self, text: str) -> None:
        """Something to be told of a run, in words."""
        with self._guard:
            self._notes.append(f"Network: {text}.")

    def hear(self) -> None:
        """Take what the server and the kernel have told until now. For the thread of a run, and for those that wait for more."""
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
                        if not each.allowed:
                            denial = refused_by_server(each.host, each.port, each.rule, each.remedy, each.why)
                            self._keep(denial, each.source if each.via != "dns" else 0)
                    case decisions.Named(name, address):
                        self.names[address] = name
                    case decisions.Noted(text):
                        self._notes.append(f"Network: {text}.")
                    case decisions.Spent():
                        self._notes.append(DROPPED)
                    case decisions.Asks():
                        asked.append(each)
            self._hear_kernel()
        for question in asked if self.asked else ():
            self.asked(question)  # type: ignore[misc]  # it is there

    def _hear_kernel(self) -> None:
        if "refusals" not in self.made.sockets:
            return
        refused, dropped = refusals.read(self.made.sockets["refusals"])
        self._notes += [DROPPED] if dropped else []
        for each in dict.fromkeys(each._replace(source=0) for each in refused):
            self._keep(refused_by_kernel(self.policy, self.names.get(each.address, each.address), each.port, each.protocol), 0)

    def _keep(self, denial: Denial, source: int) -> None:
        self._denials.append((denial, runs_of(self._guest, source) if self._listening and source else frozenset()))
        if len(self._denials) > MOST_KEPT:
            del self._denials[:-MOST_KEPT]
            self._notes.append(DROPPED)

    def _listen(self) -> None:
        """Hear what is told when it is, since a socket can be looked up only while its program has it."""
        with self._guard:  # two runs may begin at once
            if self._listening is None:
                self._ended, self._end = os.pipe()
                self._listening = threading.Thread(target=self._hear_on, name="ringfence-network", daemon=True)
                self._listening.start()

    def _hear_on(self) -> None:
        poll = select.poll()
        told = [self.registration.records.fileno(), self.made.sockets.get("refusals", -1)]
        for descriptor in (self._ended, *(each for each in told if each >= 0)):
            poll.register(descriptor, select.POLLIN)
        while all(descriptor != self._ended for descriptor, _ in poll.poll()):
            self.hear()
            if self.lost:
                return

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
        if self._listening:
            os.close(self._end)
            self._listening.join()
            os.close(self._ended)
            self._listening = None
        self.registration.end()
