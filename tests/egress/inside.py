"""Boxes with a way out whose far side is a thread of the test: it answers each connection with what it was made to."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ringfence.confine import network
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.process.network import Made
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.values import replace
from ringfence.world import egress, local

FILES = HostRule(said="files.example.org", host="files.example.org")
DATABASE = HostRule(said="db.example.com:5432", host="db.example.com", ports=(5432,))
POLICY = NetworkPolicy(allow=(FILES, DATABASE))
FILES_AT, DATABASE_AT = "198.18.0.16", "198.18.0.17"
WAYS = {name: (name,) for name in network.WAYS}

TRY = """
import json, socket, sys
def tried(address, port, kind=socket.SOCK_STREAM):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, kind) as client:
        client.settimeout(10)
        try:
            client.connect((address, port))
            if kind == socket.SOCK_DGRAM:
                client.send(b"x")
                client.recv(1)
            return client.recv(100).decode()
        except OSError as error:
            return error.errno or repr(error)
"""


def original(connection: socket.socket) -> str:
    """What a connection that arrived was made to."""
    try:
        if connection.family == socket.AF_INET6:
            asked = connection.getsockopt(41, 80, 28)  # IP6T_SO_ORIGINAL_DST
            return f"{socket.inet_ntop(socket.AF_INET6, asked[8:24])} {struct.unpack('>H', asked[2:4])[0]}"
        asked = connection.getsockopt(socket.IPPROTO_IP, 80, 16)  # SO_ORIGINAL_DST
        return f"{socket.inet_ntoa(asked[4:8])} {struct.unpack('>H', asked[2:4])[0]}"
    except OSError:  # nothing was redirected
        address, port = connection.getsockname()[:2]
        return f"{address} {port}"


class NoServer:
    """A registration of a box that no server serves."""

    def __init__(self) -> None:
        self.records, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def end(self) -> None:
        self.records.close()
        self._theirs.close()


class FarSide(threading.Thread):
    """Accepts what arrives, and says to each what it was made to."""

    def __init__(self, made: Made) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []
        self._ends, self._stopping = os.pipe()
        names = [name for name in made.listeners if name.startswith(("transparent", "proxy"))]
        self._listeners = [socket.socket(fileno=os.dup(made.listeners[name])) for name in names]
        self.start()

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._ends, select.POLLIN)
        by_number = {each.fileno(): each for each in self._listeners}
        for number in by_number:
            poll.register(number, select.POLLIN)
        while True:
            for number, _ in poll.poll():
                if number == self._ends:
                    return
                connection, _ = by_number[number].accept()
                with connection:
                    self.seen.append(original(connection))
                    connection.sendall(self.seen[-1].encode())

    def end(self) -> None:
        os.close(self._stopping)
        self.join()
        os.close(self._ends)
        for listener in self._listeners:
            listener.close()


@contextmanager
def opened(
    policy: NetworkPolicy = POLICY,
    ways: tuple[str, ...] = network.WAYS,
    config: SandboxConfig | None = None,
) -> Iterator[tuple[Sandbox, FarSide]]:
    """A box of policy, made in one of ways."""

    def resolved(asked: SandboxConfig, *, home: str) -> ResolvedPolicy:
        return replace(resolve(asked, home=home), network=policy)

    box = Sandbox(config or SandboxConfig())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "resolve", resolved)
        patch.setattr(network, "WAYS", ways)
        patch.setattr(egress.Egress, "begin", lambda planned, made, guest: egress.Egress(planned, made, NoServer(), guest))
        box.__enter__()
    with ExitStack() as stack:
        stack.callback(box.cleanup)
        world = box._world
        assert world is not None
        assert world.box.network is not None
        far = FarSide(world.box.network)
        try:
            yield box, far
        finally:
            far.end()


def said(box: Sandbox, program: str) -> object:
    """What a program prints as JSON."""
    result = box.execute(TRY + program)
    assert result.ok, result.stderr
    return json.loads(result.stdout)
