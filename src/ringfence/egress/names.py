"""The addresses that stand for names inside one box: each name has one for as long as the box lives, each address one name.

Those that the policy names have theirs by their order, so that listeners can be made before anything is asked; every other name
gets the next one when it is asked for, and is written down in a file without a name that outlives this process: its successor reads
it, and no program in the box finds another host behind an address that it remembers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from ringfence.policy.hosts import BadHostError, Name, normalise

FIRST = 16
"""What of the range comes before the addresses of names: listeners."""
MOST = 16384
"""Names that a box has addresses for; one more is not found. Whoever asks for that many carries something out, or tries to."""


class Names:
    """journal: the descriptor of a file that only this server has, with one name a line. Not promised: more than MOST names."""

    def __init__(self, network: str, explicit: Iterable[str], journal: int) -> None:
        self._network = IPv4Network(network)
        self._base = int(self._network.network_address)
        self._most = min(MOST, self._network.num_addresses - FIRST - 1)
        self._journal = journal
        self._names: list[Name] = []
        self._places: dict[str, int] = {}
        for name in explicit:
            self._add(Name(name))
        for line in _lines(journal):
            if line not in self._places:
                self._add(Name(line))

    def __contains__(self, name: Name) -> bool:
        return name.text in self._places

    def address_of(self, name: Name) -> bytes | None:
        """The four bytes that stand for name; None where there are names enough."""
        place = self._places.get(name.text)
        if place is None:
            if len(self._names) >= self._most:
                return None
            place = self._add(name)
            os.write(self._journal, name.text.encode() + b"\n")
        return (self._base + FIRST + place).to_bytes(4, "big")

    def name_of(self, address: str) -> Name | None:
        """The name behind an address of the range, where one has it."""
        place = int(IPv4Address(address)) - self._base - FIRST
        return self._names[place] if 0 <= place < len(self._names) else None

    def holds(self, address: str) -> bool:
        """Whether an address is one of the range."""
        return IPv4Address(address) in self._network

    def is_own(self, address: str) -> bool:
        """Whether an address of the range is the box's own, on which its resolver and its proxy listen."""
        return int(IPv4Address(address)) - self._base in range(FIRST)

    def _add(self, name: Name) -> int:
        self._names.append(name)
        self._places[name.text] = len(self._names) - 1
        return len(self._names) - 1


def _lines(journal: int) -> Iterable[str]:
    """What a predecessor wrote, checked as what a program asked for is: it may have died of something hostile."""
    data = os.pread(journal, MOST * 256, 0)
    for line in data.decode("ascii", "replace").splitlines():
        try:
            if normalise(line) == Name(line):
                yield line
        except BadHostError:
            continue
