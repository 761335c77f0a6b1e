"""The server's side of SOCKS5 without authentication, sans-io (RFC 1928). SOCKS4, BIND and UDP get the refusal that each has.

A host name with a NUL or a control character is refused as it is read: resolvers stop at a NUL, so that what was checked would
not be what is dialled.
"""

from __future__ import annotations

import errno
import socket

from ringfence.egress.refusals import BadBytesError
from ringfence.values import frozen

VERSION5, VERSION4 = 5, 4
"""The first byte of a greeting, which no HTTP request starts with."""

SUCCEEDED, FAILED, NOT_ALLOWED, NETWORK_UNREACHABLE, HOST_UNREACHABLE = 0, 1, 2, 3, 4
REFUSED, EXPIRED, NO_SUCH_COMMAND, NO_SUCH_ADDRESS = 5, 6, 7, 8
"""Replies (RFC 1928, 6)."""
_OF_ERRNO = {
    errno.ECONNREFUSED: REFUSED,
    errno.ETIMEDOUT: HOST_UNREACHABLE,
    errno.EHOSTUNREACH: HOST_UNREACHABLE,
    errno.ENETUNREACH: NETWORK_UNREACHABLE,
}

_CONNECT, _BIND, _ASSOCIATE = 1, 2, 3
_V4, _NAME, _V6 = 1, 3, 4


@frozen
class Connect:
    """Where a client wants to go. host: as it was sent, a name or an address; not checked, but for control characters."""

    host: str
    port: int


@frozen
class Reply:
    """Bytes for the client, to be sent now; the request once it is whole."""

    send: bytes = b""
    connect: Connect | None = None


def reply(code: int) -> bytes:
    """The answer to a request. The bound address is all zero: it would be the host's own, and no client needs it."""
    return bytes((VERSION5, code, 0, _V4, 0, 0, 0, 0, 0, 0))


def code_of(error: int) -> int:
    """The reply for the errno that a dial ended with."""
    return _OF_ERRNO.get(error, FAILED)


class Negotiation:
    """A client's greeting and request. After the request nothing more is fed.

    rest: what the client sent behind its request, for the far side.
    """

    def __init__(self) -> None:
        self.rest = b""
        self._held = bytearray()
        self._greeted = False
        self._done = False

    def feed(self, data: bytes) -> Reply:
        """Raises BadBytesError with the reply to send before closing. At most 518 bytes are held."""
        if self._done:
            raise ValueError("a request was read already: what follows is for the far side")
        self._held += data
        send = b""
        if not self._greeted:
            send = self._greeting()
        if not self._greeted:
            return Reply()
        try:
            connect = self._request()
        except BadBytesError as error:
            raise BadBytesError(error.why, send + error.answer) from None
        self._done = connect is not None
        return Reply(send, connect)

    def _greeting(self) -> bytes:
        held = self._held
        if held and held[0] == VERSION4:
            raise BadBytesError("SOCKS4, which is not served: use SOCKS5 (socks5h://)", bytes((0, 0x5B, 0, 0, 0, 0, 0, 0)))
        if held and held[0] != VERSION5:
            raise BadBytesError(f"a SOCKS greeting of version {held[0]}")
        if len(held) < 2 or len(held) < 2 + held[1]:
            return b""
        methods = bytes(held[2 : 2 + held[1]])
        if 0 not in methods:
            raise BadBytesError("a SOCKS5 client that offers no way without authentication", bytes((VERSION5, 0xFF)))
        del held[: 2 + len(methods)]
        self._greeted = True
        return bytes((VERSION5, 0))

    def _request(self) -> Connect | None:
        held = self._held
        if held and held[0] != VERSION5:
            raise _bad(f"a SOCKS request of version {held[0]}", FAILED)
        if len(held) < 5:
            return None
        command, reserved, kind, first = held[1:5]
        if command in (_BIND, _ASSOCIATE):
            raise _bad(f"SOCKS {'BIND' if command == _BIND else 'UDP ASSOCIATE'}, which is not served", NO_SUCH_COMMAND)
        if command != _CONNECT:
            raise _bad(f"a SOCKS command {command}, which there is not", NO_SUCH_COMMAND)
        if reserved:
            raise _bad("a SOCKS request whose reserved byte is not zero", FAILED)
        if kind not in (_V4, _NAME, _V6):
            raise _bad(f"a SOCKS address of type {kind}, which there is not", NO_SUCH_ADDRESS)
        start, size = (5, first) if kind == _NAME else (4, 4 if kind == _V4 else 16)
        end = start + size + 2
        if len(held) < end:
            return None
        host, port = _host(kind, bytes(held[start : end - 2])), held[end - 2] << 8 | held[end - 1]
        if port == 0:
            raise _bad("a SOCKS request for port 0", FAILED)
        self.rest = bytes(held[end:])
        held.clear()
        return Connect(host, port)


def _host(kind: int, sent: bytes) -> str:
    if kind == _V4:
        return socket.inet_ntop(socket.AF_INET, sent)
    if kind == _V6:
        return socket.inet_ntop(socket.AF_INET6, sent)
    try:
        host = sent.decode("utf-8")
    except UnicodeDecodeError:
        raise _bad("a SOCKS host name that is not UTF-8", FAILED) from None
    if not host or not host.isprintable() or " " in host:
        raise _bad("a SOCKS host name with a character that no name has", FAILED)
    return host


def _bad(why: str, code: int) -> BadBytesError:
    return BadBytesError(why, reply(code))
