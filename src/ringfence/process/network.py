"""The network of a live box as the outside holds it: sockets that were made inside, checked for what they are."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringfence.errors import HostError, ProtocolError
from ringfence.guest import wire
from ringfence.process import messages

if TYPE_CHECKING:
    from ringfence.confine.ways import Endpoint, Network

PACKET_BYTES = 1 << 16
NETLINK_NETFILTER = 12  # linux/netlink.h


class Made:
    """How it was made, and its sockets by their names; both as the first process said before anything else ran in the box."""

    def __init__(self, way: str, sockets: dict[str, int]) -> None:
        self.way, self.sockets = way, sockets

    @property
    def redirected(self) -> bool:
        return "transparent" in self.sockets

    @property
    def listeners(self) -> Mapping[str, int]:
        """Those that connections and questions of the box arrive at."""
        return {name: each for name, each in self.sockets.items() if name not in ("rules", "refusals")}

    def tell(self, rules: bytes) -> None:
        """Change the packet rules: whoever owns the box's user namespace has every right in it (user_namespaces(7)).

        Raises HostError where the kernel refuses them; then they are as they were.
        """
        kernel = socket.socket(fileno=os.dup(self.sockets["rules"]))
        try:
            kernel.send(rules)
            while True:  # its answers are there when send() returns
                answer = kernel.recv(PACKET_BYTES, socket.MSG_DONTWAIT)
                number = -int.from_bytes(answer[16:20], "little", signed=True)
                if number:
                    raise HostError(f"the packet rules of the box cannot be changed: {os.strerror(number)}.", errno=number)
        except BlockingIOError:
            return
        finally:
            kernel.close()

    def close(self) -> None:
        while self.sockets:
            os.close(self.sockets.popitem()[1])


def accept(network: Network, packet: bytes, descriptors: list[int]) -> Made | None:
    """Take the sockets of network, as it was planned, from the end of descriptors. None where the box was not built.

    Raises ProtocolError for anything else than what was planned, and closes all of them then.
    """
    try:
        said = messages.parse(packet) if packet else None
        if not isinstance(said, messages.Ready):
            return None
        way = next((way for way in network.ways if said.network[:1] == (way.name,)), None)
        names = said.network[1:]
        if way is None or len(names) > len(descriptors) or len(set(names)) < len(names):
            raise ProtocolError("the guest made a network that was not planned.")
        made = dict(zip(names, descriptors[len(descriptors) - len(names) :], strict=True))
        kernels = [name for name, _, _ in way.messages if name]
        planned = [each for each in way.sockets if each.name in made or not each.optional]
        if list(made) != [*kernels, *(each.name for each in planned)]:
            raise ProtocolError("the guest handed out other sockets than were planned.")
        for name in kernels:
            _check_kernels(made[name])
        for each in planned:
            _check(each, made[each.name])
    except (ProtocolError, OSError) as error:
        while descriptors:
            wire.close_unasked(descriptors.pop())
        raise ProtocolError(str(error)) from None
    del descriptors[len(descriptors) - len(names) :]
    return Made(way.name, made)


def _copy(descriptor: int) -> socket.socket:
    """Raises OSError for what is no socket."""
    number = os.dup(descriptor)
    try:
        return socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise


def _check(planned: Endpoint, descriptor: int) -> None:
    found = _copy(descriptor)
    try:
        kind = found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if (found.family, kind, listens) != (planned.family, planned.kind, int(planned.kind == socket.SOCK_STREAM)):
            raise ProtocolError(f"the guest handed out something that is not the socket {planned.name}.")
        if found.getsockname()[:2] != (planned.address, planned.port):
            raise ProtocolError(f"the guest handed out a socket {planned.name} of another address.")
    finally:
        found.close()


def _check_kernels(descriptor: int) -> None:
    found = _copy(descriptor)
    try:
        if (found.family, found.proto) != (socket.AF_NETLINK, NETLINK_NETFILTER):
            raise ProtocolError("the guest handed out something that is no socket of the packet rules.")
    finally:
        found.close()
