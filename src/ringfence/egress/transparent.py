"""The entrance that programs do not know of: a connection to an address that stands for a name, by any protocol."""

from __future__ import annotations

import _socket
import re
import struct

from ringfence.egress.box import Box
from ringfence.egress.client import Client, is_tls
from ringfence.egress.dial import RefusedError, UnreachableError
from ringfence.egress.loop import TimedOutError
from ringfence.egress.refusals import BadBytesError
from ringfence.egress.relay import reset
from ringfence.policy.hosts import Address, Name
from ringfence.policy.reach import Asked, Verdict, likely_scheme
from ringfence.values import replace

SOL_IP, SOL_IPV6, SO_ORIGINAL_DST = 0, 41, 80  # linux/netfilter_ipv4.h, netfilter_ipv6/ip6_tables.h
MOST_FIRST_LINE = 16 * 1024
_FIRST_LINE = re.compile(rb"[!-~]{1,32} [^ ]+ HTTP/[0-9]\.[0-9]\r?")
_BEGINNING = re.compile(rb"[A-Za-z][!-~]{0,31}( .*)?")
BAD_BYTES = "what a client sends has one reading"


def original(socket: _socket.socket, *, redirected: bool) -> tuple[str, int]:
    """What a program connected to. Raises OSError where the kernel does not say."""
    if not redirected:
        name = socket.getsockname()
        return str(name[0]), int(name[1])
    if socket.family == _socket.AF_INET6:
        raw = socket.getsockopt(SOL_IPV6, SO_ORIGINAL_DST, 28)
        return _socket.inet_ntop(_socket.AF_INET6, raw[8:24]), struct.unpack_from("!H", raw, 2)[0]
    raw = socket.getsockopt(SOL_IP, SO_ORIGINAL_DST, 16)
    return _socket.inet_ntop(_socket.AF_INET, raw[4:8]), struct.unpack_from("!H", raw, 2)[0]


def meant(box: Box, address: str) -> Name | Address | None:
    """The host behind an address that was connected to; None for one of the box itself, which no rule is about."""
    if ":" not in address and box.names.holds(address):
        return box.names.name_of(address)
    return None if address.startswith("127.") or address == "::1" else Address(address)


async def serve(client: Client, host: Name | Address, port: int) -> None:
    """One connection, from its acceptance to its end."""
    asked = Asked(host, port, likely_scheme(port), "transparent")
    client.be_patient()
    verdict = client.box.at_once(asked)
    if verdict is not None:
        await _let_out(client, replace(asked, scheme="tcp"), verdict)
        return
    verdict = await client.box.before_bytes(client.task, asked)
    if not verdict.allowed:
        client.record(asked, verdict)
        reset(client.socket)
        return
    client.be_patient()
    await by_first_bytes(client, asked, None)


async def by_first_bytes(client: Client, asked: Asked, server: _socket.socket | None) -> None:
    """Decide by what the client sends. server: where it was dialled already, as a proxy has to before it answers."""
    scheme = "tcp"
    try:
        first = await client.first_byte()
        if first < 0:
            return  # it has said all that it had to say
        scheme = "tls" if is_tls(first) else "http" if await _is_http(client) else "tcp"
    except TimedOutError:
        pass  # it may be one that listens first
    if scheme == "tls":
        await _tls(client, asked, server)
    elif scheme == "http":
        from ringfence.egress import exchange  # once, when the first request comes

        await exchange.serve_tunnel(client, asked, server)
    else:
        asked = replace(asked, scheme="tcp")
        await _let_out(client, asked, await client.box.decided(client.task, asked), server)


async def _is_http(client: Client) -> bool:
    """Whether the first line that the client sends is that of a request; what was read is held."""
    held = b""
    try:
        while True:
            data = await client.receive()
            held += data
            line, ended, _ = held.partition(b"\n")
            if ended:
                return _FIRST_LINE.fullmatch(line) is not None
            if not data or not _BEGINNING.fullmatch(line):
                return False
            if len(line) > MOST_FIRST_LINE:
                return True  # which is refused as one that does not end
    finally:
        client.received = held


async def _tls(client: Client, asked: Asked, server: _socket.socket | None) -> None:
    try:
        asked, verdict = await client.hello(asked)
    except BadBytesError as error:
        client.record(replace(asked, scheme="tls"), Verdict(False, BAD_BYTES, error.why))
        await client.farewell(error.answer)
        return
    except TimedOutError:
        client.record(replace(asked, scheme="tls"), Verdict(False, BAD_BYTES, f"no whole TLS hello within {client.patience:g} s"))
        reset(client.socket)
        return
    if not verdict.allowed:
        client.record(asked, verdict)
        await client.refuse_tls(verdict)
        return
    if server is None:
        try:
            server = await client.dialled(asked, verdict)
        except RefusedError as error:
            await client.refuse_tls(error.verdict)
            return
        except UnreachableError:
            await client.fail_tls()
            return
    await client.pass_on(server)


async def _let_out(client: Client, asked: Asked, verdict: Verdict, server: _socket.socket | None = None) -> None:
    """Whatever it carries."""
    if not verdict.allowed:
        client.record(asked, verdict)
        reset(client.socket)
        return
    if server is None:
        try:
            server = await client.dialled(asked, verdict)
        except (RefusedError, UnreachableError):
            reset(client.socket)
            return
    await client.pass_on(server)
