"""The entrance that programs know of: an HTTP proxy and a SOCKS5 server on one listener, told apart by the first byte.

It is as strict as the transparent one: a tunnel is opened for what the policy may allow, and what then goes through it is decided
by its first bytes, before any of them reaches the far side.
"""

from __future__ import annotations

from ringfence.egress import refusals, socks
from ringfence.egress.client import FAREWELL_SECONDS, Client
from ringfence.egress.dial import RefusedError, UnreachableError
from ringfence.egress.exchange import BAD_BYTES, Exchange
from ringfence.egress.http_proxy import CONNECTED, Requests
from ringfence.egress.transparent import by_first_bytes
from ringfence.policy.hosts import Address, BadHostError, Name, normalise
from ringfence.policy.reach import Asked, Verdict, likely_scheme
from ringfence.values import replace

TOO_MANY = "this box has as many connections as it may have"


async def serve(client: Client) -> None:
    """One connection, from its acceptance to its end."""
    client.be_patient()
    first = await client.first_byte()
    if first < 0:
        return
    if first in (socks.VERSION5, socks.VERSION4):
        await _socks(client)
        return
    requests = Requests()
    request = await Exchange(client, requests, "http").serve()
    if request is not None:
        await _tunnel(client, request.host, request.port, _Http(requests))


async def refuse_full(client: Client) -> None:
    """Say that there are too many connections, in the protocol that the client speaks."""
    client.task.within(FAREWELL_SECONDS)
    first = await client.first_byte()
    if first == socks.VERSION5:
        client.received = b""
        await client.farewell(bytes((socks.VERSION5, 0)) + socks.reply(socks.FAILED))
    else:
        await client.farewell(refusals.failed(503, TOO_MANY))


class _Http:
    """How a CONNECT is answered."""

    via = "connect"
    ready = CONNECTED

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def rest(self) -> bytes:
        return self._requests.rest()

    def refused(self, asked: Asked, verdict: Verdict) -> bytes:
        return refusals.forbidden(str(asked.host), asked.port, verdict.rule, verdict.why, verdict.remedy)

    def unreachable(self, error: UnreachableError) -> bytes:
        return refusals.failed(504 if error.error == 110 else 502, error.why)


class _Socks:
    """How a SOCKS5 request is answered."""

    via = "socks"
    ready = socks.reply(socks.SUCCEEDED)

    def __init__(self, negotiation: socks.Negotiation) -> None:
        self._negotiation = negotiation

    def rest(self) -> bytes:
        return self._negotiation.rest

    def refused(self, asked: Asked, verdict: Verdict) -> bytes:
        return socks.reply(socks.NOT_ALLOWED)

    def unreachable(self, error: UnreachableError) -> bytes:
        return socks.reply(socks.code_of(error.error) if error.error else socks.HOST_UNREACHABLE)


async def _socks(client: Client) -> None:
    negotiation = socks.Negotiation()
    try:
        while True:
            data = await client.receive()
            if not data:
                return
            reply = negotiation.feed(data)
            if reply.send:
                await client.send(reply.send)
            if reply.connect is not None:
                break
        host = normalise(reply.connect.host)
    except refusals.BadBytesError as error:
        _record_bad(client, error.why)
        await client.farewell(error.answer)
        return
    except BadHostError as error:
        _record_bad(client, f"a SOCKS host that is none: {error}")
        await client.farewell(socks.reply(socks.FAILED))
        return
    await _tunnel(client, host, reply.connect.port, _Socks(negotiation))


async def _tunnel(client: Client, host: Name | Address, port: int, spoken: _Http | _Socks) -> None:
    """Decide, dial, answer, and pass on what then comes as the transparent entrance does."""
    asked = Asked(host, port, likely_scheme(port), spoken.via)
    verdict = client.box.at_once(asked)
    anything = verdict is not None
    if verdict is None:
        verdict = await client.box.before_bytes(client.task, asked)
    else:
        asked = replace(asked, scheme="tcp")
    if not verdict.allowed:
        client.record(asked, verdict)
        await client.farewell(spoken.refused(asked, verdict))
        return
    try:
        server = await client.dialled(asked, verdict)
    except RefusedError as error:
        await client.farewell(spoken.refused(asked, error.verdict))
        return
    except UnreachableError as error:
        await client.farewell(spoken.unreachable(error))
        return
    client.be_patient()
    await client.send(spoken.ready)
    client.received = spoken.rest()
    if anything:
        await client.pass_on(server)
    else:
        client.be_patient()
        await by_first_bytes(client, asked, server)


def _record_bad(client: Client, why: str) -> None:
    client.box.records.tell("", 0, "tcp", "socks", Verdict(False, BAD_BYTES, why), client.source_port)
