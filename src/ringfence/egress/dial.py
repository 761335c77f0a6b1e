"""The way to the far side: one look-up, the decision on each address, and that very address is connected to.

Addresses are tried in order, each for a bounded time. Through a proxy of the host's, the name goes to that proxy as it was decided
on, and what address it has there is not known here: rules on addresses then decide about literal ones only (docs/network.md).
"""

from __future__ import annotations

import _socket
import base64
import errno
import os
from urllib.parse import SplitResult, unquote, urlsplit

from ringfence.egress import lookup
from ringfence.egress.box import Box
from ringfence.egress.loop import Task, TimedOutError
from ringfence.policy.hosts import Address, Name, normalise
from ringfence.policy.reach import Asked, Verdict, may_dial

EACH_SECONDS = 5.0
"""For one address, where another one is left to be tried; the last one has LAST_SECONDS."""
LAST_SECONDS = 15.0
MOST_TRIED = 6
MOST_HEAD = 16 * 1024
"""Bytes of a proxy's answer."""
DEFAULT_PROXY_PORT = 80  # of http://, RFC 9110, 4.2.1


class RefusedError(Exception):
    """The verdict on what would have been dialled."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.why)
        self.verdict = verdict


class UnreachableError(Exception):
    """The far side was not reached: error as connect(2) has it, or 0 where the name has no address; why in words."""

    def __init__(self, why: str, error: int = 0) -> None:
        super().__init__(why)
        self.why, self.error = why, error


async def dial(box: Box, task: Task, asked: Asked, verdict: Verdict) -> tuple[_socket.socket, str]:
    """A connection to what was asked for and allowed, and the address that it leads to.

    Raises RefusedError where no address of the host may be dialled, UnreachableError where none can.
    """
    if box.upstream and not bypassed(box.no_proxy, asked.host, asked.port):
        return await _through(box, task, asked), ""
    try:
        found = await lookup.addresses(task, asked.host, box.outside)
    except lookup.NotFoundError as error:
        raise UnreachableError(str(error)) from None
    refused: Verdict | None = None
    allowed: list[str] = []
    for address in found:
        last = may_dial(box.policy, asked, verdict, address)
        if last.allowed:
            allowed.append(address)
        else:
            refused = refused or last
    if not allowed:
        assert refused is not None
        raise RefusedError(refused)
    return await _first(task, allowed[:MOST_TRIED], asked.port)


async def _first(task: Task, addresses: list[str], port: int) -> tuple[_socket.socket, str]:
    error = errno.ETIMEDOUT
    for address in addresses:
        task.within(EACH_SECONDS if address != addresses[-1] else LAST_SECONDS)
        try:
            socket = _socket.socket(lookup._family(address), _socket.SOCK_STREAM)
        except OSError as failed:
            raise UnreachableError(f"this host has no socket left: {failed.strerror}", failed.errno or 0) from None
        task.adopt(socket)
        try:
            await lookup.connect(task, socket, (address, port))
        except TimedOutError:
            error = errno.ETIMEDOUT
        except OSError as failed:
            error = failed.errno or 0
        else:
            socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
            return socket, address
        task.close(socket)
    raise UnreachableError(f"{' and '.join(addresses)} port {port}: {os.strerror(error)}", error)


async def _through(box: Box, task: Task, asked: Asked) -> _socket.socket:
    """A tunnel that the host's own proxy makes (RFC 9110, 9.3.6)."""
    socket = await to_proxy(box, task)
    host = f"[{asked.host}]" if ":" in str(asked.host) else str(asked.host)
    place = f"{host}:{asked.port}"
    head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{authorization(box.upstream)}\r\n"
    await _send(task, socket, head.encode("ascii"))
    held = b""
    while b"\r\n\r\n" not in held:
        try:
            data = socket.recv(1)  # nothing behind the head may be taken: it is the far side's
        except BlockingIOError:
            await _within(task)
            continue
        except OSError as error:
            raise UnreachableError(f"the upstream proxy broke the connection: {error.strerror}", error.errno or 0) from None
        held += data
        if not data or len(held) > MOST_HEAD:
            raise UnreachableError("the upstream proxy gave no answer that is HTTP")
    words = held.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise UnreachableError("the upstream proxy gave no answer that is HTTP")
    if not 200 <= int(words[1]) < 300:
        raise UnreachableError(f"the upstream proxy refused it with status {int(words[1])}", errno.ECONNREFUSED)
    return socket


async def to_proxy(box: Box, task: Task) -> _socket.socket:
    """A connection to the host's own proxy, which may have a private address. Raises UnreachableError."""
    url = urlsplit(box.upstream)
    try:
        host, port = normalise(url.hostname or ""), url.port or DEFAULT_PROXY_PORT
        found = await lookup.addresses(task, host, box.outside)
        return (await _first(task, found[:MOST_TRIED], port))[0]
    except (ValueError, lookup.NotFoundError) as error:
        raise UnreachableError(f"the upstream proxy cannot be found: {error}") from None
    except UnreachableError as error:
        raise UnreachableError("the upstream proxy cannot be reached", error.error) from None


def authorization(proxy: str) -> str:
    """The header that the URL of a proxy stands for, with its line end; '' where it names nobody (RFC 7617)."""
    url: SplitResult = urlsplit(proxy)
    if url.username is None:
        return ""
    who = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n"


def bypassed(no_proxy: tuple[str, ...], host: Name | Address, port: int) -> bool:
    """Whether a host is dialled without the proxy, by entries as curl and others read them: names with all below, addresses,
    networks, each with a port or without, and `*`."""
    from ipaddress import ip_address, ip_network

    for entry in no_proxy:
        if entry == "*":
            return True
        bare, _, said = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if said and said != str(port):
            continue
        if isinstance(host, Name):
            suffix = bare.lower().removeprefix("*").strip(".")
            if suffix and (host.text == suffix or host.text.endswith("." + suffix)):
                return True
            continue
        try:
            if ip_address(host.text) in ip_network(bare.strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False


async def _send(task: Task, socket: _socket.socket, data: bytes) -> None:
    task.within(LAST_SECONDS)
    while data:
        try:
            data = data[socket.send(data, _socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            await _within(task)
        except OSError as error:
            raise UnreachableError(f"the upstream proxy broke the connection: {error.strerror}", error.errno or 0) from None


async def _within(task: Task) -> None:
    try:
        await task.wait()
    except TimedOutError:
        raise UnreachableError("the upstream proxy did not answer in time", errno.ETIMEDOUT) from None
