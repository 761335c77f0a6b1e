"""The outside of the egress server: one for each process that uses ringfence, started at the first box with a way out."""

from __future__ import annotations

import _socket
import atexit
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from ringfence.errors import HostError, SandboxLostError
from ringfence.guest import wire
from ringfence.policy.network import NetworkPolicy, to_wire

DIED = "the process that serves its network has died"
RESOLVERS, HOSTS = "RINGFENCE_RESOLVERS", "RINGFENCE_HOSTS"
"""Environment variables: resolvers to ask in place of the host's (ADDRESS[:PORT], by commas), and the path of a hosts(5) table
that is looked into before theirs."""
READY_SECONDS = 20.0
PATIENCE = struct.pack("ll", 10, 0)
ASK_SECONDS, HELLO_SECONDS = 120.0, 10.0
MOST_WHY = 200
"""Characters of what was said beside an answer."""
RECORDS_BUFFER = 1 << 20
"""Bytes of records that wait to be read; the kernel gives what it allows (net.core.wmem_max)."""
BORROWED = ("idna", "wcmatch", "bracex")
"""What the rules' own modules import of others."""


class Registration:
    """A box that the server serves. records: what it tells of it, packets as egress/records.py has them; never blocks."""

    def __init__(self, server: Egress, number: int, records: _socket.socket) -> None:
        self._server, self.number, self.records = server, number, records

    def set_rules(self, policy: NetworkPolicy) -> None:
        """Decide by this policy, from its return on; connections that it does not allow are broken. Raises SandboxLostError."""
        wait, held = os.pipe()
        try:
            try:
                self._server.send({"op": "rules", "id": self.number, "policy": to_wire(policy)}, [held])
            finally:
                os.close(held)
            poll = select.poll()
            poll.register(wait, select.POLLIN)
            if not poll.poll(
                READY_SECONDS * 1000
            ):  # whoever has it closes it then, and a worker's end breaks all that was allowed before
                raise SandboxLostError("the rules of the box's network could not be changed: their server does not answer.")
        finally:
            os.close(wait)

    def answer(self, question: int, *, allow: bool, until: str = "once", host: str = "", port: int = 0, why: str = "") -> None:
        """What somebody said to a question that the records asked, or that nobody could be asked.

        until: 'once' is for the connections that wait for it, 'box' for the life of the box, and then host and port are those of
        the question; 'nobody' is a refusal unasked. why: what was said beside it. Raises SandboxLostError.
        """
        said = {"op": "answer", "id": self.number, "question": question, "allow": int(allow), "until": until}
        self._server.send(said | {"host": host, "port": port, "why": why[:MOST_WHY]})

    def end(self) -> None:
        """Break what it still has open. Safe to call again."""
        if self.records.fileno() < 0:
            return
        self.records.close()
        try:
            self._server.send({"op": "end", "id": self.number})
        except SandboxLostError:
            pass  # then all is broken


class Egress:
    """A running server. Requests are single packets, so threads need no lock."""

    def __init__(self) -> None:
        if not sys.executable:
            raise HostError("this program does not say which Python runs it (sys.executable is empty).")
        from importlib.util import find_spec  # once for each process that has boxes with a way out

        from ringfence.confine.seccomp.server import build_server_filter

        program = os.path.join(os.path.dirname(os.path.dirname(wire.__file__)), "egress", "supervisor.py")
        found = (find_spec(name) for name in BORROWED)
        folders = {os.path.dirname(os.path.dirname(each.origin)) for each in found if each is not None and each.origin}
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, PATIENCE)
        command = [sys.executable, "-I", "-S", "-OO", "-X", "no_debug_ranges", program, *sorted(folders)]
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        try:
            # setsid: as process/zygote.py
            self.pid = os.posix_spawn(sys.executable, command, {}, file_actions=actions, setsid=True)
        except OSError as error:
            ours.close()
            raise HostError(f"{sys.executable} cannot be started: {error.strerror}.", errno=error.errno or 0) from None
        finally:
            theirs.close()
        self.socket = ours
        self._number = 0
        self._guard = threading.Lock()
        self.send({"op": "filter", "program": build_server_filter()})

    def register(
        self,
        policy: NetworkPolicy,
        listeners: Mapping[str, int],
        redirect: bool = False,
        *,
        resolvers: Sequence[str] | None = None,
        hosts: str | None = None,
        ask_seconds: float = ASK_SECONDS,
        hello_seconds: float = HELLO_SECONDS,
    ) -> Registration:
        """Have a box served; returns when it is. The descriptors stay the caller's to close.

        listeners: sockets that listen in the box, by name: dns_udp, dns_tcp, proxy, transparent, transparent6, and transparent.N
        where nothing is redirected. resolvers, hosts: who is asked for addresses, and a hosts(5) table that comes first; None is
        what the environment says (RINGFENCE_RESOLVERS, RINGFENCE_HOSTS), and else the host's. ask_seconds: how long a connection
        is held for an answer. hello_seconds: for all that a client says before its connection is decided on, however slowly.

        Raises HostError where it cannot be served here, SandboxLostError where the server has died.
        """
        with self._guard:
            self._number += 1
            number = self._number
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        theirs.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, RECORDS_BUFFER)
        ours.setblocking(False)
        wire.refuse_descriptors(ours)
        message: dict[str, object] = {"op": "box", "id": number, "policy": to_wire(policy), "redirect": int(redirect)}
        message |= {"listeners": [*listeners, "records"], "explicit": explicit(policy), "ask_ms": int(ask_seconds * 1000)}
        message["hello_ms"] = int(hello_seconds * 1000)
        message["resolvers"] = list(resolvers) if resolvers is not None else _words(RESOLVERS)
        message["hosts"] = hosts if hosts is not None else _table()
        message["no_proxy"] = (_words("no_proxy") or _words("NO_PROXY")) if policy.upstream_proxy else []
        try:
            self.send(message, [*listeners.values(), theirs.fileno()])
            theirs.close()
            _until_ready(ours)
        except BaseException:
            theirs.close()
            ours.close()
            raise
        return Registration(self, number, ours)

    def send(self, message: dict[str, object], descriptors: list[int] | None = None) -> None:
        """Raises SandboxLostError when the server is gone."""
        try:
            wire.send(self.socket, message, descriptors)
        except OSError:
            raise SandboxLostError(f"the box has no network any more: {DIED}.") from None

    def alive(self) -> bool:
        poll = select.poll()
        poll.register(self.socket.fileno(), 0)
        if not poll.poll(0):
            return True
        self._reap()
        return False

    def _reap(self) -> None:
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # the caller collects all its children itself

    def close(self) -> None:
        """End the server with everything that it serves, and reap it."""
        self.socket.close()
        self._reap()


def explicit(policy: NetworkPolicy) -> list[str]:
    """The names that a policy allows without a wildcard, each once, in its order: that of their addresses inside."""
    return list(dict.fromkeys(rule.host for rule in policy.allow if rule.host and "*" not in rule.host))


def _until_ready(records: _socket.socket) -> None:
    """Wait for the first record, which says that the box is served or why it is not."""
    poll = select.poll()
    poll.register(records.fileno(), select.POLLIN)
    deadline = time.monotonic() + READY_SECONDS
    while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if time.monotonic() >= deadline:
            raise HostError(f"the server of its network did not answer within {READY_SECONDS:g} s.")
    try:
        packet, _ = wire.receive(records, 0)
        said = wire.decode(packet) if packet else None
    except wire.WireError as error:
        raise SandboxLostError(f"the box has no network: its server said what is no message: {error}.") from None
    if not isinstance(said, dict):
        raise SandboxLostError(f"the box has no network: {DIED}.")
    if said["op"] == b"failed":
        raise HostError(f"the box cannot have a network here: {os.fsdecode(said['why'])}.")


def _words(variable: str) -> list[str]:
    return os.environ.get(variable, "").replace(",", " ").split()


def _table() -> str:
    path = os.environ.get(HOSTS, "")
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise HostError(f"{HOSTS} names {path}, which cannot be read: {error.strerror}.", errno=error.errno or 0) from None


_lock = threading.Lock()
_current: Egress | None = None


def current() -> Egress:
    """The server of this process; a new one where there is none or where it died. Returns before it is ready to serve."""
    global _current
    with _lock:
        if _current is None or not _current.alive():
            if _current is not None:
                _current.socket.close()
            _current = Egress()
        return _current


def shut_down() -> None:
    """End the server of this process with all that it serves; the next box starts another."""
    global _current
    with _lock:
        ended, _current = _current, None
    if ended is not None:
        ended.close()


def _forget() -> None:
    # In a fork of the caller: its copy of the socket would keep the server after the caller's death.
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.socket.close()
        _current = None


os.register_at_fork(after_in_child=_forget)
atexit.register(shut_down)
