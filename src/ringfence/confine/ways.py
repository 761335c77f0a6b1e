"""The ways in which the network of a box with a way out can be made, as data: a part of the plan, which boxes without one lack."""

from __future__ import annotations

from ringfence.policy.network import NetworkPolicy
from ringfence.values import field, frozen


@frozen
class Endpoint:
    """A socket that the first process of a box makes and hands out: listening, or of UDP. optional: it may not be there."""

    name: str
    family: int
    kind: int
    address: str
    port: int
    optional: bool = False


@frozen
class Way:
    """One way to make the network of a box. messages: to the kernel, each a name (of the socket that is kept for them, or none), a
    protocol of netlink(7) and bytes. probe: an address and a port that a connection is tried to, and a port of UDP that is refused.
    lines: the same, to read. undo: messages that take back what was made, where a part of it failed."""

    name: str
    messages: tuple[tuple[str, int, bytes], ...] = field(repr=False)
    sockets: tuple[Endpoint, ...]
    probe: tuple[str, int, int] | None
    lines: tuple[str, ...]
    undo: tuple[tuple[int, bytes], ...] = field(repr=False)


@frozen
class Network:
    """The network of a box with a way out: its own address, where the resolver is, the URL of the proxy there, the addresses of the
    names that its policy says outright, and ways to make it, of which the first that works is taken."""

    own: str
    proxy: str
    names: tuple[tuple[str, str], ...]
    routes: bytes = field(repr=False)
    ways: tuple[Way, ...]
    policy: NetworkPolicy

    def wire(self) -> dict[str, object]:
        """As the guest's protocol carries it."""
        return {"routes": self.routes, "ways": [_wire_way(way) for way in self.ways]}

    def describe(self) -> list[str]:
        """As lines to read; of several ways, the further ones where the first is refused."""
        lines = [f"network {self.policy.range}, own address {self.own}, proxy {self.proxy}"]
        for number, way in enumerate(self.ways):
            lines += [f"network, {'else' if number else 'first'} by {way.name}: {line}" for line in way.lines]
        return lines


def _wire_way(way: Way) -> dict[str, object]:
    return {
        "name": way.name,
        "messages": [list(each) for each in way.messages],
        "sockets": [[each.name, each.family, each.kind, each.address, each.port, int(each.optional)] for each in way.sockets],
        "probe": list(way.probe or ()),
        "undo": [list(each) for each in way.undo],
    }
