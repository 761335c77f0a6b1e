"""The resolver of a box, sans-io: one query in, one response out, from the rules alone. A query never leaves the host.

Names in it exist because a rule names them, and have one address of the box's range. Everything that is not A has an empty
answer, so that a client falls back to A (AAAA), or asks nothing more of the far side (HTTPS, SVCB: no encrypted client hello).
Sources: RFC 1035 (format), 6891 (EDNS), 7766 (TCP), 6761 (localhost), 8482 (no answer to ANY).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

from ringfence.egress.refusals import BadBytesError

Resolve: TypeAlias = Callable[[str], "bytes | None"]
"""Name -> the four bytes of its address, or None for a name that does not exist. It gets the text of `shown`."""
Reverse: TypeAlias = Callable[[bytes], "str | None"]
"""Four bytes of an address -> its name in ASCII, or None."""

MAX_QUERY = 4096  # bytes; a query with every option that clients send has under 600
TTL = 60  # seconds; an address is its name's for the life of the box
_UDP_SIZE = 1232  # what flagday 2020 settled on; no response of ours is half of it

_A, _PTR, _OPT, _IN = 1, 12, 41, 1
_NOERROR, _FORMERR, _NXDOMAIN, _NOTIMP, _REFUSED, _BADVERS = 0, 1, 3, 4, 5, 16
_QR, _OPCODE, _TC, _RD, _RA, _CD = 0x8000, 0x7800, 0x0200, 0x0100, 0x0080, 0x0010
_POINTER = b"\xc0\x0c"  # to the name of the question, which starts behind the header
_LITERAL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_NO_DOH = "use-application-dns.net"  # the name whose absence tells Firefox to use this resolver and not one over HTTPS


class _MalformedError(Exception):
    """The query has no single reading."""


def answer(query: bytes, resolve: Resolve, reverse: Reverse | None = None) -> bytes:
    """The response to one query, at most 600 bytes; b"" where none is due (less than a header, or itself a response).

    resolve is called at most once, and only for a question about a name in class IN that is no special one: the caller
    records what it refuses. Letters keep their case (0x20) and the question is repeated byte for byte.
    """
    if len(query) < 12:
        return b""
    ident, flags, questions, answers, authorities, additional = struct.unpack_from(">6H", query)
    if flags & _QR:
        return b""
    if flags & _OPCODE:
        return _response(ident, flags, _NOTIMP)
    if questions != 1 or answers or authorities or additional > 2 or flags & _TC or len(query) > MAX_QUERY:
        return _response(ident, flags, _FORMERR)
    try:
        labels, after = _name(query, 12)
        kind, class_, at = *_fields(">2H", query, after), after + 4
        version = _additional(query, at, additional)
    except _MalformedError:
        return _response(ident, flags, _FORMERR)
    question = query[12:at]
    edns = version is not None
    if version:  # RFC 6891, 6.1.3: answered in the highest version that is known
        return _response(ident, flags, _BADVERS, question, edns=edns)
    if class_ != _IN:
        return _response(ident, flags, _REFUSED, question, edns=edns)
    code, record = _found(labels, kind, resolve, reverse)
    return _response(ident, flags, code, question, record, edns)


def shown(labels: list[bytes]) -> str:
    """The text of a name: labels joined by dots, without one at the end; "." for the root.

    Every byte in a label that no host name has, a dot too, is a backslash and three digits (RFC 1035, 5.1): two names never
    have one text, and what is odd is refused as a host name.
    """
    return ".".join("".join(chr(byte) if byte in _LITERAL else f"\\{byte:03d}" for byte in label) for label in labels) or "."


class Framing:
    """Queries from a TCP stream (RFC 7766, 8): feed what arrived, take whole messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The queries that are whole now. Raises BadBytesError where one is larger than MAX_QUERY, or none can be."""
        self._held += data
        at = 0
        try:
            while len(self._held) >= at + 2:
                size = int.from_bytes(self._held[at : at + 2], "big")
                if not 12 <= size <= MAX_QUERY:
                    raise BadBytesError(f"a DNS message over TCP of {size} bytes, where 12 to {MAX_QUERY} are taken")
                if len(self._held) < at + 2 + size:
                    return
                at += 2 + size
                yield bytes(self._held[at - size : at])
        finally:
            del self._held[:at]


def framed(response: bytes) -> bytes:
    """A response as TCP carries it; nothing for nothing."""
    return len(response).to_bytes(2, "big") + response if response else b""


def _found(labels: list[bytes], kind: int, resolve: Resolve, reverse: Reverse | None) -> tuple[int, bytes]:
    """The response code and the one record, b"" for none."""
    name = shown(labels)
    lower = [label.lower() for label in labels]
    if not labels:
        return _NOERROR, b""  # the root exists and has nothing that we give
    if lower[-1] == b"localhost":  # RFC 6761, 6.3: of the machine that asks
        return _NOERROR, _record(_A, b"\x7f\0\0\1") if kind == _A else b""
    if lower[-1] == b"arpa":  # the tree of addresses and services is never looked up outside, and carries no rule
        known = reverse(address) if reverse and kind == _PTR and (address := _reversed(lower)) else None
        return (_NOERROR, _record(_PTR, _wire(known))) if known else (_NXDOMAIN, b"")
    if name.lower() == _NO_DOH:
        return _NXDOMAIN, b""
    address = resolve(name)
    if address is None:
        return _NXDOMAIN, b""
    if len(address) != 4:
        raise ValueError(f"an address of {len(address)} bytes for {name}")
    return _NOERROR, _record(_A, address) if kind == _A else b""


def _name(query: bytes, at: int) -> tuple[list[bytes], int]:
    """The labels of a name and where it ends. A query has no reason for a pointer, and gets none followed."""
    labels: list[bytes] = []
    start = at
    while True:
        if at >= len(query):
            raise _MalformedError
        size = query[at]
        if size == 0:
            return labels, at + 1
        at += 1 + size
        if size > 63 or at - start > 254 or at > len(query):  # 255 with the closing zero
            raise _MalformedError
        labels.append(query[at - size : at])


def _additional(query: bytes, at: int, count: int) -> int | None:
    """The version of EDNS, None without it. Nothing may follow."""
    version = None
    for _ in range(count):
        labels, at = _name(query, at)
        kind, _class, ttl, size = _fields(">HHIH", query, at)
        at += 10 + size
        if at > len(query):
            raise _MalformedError
        if kind == _OPT:
            if labels or version is not None:
                raise _MalformedError
            version = ttl >> 16 & 0xFF
    if at != len(query):
        raise _MalformedError
    return version


def _fields(form: str, query: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, query, at)
    except struct.error:
        raise _MalformedError from None


def _response(ident: int, flags: int, code: int, question: bytes = b"", record: bytes = b"", edns: bool = False) -> bytes:
    """RA is set and AA is not: Go takes an empty answer that has neither for a lame server and asks the next one."""
    head = _QR | _RA | flags & (_OPCODE | _RD | _CD) | code & 15
    packed = struct.pack(">6H", ident, head, bool(question), bool(record), 0, edns)
    option = struct.pack(">BHHBBHH", 0, _OPT, _UDP_SIZE, code >> 4, 0, 0, 0) if edns else b""
    return packed + question + record + option


def _record(kind: int, data: bytes) -> bytes:
    return _POINTER + struct.pack(">HHIH", kind, _IN, TTL, len(data)) + data


def _reversed(lower: list[bytes]) -> bytes | None:
    """The address that a name below in-addr.arpa means (RFC 1035, 3.5)."""
    if len(lower) != 6 or lower[4] != b"in-addr":
        return None
    numbers = [int(each) if each.isdigit() and len(each) <= 3 else 256 for each in reversed(lower[:4])]
    return bytes(numbers) if max(numbers) < 256 else None


def _wire(name: str) -> bytes:
    labels = name.encode("ascii").split(b".")
    if not all(0 < len(each) < 64 for each in labels) or len(name) > 253:
        raise ValueError(f"{name} is no host name")
    return b"".join(bytes([len(each)]) + each for each in labels) + b"\0"
