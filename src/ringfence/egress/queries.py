"""The question that the server asks a resolver of the host, and what it reads in the answer, sans-io (RFC 1035).

Only addresses are looked for: those of the name itself, and of the names that it is another name of, within the one answer.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from ringfence.values import frozen

A, AAAA = 1, 28
_CNAME, _IN = 5, 1
NOERROR, NXDOMAIN = 0, 3
_RESPONSE, _TRUNCATED, _RECURSE = 0x8000, 0x0200, 0x0100
_UDP_SIZE = 1232  # of our EDNS option: what is never split on its way, flagday 2020
MOST_RECORDS = 256
MOST_ADDRESSES = 16
MOST_LINKS = 16
"""Names that lead from the one that was asked for to the one that has addresses."""


class BadAnswerError(ValueError):
    """It is no answer to this question."""


@frozen
class Found:
    """addresses in the order of the answer. truncated: it has to be asked again over TCP. code: RFC 1035, 4.1.1."""

    addresses: tuple[str, ...]
    code: int
    truncated: bool


def query(name: str, kind: int, ident: int) -> bytes:
    """A question for one kind of record, with EDNS. name: ASCII labels, as a normalised host name is."""
    head = struct.pack(">6H", ident, _RECURSE, 1, 0, 0, 1)
    option = struct.pack(">BHHIH", 0, 41, _UDP_SIZE, 0, 0)
    return head + _wire(name) + struct.pack(">HH", kind, _IN) + option


def read(response: bytes, name: str, kind: int, ident: int) -> Found:
    """What an answer says. Raises BadAnswerError for one to another question, or that is malformed."""
    try:
        return _read(response, name, kind, ident)
    except (struct.error, IndexError):
        raise BadAnswerError("it ends too early") from None


def _read(response: bytes, name: str, kind: int, ident: int) -> Found:
    given, flags, questions, answers, _, _ = struct.unpack_from(">6H", response)
    if given != ident or not flags & _RESPONSE or questions != 1:
        raise BadAnswerError("it answers another question")
    asked, at = _name(response, 12)
    if asked != name or struct.unpack_from(">HH", response, at) != (kind, _IN):
        raise BadAnswerError("it answers another question")
    if flags & _TRUNCATED:
        return Found((), flags & 15, True)
    at += 4
    links: dict[str, str] = {}
    records: list[tuple[str, str]] = []
    for _ in range(min(answers, MOST_RECORDS)):
        owner, at = _name(response, at)
        found, class_, _, size = struct.unpack_from(">HHIH", response, at)
        at += 10
        data = response[at : at + size]
        if len(data) != size:
            raise BadAnswerError("it ends too early")
        if class_ == _IN and found == _CNAME:
            links[owner] = _name(response, at)[0]
        elif class_ == _IN and found == kind and size == (4 if kind == A else 16):
            records.append((owner, str(IPv4Address(data) if kind == A else IPv6Address(data))))
        at += size
    for _ in range(MOST_LINKS):
        if name not in links:
            break
        name = links.pop(name)
    return Found(tuple(address for owner, address in records if owner == name)[:MOST_ADDRESSES], flags & 15, False)


def _wire(name: str) -> bytes:
    labels = name.encode("ascii").split(b".")
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A name in lower case and where it ends. A pointer leads back only, so that following them ends."""
    labels: list[str] = []
    end = 0
    limit = at
    size = 0
    while True:
        length = message[at]
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | message[at + 1]
            end = end or at + 2
            if target >= limit:
                raise BadAnswerError("a pointer that does not lead back")
            limit = at = target
        elif length > 63:
            raise BadAnswerError("a label of a kind that there is not")
        elif length == 0:
            return ".".join(labels), end or at + 1
        else:
            size += length + 1
            label = message[at + 1 : at + 1 + length]
            if size > 254 or len(label) != length:
                raise BadAnswerError("a name that is too long")
            labels.append(label.decode("latin-1").lower())
            at += 1 + length
