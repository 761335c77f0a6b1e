"""The cleartext hello of a TLS client, sans-io: which server it names, reassembled over records and segments, within bounds.

Only the hello is read, nothing is decrypted, and the bytes go on as they came. The name in it is what the far side chooses a
site by, so it has to be the name that was decided on. Sources: RFC 8446 (4.1.2, 5.1, 6), 6066 (3), 7301, 9849.

Encrypted client hello (RFC 9849) cannot be told from its imitation: Chrome and Firefox send one made of random bytes in every
hello (GREASE, 6.2), with the same fields and lengths, so that nobody between can tell. `ech` is therefore true for both, and a
rule has to allow it. A far side that holds the key serves the inner name, which no one here sees: the very way round the list,
so it is not taken for harmless. OpenSSL (curl, Python, node), GnuTLS, Java and Go send none unless told to, and the resolver
gives no configuration for a real one. It cannot be cut out: the hello is part of what both sides sign. Measured: Chromium 156
and Firefox ESR 153 send it in every hello; the managed policy EncryptedClientHelloEnabled false ends that in Chromium (a box
with a way out has it; headless-shell reads no policies), security.tls.ech.grease_probability 0 in Firefox, where
network.dns.echconfig.enabled false does not.

Not promised: a second hello, sent after the far side asked for one (HelloRetryRequest), is not read.
"""

from __future__ import annotations

from ringfence.egress.refusals import BadBytesError
from ringfence.values import frozen

HANDSHAKE = 0x16
"""The first byte of every TLS connection, and of no HTTP request or SOCKS greeting (RFC 8446, 5.1)."""
MAX_HELLO = 64 * 1024
"""Bytes until the end of the hello, records included. Hellos with post-quantum key shares have under 2 KiB."""
MAX_EXTENSIONS = 128
MAX_PROTOCOLS = 32

UNEXPECTED_MESSAGE, RECORD_OVERFLOW, ILLEGAL_PARAMETER = 10, 22, 47
ACCESS_DENIED, DECODE_ERROR, PROTOCOL_VERSION, INTERNAL_ERROR, UNRECOGNIZED_NAME = 49, 50, 70, 80, 112
"""Alerts (RFC 8446, 6.2): ACCESS_DENIED for what the policy refuses, UNRECOGNIZED_NAME for a name that is not the connection's."""

_MAX_RECORD = 1 << 14
_SERVER_NAME, _ALPN = 0, 16
_ECH = frozenset((0xFE0D, 0xFFCE, 0xFE02, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C))  # RFC 9849; ESNI and the drafts before it
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@frozen
class Hello:
    """What a client says before anything is encrypted. server_name: as written, letters, digits, "-", "_" and "." only."""

    server_name: str | None
    ech: bool  # an encrypted client hello is inside, or bytes that imitate one
    alpn: tuple[bytes, ...] = ()


def alert(description: int) -> bytes:
    """A fatal alert in a record of its own, which a client shows by its name ("tlsv1 alert access denied")."""
    return bytes((21, 3, 3, 0, 2, 2, description))


class ClientHello:
    """Feed what the client sent until there is a Hello.

    received: all that was fed, to be sent on as it is when the connection is let out.
    """

    def __init__(self) -> None:
        self.received = bytearray()
        self._message = bytearray()
        self._at = 0  # where the next record starts
        self._hello: Hello | None = None

    def feed(self, data: bytes) -> Hello | None:
        """The hello once it is whole, None before. Raises BadBytesError, with an alert, for anything that is no such hello."""
        self.received += data
        while self._hello is None and self._record():
            self._hello = self._read()
        if self._hello is None and len(self.received) >= MAX_HELLO:
            raise _bad(f"a TLS hello that does not end within {MAX_HELLO} bytes", RECORD_OVERFLOW)
        return self._hello

    def _record(self) -> bool:
        """Move the next record into the message; whether it was whole."""
        held, at = self.received, self._at
        if len(held) > at and held[at] != HANDSHAKE:
            if at == 0 and held[0] & 0x80 and len(held) < 3:
                return False  # enough to tell an SSLv2 hello (RFC 5246, E.2)
            if at == 0 and held[0] & 0x80 and held[2] == 1:
                raise _bad("an SSLv2 hello, which names no server", PROTOCOL_VERSION)
            raise _bad("a TLS record that is no handshake, before the hello ended", UNEXPECTED_MESSAGE)
        if len(held) < at + 5:
            return False
        size = held[at + 3] << 8 | held[at + 4]
        if held[at + 1] != 3:
            raise _bad(f"a TLS record of version {held[at + 1]}.{held[at + 2]}", PROTOCOL_VERSION)
        if not 0 < size <= _MAX_RECORD:
            raise _bad(f"a TLS handshake record of {size} bytes", RECORD_OVERFLOW if size else UNEXPECTED_MESSAGE)
        if len(held) < at + 5 + size:
            return False
        self._at = at + 5 + size
        if self._at > MAX_HELLO:
            raise _bad(f"a TLS hello that does not end within {MAX_HELLO} bytes", RECORD_OVERFLOW)
        self._message += held[at + 5 : self._at]
        return True

    def _read(self) -> Hello | None:
        message = self._message
        if message[0] != 1:
            raise _bad(f"a TLS handshake that starts with a message of type {message[0]}", UNEXPECTED_MESSAGE)
        if len(message) < 4:
            return None
        size = int.from_bytes(message[1:4], "big")
        if size > MAX_HELLO:
            raise _bad(f"a TLS hello of {size} bytes, where {MAX_HELLO} are taken", RECORD_OVERFLOW)
        if len(message) < 4 + size:
            return None
        if len(message) > 4 + size:
            raise _bad("a TLS hello with more behind it in its last record", UNEXPECTED_MESSAGE)
        return _hello(bytes(message[4:]))


class _Bytes:
    """The fields of a message, each with its length in front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, size: int) -> bytes:
        if len(self.data) - self.at < size:
            raise _bad("a TLS hello whose lengths do not add up", DECODE_ERROR)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def sized(self, width: int) -> bytes:
        return self.take(self.number(width))


def _hello(body: bytes) -> Hello:
    fields = _Bytes(body)
    if fields.number(2) >> 8 != 3:
        raise _bad("a TLS hello of a version that is not 3.x", PROTOCOL_VERSION)
    fields.take(32)
    if len(fields.sized(1)) > 32:
        raise _bad("a TLS hello with a session id of more than 32 bytes", DECODE_ERROR)
    suites, methods = fields.sized(2), fields.sized(1)
    if not suites or len(suites) % 2 or not methods:
        raise _bad("a TLS hello without cipher suites or compression methods", DECODE_ERROR)
    found = _extensions(_Bytes(fields.sized(2))) if fields else {}
    if fields:
        raise _bad("a TLS hello with more behind its extensions", DECODE_ERROR)
    name = found.get(_SERVER_NAME)
    return Hello(None if name is None else _server_name(name), not _ECH.isdisjoint(found), _protocols(found.get(_ALPN)))


def _extensions(fields: _Bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while fields:
        kind = fields.number(2)
        if kind in found:
            raise _bad(f"a TLS hello with two extensions of type {kind}", ILLEGAL_PARAMETER)
        if len(found) == MAX_EXTENSIONS:
            raise _bad(f"a TLS hello with more than {MAX_EXTENSIONS} extensions", ILLEGAL_PARAMETER)
        found[kind] = fields.sized(2)
    return found


def _server_name(extension: bytes) -> str:
    """The one host name (RFC 6066, 3). Two names, another type or a byte that no host name has: nobody knows what is served."""
    outer = _Bytes(extension)
    names = _Bytes(outer.sized(2))
    if outer or not names:
        raise _bad("a TLS server name whose lengths do not add up", DECODE_ERROR)
    if names.number(1) != 0:
        raise _bad("a TLS server name that is no host name", ILLEGAL_PARAMETER)
    name = names.sized(2)
    if names:
        raise _bad("a TLS hello with several server names", ILLEGAL_PARAMETER)
    if not 0 < len(name) <= 255 or not _NAME_BYTES.issuperset(name):
        raise _bad("a TLS server name with bytes that no host name has", ILLEGAL_PARAMETER)
    return name.decode("ascii")


def _protocols(extension: bytes | None) -> tuple[bytes, ...]:
    if extension is None:
        return ()
    outer = _Bytes(extension)
    names, found = _Bytes(outer.sized(2)), []
    while names:
        found.append(names.sized(1))
        if not found[-1] or len(found) > MAX_PROTOCOLS:
            raise _bad("a TLS hello whose list of protocols is out of bounds", DECODE_ERROR)
    if outer or not found:
        raise _bad("a TLS list of protocols whose lengths do not add up", DECODE_ERROR)
    return tuple(found)


def _bad(why: str, description: int) -> BadBytesError:
    return BadBytesError(why, alert(description))
