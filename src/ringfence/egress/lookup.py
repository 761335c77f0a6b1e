"""Names to addresses, outside: the host's table and its resolvers, asked without waiting for one connection in another's time.

Not done: search lists (a rule names the whole name), and what else nsswitch.conf may name (mDNS, LDAP, containers' resolvers). Who
needs another view of names says so by resolvers and a table of hosts (docs/network.md).
"""

from __future__ import annotations

import _socket
import errno
import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from ringfence.egress import queries
from ringfence.egress.loop import Task, TimedOutError
from ringfence.policy.hosts import Address, BadHostError, Name, normalise
from ringfence.values import field, frozen

PORT = 53
MOST_SERVERS = 3  # MAXNS, resolv.h
ATTEMPTS = 2
TIMEOUT_SECONDS = 2.0
AFTER_FIRST_SECONDS = 0.05
"""What the other family's answer may come later (RFC 8305, 3, says so of IPv4's)."""
MOST_MESSAGE = 65535


class NotFoundError(Exception):
    """The name has no address, or nobody could say so."""


@frozen
class Outside:
    """How names are looked up. servers: address and port. hosts: name -> addresses, which no resolver is asked for."""

    servers: tuple[tuple[str, int], ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, resolvers: Iterable[str], resolv_conf: str, *tables: str) -> Outside:
        """From resolvers that somebody named, or else a resolv.conf(5), and from hosts(5) tables, the first of which wins."""
        return cls(servers(resolvers) or servers_of(resolv_conf), hosts_of(*tables))

    def said(self) -> dict[str, object]:
        """As a message has it."""
        return {"servers": [list(each) for each in self.servers], "table": [[name, *found] for name, found in self.hosts.items()]}

    @classmethod
    def heard(cls, said: Mapping[str, Any]) -> Outside:
        """What said() was."""
        table = ([each.decode() for each in line] for line in said["table"])
        return cls(tuple((host.decode(), port) for host, port in said["servers"]), {name: tuple(found) for name, *found in table})


def servers_of(resolv_conf: str) -> tuple[tuple[str, int], ...]:
    """The nameservers of a resolv.conf(5), or the one on this machine that the C library asks where it names none."""
    found = [words[1] for words in map(str.split, resolv_conf.splitlines()) if len(words) > 1 and words[0] == "nameserver"]
    return servers(found or ["127.0.0.1"])


def servers(said: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Resolvers as a person names them: ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT. What is none of these is left out."""
    found: list[tuple[str, int]] = []
    for text in said:
        host, port = text, str(PORT)
        if text.startswith("["):
            host, _, rest = text[1:].partition("]")
            port = rest.removeprefix(":") or port
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        try:
            found.append((str(ip_address(host)), int(port)))
        except ValueError:
            continue
    return tuple(found[:MOST_SERVERS])


def hosts_of(*tables: str) -> dict[str, tuple[str, ...]]:
    """The names of hosts(5) tables, earlier lines and tables first; lines that are none are left out."""
    found: dict[str, list[str]] = {}
    for line in (line for table in tables for line in table.splitlines()):
        words = line.partition("#")[0].split()
        if len(words) < 2:
            continue
        try:
            address = str(ip_address(words[0].partition("%")[0]))
        except ValueError:
            continue
        for word in words[1:]:
            try:
                name = normalise(word)
            except BadHostError:
                continue
            if isinstance(name, Name) and address not in found.setdefault(name.text, []):
                found[name.text].append(address)
    return {name: tuple(addresses) for name, addresses in found.items()}


async def addresses(task: Task, host: Name | Address, outside: Outside) -> list[str]:
    """The addresses of a host, those of IPv4 and IPv6 in turn, at least one. Raises NotFoundError, with why."""
    if isinstance(host, Address):
        return [host.text]
    if host.text in outside.hosts:
        return list(outside.hosts[host.text])
    problem = "this host names no resolver"
    for _ in range(ATTEMPTS):
        for server in outside.servers:
            try:
                return await _ask(task, host.text, server)
            except TimedOutError:
                problem = f"the resolver at {server[0]} did not answer"
            except (OSError, queries.BadAnswerError) as error:
                problem = f"the resolver at {server[0]} could not be asked: {error}"
    raise NotFoundError(problem)


async def _ask(task: Task, name: str, server: tuple[str, int]) -> list[str]:
    """Both kinds of addresses from one resolver."""
    socket = _socket.socket(_family(server[0]), _socket.SOCK_DGRAM)
    task.adopt(socket)
    found: dict[int, queries.Found] = {}
    try:
        socket.connect(server)  # the kernel takes answers from there alone, to a port that it chose
        idents = {kind: int.from_bytes(os.urandom(2), "big") for kind in (queries.A, queries.AAAA)}
        for kind, ident in idents.items():
            socket.send(queries.query(name, kind, ident))
        task.within(TIMEOUT_SECONDS)
        while len(found) < len(idents):
            try:
                data = socket.recv(MOST_MESSAGE)
            except BlockingIOError:
                try:
                    await task.wait()
                except TimedOutError:
                    if queries.A in found and found[queries.A].addresses:
                        break
                    raise
                continue
            for kind in idents.keys() - found.keys():
                try:
                    found[kind] = queries.read(data, name, kind, idents[kind])
                except queries.BadAnswerError:
                    continue  # of the other kind, or of somebody who guesses
                if found[kind].truncated:
                    found[kind] = await _over_tcp(task, name, kind, server)
                if kind == queries.A and found[kind].addresses:
                    task.within(AFTER_FIRST_SECONDS)
                break
    finally:
        task.close(socket)
    return _in_turn(name, found)


def _in_turn(name: str, found: Mapping[int, queries.Found]) -> list[str]:
    four, six = (list(found[kind].addresses) if kind in found else [] for kind in (queries.A, queries.AAAA))
    both = [address for pair in zip(four, six, strict=False) for address in pair]
    both += four[len(six) :] + six[len(four) :]
    if both:
        return both
    codes = {each.code for each in found.values()}
    if codes <= {queries.NOERROR, queries.NXDOMAIN}:
        raise NotFoundError(f"{name} {'does not exist' if queries.NXDOMAIN in codes else 'has no address'}")
    raise queries.BadAnswerError(f"it answered {name} with code {max(codes)}")


async def _over_tcp(task: Task, name: str, kind: int, server: tuple[str, int]) -> queries.Found:
    """One kind again, where the answer does not fit a datagram (RFC 7766)."""
    socket = _socket.socket(_family(server[0]), _socket.SOCK_STREAM)
    task.adopt(socket)
    try:
        await connect(task, socket, server)
        ident = int.from_bytes(os.urandom(2), "big")
        message = queries.query(name, kind, ident)
        socket.send(len(message).to_bytes(2, "big") + message)
        held = b""
        while len(held) < 2 or len(held) < 2 + int.from_bytes(held[:2], "big"):
            try:
                data = socket.recv(MOST_MESSAGE)
            except BlockingIOError:
                await task.wait()
                continue
            if not data:
                raise queries.BadAnswerError("it ends too early")
            held += data
        return queries.read(held[2:], name, kind, ident)
    finally:
        task.close(socket)


async def connect(task: Task, socket: _socket.socket, address: tuple[str, int]) -> None:
    """Connect one of task's sockets, within the deadline that the task has. Raises OSError."""
    error = socket.connect_ex(address)
    while error in (errno.EINPROGRESS, errno.EALREADY):
        # Looked at before the first wait: on this host a connection is there, or refused, by now.
        error = socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if not error:
            try:
                socket.getpeername()
            except OSError:
                error = errno.EINPROGRESS
                await task.wait()
    if error:
        raise OSError(error, os.strerror(error))


def _family(address: str) -> int:
    return _socket.AF_INET6 if ":" in address else _socket.AF_INET
