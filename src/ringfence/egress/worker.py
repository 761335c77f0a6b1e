"""The worker of the egress server: everything that comes out of boxes is read here, in one confined process with one thread."""

from __future__ import annotations

import _socket
import gc
import os
import select
import time
from typing import Any

from ringfence.egress import cage, dns, limits, transparent
from ringfence.egress.box import Box
from ringfence.egress.client import Client, ClosedError
from ringfence.egress.dial import RefusedError, UnreachableError
from ringfence.egress.lookup import Outside
from ringfence.egress.loop import Loop, Task, TimedOutError
from ringfence.egress.names import Names
from ringfence.egress.records import Records
from ringfence.egress.refusals import BadBytesError
from ringfence.egress.registration import MOST_DESCRIPTORS, Registration
from ringfence.egress.relay import Pipes, reset
from ringfence.guest import kernel, wire
from ringfence.policy.hosts import BadHostError, Name, normalise
from ringfence.policy.network import HostRule, NetworkPolicy, from_wire, to_wire
from ringfence.policy.reach import Asked, Verdict, answers_name, decide, may_dial
from ringfence.values import replace

ACCEPTED_TOGETHER = 16
"""Connections that one listener gives before others have a turn; queries likewise."""
DNS_SECONDS = 10.0
SAME_QUESTION_SECONDS = 5.0
FULL_RULE = "egress.connections"
PAUSE_SECONDS = 0.1


class Worker:
    """Serves every box that the supervisor gives it. control: where it hears of them."""

    def __init__(self, control: _socket.socket, may_open: int) -> None:
        self.control = control
        self.loop = Loop(_fault)
        self.room = limits.Room(may_open)
        self.pipes = Pipes(self.room.pipes)
        self.boxes: dict[int, Box] = {}
        control.setblocking(False)
        self.loop.call(control.fileno(), self._hear)

    def add(self, given: Registration) -> None:
        """Serve a box; where a predecessor did, its connections were lost. One that cannot be served is told so."""
        try:
            self._add(given)
        except (OSError, ValueError) as error:
            box = self.boxes.pop(given.number, None)
            if box is not None:
                box.end()
            wire.send_to(given.by_name()["records"], {"op": "failed", "why": str(error)[:200]})

    def _add(self, given: Registration) -> None:
        policy = from_wire(given.policy)
        descriptors = given.by_name()
        records = Records(_own(descriptors["records"]), lambda: self._blocked(box))
        names = Names(policy.range, given.explicit, descriptors["journal"])
        box = Box(policy, names, given.outside, records, given.ask_seconds)
        box.upstream, box.no_proxy, box.patience = policy.upstream_proxy, given.no_proxy, given.hello_seconds
        for host, port, allowed in given.grants:
            box.granted((host, port), allowed)
        self.boxes[given.number] = box
        self.room.held += len(descriptors)
        for name, descriptor in descriptors.items():
            if name not in ("records", "journal"):
                self._listen(box, name, _own(descriptor), redirected=given.redirected)
        box.closing.append(lambda: self._closed(box, descriptors["journal"], len(descriptors)))
        records.send({"op": "restarted" if given.served else "ready", "at_ns": time.monotonic_ns()})

    def _closed(self, box: Box, journal: int, descriptors: int) -> None:
        self.loop.forget(box.records.socket.fileno())
        box.records.socket.close()
        os.close(journal)
        self.room.held -= descriptors

    def _listen(self, box: Box, name: str, listener: _socket.socket, *, redirected: bool) -> None:
        listener.setblocking(False)
        kind = name.partition(".")[0].removesuffix("6")

        def act() -> None:
            if kind == "dns_udp":
                self._queries(box, listener)
            else:
                self._accept(box, listener, kind, redirected)

        def close() -> None:
            self.loop.forget(listener.fileno())
            listener.close()

        box.closing.append(close)
        self.loop.call(listener.fileno(), act)

    def _blocked(self, box: Box) -> None:
        """The caller reads a box's records too slowly: go on when there is room."""
        descriptor = box.records.socket.fileno()

        def flush() -> None:
            if box.records.flush():
                self.loop.forget(descriptor)

        self.loop.call(descriptor, flush, select.EPOLLOUT)

    def _hear(self) -> None:
        """What the supervisor says, which is trusted."""
        try:
            packet, descriptors = wire.receive(self.control, MOST_DESCRIPTORS)
        except BlockingIOError:
            return
        if not packet:
            os._exit(0)
        said = wire.decode(wire.carried(packet, descriptors))
        assert isinstance(said, dict)
        if said["op"] == b"box":
            self.add(Registration(said, descriptors))
            return
        box = self.boxes.get(said["id"])
        if box is not None:
            self._change(box, said)
        for descriptor in descriptors:  # which tells the caller that it is done
            os.close(descriptor)

    def _change(self, box: Box, said: dict[str, Any]) -> None:
        if said["op"] == b"rules":
            box.set_policy(from_wire(said["policy"]))
        elif said["op"] == b"answer":
            if said["until"] == b"box":
                box.granted((said["host"].decode(), said["port"]), bool(said["allow"]))
            nobody = said["until"] == b"nobody"
            box.answer(said["question"], bool(said["allow"]), said["why"].decode(), nobody=nobody)
        elif said["op"] == b"outside":
            box.outside = Outside.heard(said)
        elif said["op"] == b"end":
            del self.boxes[said["id"]]
            box.end()

    def _accept(self, box: Box, listener: _socket.socket, kind: str, redirected: bool) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                descriptor, peer = listener._accept()  # type: ignore[attr-defined]  # accept() of socket.socket is made of it
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor left in this process or on this host: what waits in the queue can wait
                self._pause(listener)
                return
            socket = _socket.socket(listener.family, listener.type, listener.proto, descriptor)
            self._begin(box, socket, kind, redirected, peer[1])

    def _pause(self, listener: _socket.socket) -> None:
        descriptor = listener.fileno()
        self.loop.change(descriptor, 0)

        def go_on() -> None:
            if listener.fileno() == descriptor:
                self.loop.change(descriptor, select.EPOLLIN)

        self.loop.at(time.monotonic() + PAUSE_SECONDS, go_on)

    def _begin(self, box: Box, socket: _socket.socket, kind: str, redirected: bool, source_port: int) -> None:
        """A task for a connection, or the answer that there are too many."""
        if not self.room.has(box.connections):
            why = f"the box has {box.connections} connections, and what is left is for others"
            box.records.tell("", 0, "tcp", kind, Verdict(False, FULL_RULE, why, None), source_port)
            if kind != "proxy" or not self.room.may_refuse(box.refusing):
                reset(socket)
                socket.close()
                return
            box.refusing += 1
            self.room.refusing += 1
            kind = "full"
        else:
            self.room.connections += 1
            box.connections += 1

        def ended(task: Task) -> None:
            box.tasks.discard(task)
            box.live.pop(task, None)
            box.once.pop(task, None)
            if kind == "full":
                box.refusing -= 1
                self.room.refusing -= 1
            else:
                self.room.connections -= 1
                box.connections -= 1

        def make(task: Task) -> object:
            client = Client(task, box, socket, self.pipes, source_port)
            return _served(client, kind, redirected)

        box.tasks.add(self.loop.start(box, make, socket, ended=ended))  # type: ignore[arg-type]

    def _queries(self, box: Box, socket: _socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                query, peer = socket.recvfrom(dns.MAX_QUERY + 1)
                answer = answered(box, query, peer[1], self.loop.now)
                if answer:
                    socket.sendto(answer, peer)
            except OSError:  # nothing more has come, or the client is gone (ICMP)
                return
            except Exception as error:  # as Task.step does: a fault of ours costs this query
                _fault(box, error)


def answered(box: Box, query: bytes, source_port: int, now: float) -> bytes:
    """What a box's resolver answers, by the rules alone."""

    def resolve(text: str) -> bytes | None:
        try:
            name = normalise(text)
        except BadHostError as error:
            name, verdict = Name(text), Verdict(False, "a host is a name or an address", str(error), None)
        else:
            if not isinstance(name, Name):
                return None
            if answers_name(box.policy, name):
                new = name not in box.names
                address = box.names.address_of(name)
                if address is not None and new:
                    box.records.send({"op": "name", "name": name.text, "address": _socket.inet_ntop(_socket.AF_INET, address)})
                if address is not None:
                    return address
                verdict = Verdict(False, "egress.names", "the box has asked for more names than one has addresses for", None)
            else:
                verdict = decide(box.policy, Asked(name, 443, "tls", "dns"))
        if box.asked_again(source_port, str(name), now, SAME_QUESTION_SECONDS):
            return None
        box.records.tell(str(name), 0, "tcp", "dns", replace(verdict, allowed=False, ask=False), source_port)
        return None

    def reverse(address: bytes) -> str | None:
        text = _socket.inet_ntop(_socket.AF_INET, address)
        name = box.names.name_of(text) if box.names.holds(text) else None
        return name.text if name else None

    return dns.answer(query, resolve, reverse)


async def _served(client: Client, kind: str, redirected: bool) -> None:
    try:
        if kind == "transparent":
            await _transparent(client, redirected)
        elif kind == "dns_tcp":
            await _dns(client)
        else:
            from ringfence.egress import proxy

            await (proxy.refuse_full(client) if kind == "full" else proxy.serve(client))
    except (ClosedError, RefusedError, UnreachableError):
        pass
    except TimedOutError:
        reset(client.socket)


async def _transparent(client: Client, redirected: bool) -> None:
    try:
        address, port = transparent.original(client.socket, redirected=redirected)
    except OSError:
        reset(client.socket)
        return
    host = transparent.meant(client.box, address)
    if host is None:
        if client.box.names.holds(address) and not client.box.names.is_own(address):
            verdict = Verdict(False, "network.range", f"{address} stands for no name in this box", None)
            client.box.records.tell(address, port, "tcp", "transparent", verdict, client.source_port)
        reset(client.socket)
        return
    await transparent.serve(client, host, port)


async def _dns(client: Client) -> None:
    """Queries over TCP, each within DNS_SECONDS."""
    framing = dns.Framing()
    while True:
        client.task.within(DNS_SECONDS)
        data = await client.receive()
        if not data:
            return
        try:
            for query in framing.feed(data):
                await client.send(dns.framed(answered(client.box, query, client.source_port, time.monotonic())))
        except BadBytesError:
            reset(client.socket)
            return


def load() -> None:
    """Import what is otherwise imported when it is needed: a worker has no files. To be called before it is forked."""
    import ipaddress  # noqa: F401

    from ringfence.egress import exchange, proxy  # noqa: F401
    from ringfence.policy import addresses, patterns  # noqa: F401

    for text in ("b\u00fccher.example", "example.com", "127.1"):
        normalise(text)
    b"x".decode("latin-1")
    dns.answer(b"", lambda name: None)
    patterns.matches("/[ab]*", "/a")
    warmed = from_wire(to_wire(NetworkPolicy(allow=(HostRule("x", host="example.com", ports=(80,), paths=("/a/**",)),))))
    decide(warmed, Asked(Name("example.com"), 80, "http", "http", "GET", "/a/b"))
    may_dial(warmed, Asked(Name("example.com"), 80, "http"), Verdict(True, "", ""), "2001:db8::1")


def start(control: _socket.socket, registrations: dict[int, Registration], program: bytes, parent: int) -> None:
    """Never returns: becomes the worker, in a fork of the supervisor, or says why it cannot be and ends."""
    try:
        kernel.hide_command_line(b"ringfence-net-w")
        may_open = limits.descriptors()
        cage.enter(program, parent)
        gc.enable()
        worker = Worker(control, may_open)
        for given in registrations.values():
            worker.add(given)
    except BaseException as error:
        wire.send(control, {"op": "failed", "why": f"{type(error).__name__}: {error}"[:200]})
        os._exit(1)
    try:
        wire.send(control, {"op": "serving"})
        worker.loop.run()
    finally:
        os._exit(1)


def _own(descriptor: int) -> _socket.socket:
    return _socket.socket(fileno=descriptor)


def _fault(owner: object, error: Exception) -> None:
    """A fault of ours in serving one connection, which is lost; the box's caller is told."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else "?"
    if isinstance(owner, Box):
        owner.records.send({"op": "note", "text": f"a connection was lost to a fault in {where}: {error!r}"[:300]})
