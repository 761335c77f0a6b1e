"""What plays the outside of a box, and what plays its inside, on loopback: servers, listeners, and the egress server between.

The range of names is one of loopback here, so that a listener on it can be made without a namespace.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ringfence.guest import wire
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.process import egress
from ringfence.values import replace

RANGE = "127.198.0.0/16"
OWN = "127.198.0.1"
SECONDS = 5.0
LOOPBACK = HostRule("127.0.0.0/8", address="127.0.0.0/8")


def name_address(place: int) -> str:
    """Where the name at that place of the policy stands."""
    return f"127.198.0.{16 + place}"


def listen(address: str, port: int = 0, backlog: int = 128) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.listen(backlog)
    return made


@contextmanager
def server(talk: Callable[[socket.socket], None], address: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """A server outside: its port, and what reached it, one entry for each connection as bytes come. talk: serves one."""
    listening, seen, threads = listen(address), [], []

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(SECONDS)
            try:
                talk(connection)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            seen.append(b"")
            threads.append(threading.Thread(target=serve, args=(_Noted(connection, seen, len(seen) - 1),)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listening.getsockname()[1], seen
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listening.close()
        for each in threads:
            each.join()


class _Noted(socket.socket):
    """A connection that notes what is received."""

    def __init__(self, of: socket.socket, seen: list[bytes], at: int) -> None:
        super().__init__(of.family, of.type, of.proto, fileno=of.detach())
        self._seen, self._at = seen, at

    def recv(self, size: int, flags: int = 0) -> bytes:  # type: ignore[override]
        data = super().recv(size, flags)
        self._seen[self._at] += data
        return data


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


class Inside:
    """A box as the server sees it: its listeners, its records, and clients of them."""

    def __init__(
        self, policy: NetworkPolicy, stack: ExitStack, served: Sequence[tuple[int, int]], settings: Mapping[str, Any]
    ) -> None:
        self.policy = replace(policy, range=RANGE)
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind((OWN, 0))
        proxy, queries = (stack.enter_context(listen(OWN, backlog=4096)) for _ in range(2))
        self.proxy, self.dns = proxy.getsockname(), datagrams.getsockname()
        self.dns_tcp = queries.getsockname()
        listeners = {"dns_udp": datagrams.fileno(), "dns_tcp": queries.fileno(), "proxy": proxy.fileno()}
        for at, (place, port) in enumerate(served):
            listeners[f"transparent.{at}"] = stack.enter_context(listen(name_address(place), port, 4096)).fileno()
        self.registration = egress.current().register(self.policy, listeners, **settings)
        stack.callback(self.registration.end)
        self.told: list[dict[str, Any]] = []

    def connect(self, place: int, port: int) -> socket.socket:
        """To the name at a place of the policy, transparently."""
        return socket.create_connection((name_address(place), port), timeout=SECONDS)

    def resets(self, place: int, port: int) -> bool:
        """Whether a connection to a name at a place is reset, before it is there for the client or after."""
        try:
            with self.connect(place, port) as client:
                return read_all(client) == b"<reset>"
        except ConnectionResetError:
            return True

    def to_proxy(self) -> socket.socket:
        return socket.create_connection(self.proxy, timeout=SECONDS)

    def records(self) -> list[dict[str, Any]]:
        """All that was told so far; text as text."""
        while True:
            try:
                packet, _ = wire.receive(self.registration.records, 0)
            except BlockingIOError:
                return self.told
            if not packet:
                return self.told
            said = wire.decode(packet)
            assert isinstance(said, dict)
            self.told.append({key: value.decode() if isinstance(value, bytes) else value for key, value in said.items()})

    def wait_for(self, **wanted: Any) -> dict[str, Any]:
        """The first record that has these fields."""
        deadline = time.monotonic() + SECONDS
        while True:
            for record in self.records():
                if all(record.get(key) == value for key, value in wanted.items()):
                    return record
            assert time.monotonic() < deadline, f"no record with {wanted}, but {self.told}"
            select.select([self.registration.records], [], [], 0.2)

    def decisions(self) -> list[tuple[int, str, int, str]]:
        return [(each["allowed"], each["host"], each["port"], each["via"]) for each in self.records() if each["op"] == "decision"]


@contextmanager
def inside(
    policy: NetworkPolicy, served: Sequence[tuple[int, int]] = (), hosts: str | None = "", **settings: Any
) -> Iterator[Inside]:
    """A box with a policy. served: places of names, each with a port that a transparent listener has."""
    with ExitStack() as stack:
        yield Inside(policy, stack, served, {"hosts": hosts, "resolvers": ["127.0.0.1:1"], **settings})


def allow(*rules: HostRule, ports: Sequence[int] = (), **more: Any) -> NetworkPolicy:
    """A policy with these rules, and loopback, which plays the outside, at these ports."""
    return NetworkPolicy(allow=(*rules, replace(LOOPBACK, ports=tuple(ports))), **more)


def named(host: str, *ports: int, **more: Any) -> HostRule:
    return HostRule(f"{host}:{ports[0]}" if ports else host, host=host, ports=ports, **more)


def read_all(connection: socket.socket) -> bytes:
    """Until the other side ends; what came until it broke where it breaks."""
    held = b""
    try:
        while data := connection.recv(65536):
            held += data
    except ConnectionResetError:
        held += b"<reset>"
    return held


def exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or what came before the end."""
    held = b""
    while len(held) < size and (data := connection.recv(size - len(held))):
        held += data
    return held


def response(connection: socket.socket) -> bytes:
    """One response with a length."""
    held = b""
    while b"\r\n\r\n" not in held and (data := connection.recv(65536)):
        held += data
    head, _, body = held.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return held + exactly(connection, length - len(body))


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def tasks_below(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(each) for each in file.read().split()]


def worker_pid() -> int:
    """The worker of this process's server."""
    deadline = time.monotonic() + SECONDS
    while not (found := tasks_below(egress.current().pid)):
        assert time.monotonic() < deadline
        os.sched_yield()
    return found[0]
