"""What a box hands out of its network is what was planned, or nothing of it is taken."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from ringfence.confine.ways import Endpoint, Network, Way
from ringfence.errors import ProtocolError
from ringfence.guest import wire
from ringfence.policy.network import NetworkPolicy
from ringfence.process import network

PORT = Endpoint("proxy", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", 0)


def tcp(address: str = "127.0.0.1", *, listening: bool = True) -> socket.socket:
    made = socket.socket()
    made.bind((address, 0))
    if listening:
        made.listen()
    return made


def udp() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


def planned(port: int) -> Network:
    endpoints = (Endpoint("proxy", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", port),)
    way = Way("listeners", (), endpoints, None, (), ())
    return Network("198.18.0.1", "", (), b"", (way,), NetworkPolicy())


def packet(*names: str) -> bytes:
    return wire.encode({"ready": 1, "network": list(names)})


def test_what_was_planned_is_taken() -> None:
    made = tcp()
    descriptors = [os.open("/", os.O_RDONLY), made.detach()]
    port = socket.socket(fileno=os.dup(descriptors[1]))
    taken = network.accept(planned(port.getsockname()[1]), packet("listeners", "proxy"), descriptors)
    port.close()
    assert taken is not None
    assert (list(taken.sockets), taken.way, len(descriptors)) == (["proxy"], "listeners", 1)
    taken.close()
    os.close(descriptors[0])


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: [tcp(listening=False)], ("listeners", "proxy")),
        (lambda: [udp()], ("listeners", "proxy")),
        (lambda: [tcp("127.0.0.2")], ("listeners", "proxy")),
        (lambda: [tcp(), tcp()], ("listeners", "proxy", "proxy")),
        (lambda: [tcp()], ("listeners", "transparent")),
        (lambda: [tcp()], ("redirect", "proxy")),
        (list, ("listeners", "proxy")),
        (lambda: [tcp()], ("listeners",)),
        (lambda: [socket.socket(socket.AF_UNIX)], ("listeners", "proxy")),
    ],
)
def test_anything_else_is_refused_and_closed(make: Callable[[], list[socket.socket]], names: tuple[str, ...]) -> None:
    made = make()
    numbers = [each.detach() for each in made]
    port = 0
    for number in numbers:
        with socket.socket(fileno=os.dup(number)) as each:
            if each.family == socket.AF_INET:
                port = each.getsockname()[1]
    with pytest.raises(ProtocolError):
        network.accept(planned(port), packet(*names), list(numbers))
    for number in numbers:
        with pytest.raises(OSError):
            os.fstat(number)


def test_a_file_in_the_place_of_a_socket_is_refused() -> None:
    file = os.open("/dev/null", os.O_RDONLY)
    with pytest.raises(ProtocolError):
        network.accept(planned(1), packet("listeners", "proxy"), [file])


def test_a_box_that_was_not_built_has_none() -> None:
    refused = wire.encode({"failed": 1, "stage": "x", "path": "/"})
    assert network.accept(planned(1), refused, []) is None
    assert network.accept(planned(1), b"", []) is None
