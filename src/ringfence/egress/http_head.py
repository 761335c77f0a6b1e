"""The head of an HTTP/1 message, read strictly: lines that end in CRLF, a name and a colon, no folding, within bounds.

Where RFC 9112 lets a recipient be lenient (2.2 bare LF, 5.2 obsolete folding, 3 any whitespace) this is not: each leniency is a
second reading that the far side may have. What is read is written anew, so nothing goes on that was not understood here.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ringfence.egress.refusals import MARK

Fields: TypeAlias = "list[tuple[bytes, bytes]]"
"""Names as they were written, values without the blanks around them, in order."""

MAX_HEAD = 64 * 1024  # bytes, with the line ends
MAX_FIELDS = 100
MAX_TRAILERS = 8 * 1024, 32  # bytes, fields

_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_BAD = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")

FRAMING = frozenset((b"content-length", b"transfer-encoding", b"host"))
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade", b"http2-settings")
)  # RFC 9110, 7.6.1, and what only goes with an Upgrade that is not passed on
_NO_TRAILER = FRAMING | frozenset(
    (b"authorization", b"cookie", b"set-cookie", b"content-encoding", b"content-type", b"content-range", b"trailer", b"expect")
)  # RFC 9110, 6.5.1


class MalformedError(Exception):
    """The message has no single reading. status: what a client is told where it is the client's."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.why, self.status = why, status


class Stream:
    """Bytes that arrived and were not taken yet. Work is by the byte, whatever the pieces."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._at = 0  # what is before it was taken

    def __len__(self) -> int:
        return len(self._held) - self._at

    def feed(self, data: bytes) -> None:
        if self._at == len(self._held):
            self._held.clear()
            self._at = 0
        elif self._at > 1 << 16:  # rarely enough to be linear: each byte is moved once for 64 KiB that were taken
            del self._held[: self._at]
            self._at = 0
        self._held += data

    def first(self) -> int:
        return self._held[self._at]

    def find(self, what: bytes, start: int) -> int:
        """Where it is, from what was not taken yet; -1 where it is not."""
        found = self._held.find(what, self._at + start)
        return found if found < 0 else found - self._at

    def take(self, most: int) -> bytes:
        end = min(self._at + most, len(self._held))
        taken = bytes(memoryview(self._held)[self._at : end])
        self._at = end
        return taken


class Lines:
    """Lines out of a stream until the empty one, of at most so many bytes and so many lines."""

    def __init__(self, most_bytes: int = MAX_HEAD, most_fields: int = MAX_FIELDS, *, first: bool = True) -> None:
        self._most_bytes, self._most_lines = most_bytes, most_fields + first
        self._seen = self._bytes = 0
        self._lines: list[bytes] = []

    @property
    def begun(self) -> bool:
        """Whether a line was taken already."""
        return self._bytes > 0

    def take(self, stream: Stream) -> list[bytes] | None:
        """The lines before the empty one, once that is there. Raises MalformedError, at the first byte out of place."""
        while (end := stream.find(b"\n", self._seen)) >= 0:
            self._seen = 0
            self._bytes += end + 1
            line = stream.take(end + 1)
            if self._bytes > self._most_bytes:
                break
            if line[-2:] != b"\r\n":
                raise MalformedError("a line that ends in LF without CR")
            if line == b"\r\n":
                return self._lines
            if _BAD.search(line, 0, len(line) - 2):
                raise MalformedError("a control character in a head")
            if len(self._lines) == self._most_lines:
                raise MalformedError(f"a head of more than {self._most_lines} lines", 431)
            self._lines.append(line[:-2])
        self._seen = len(stream)
        if self._bytes + self._seen > self._most_bytes:
            raise MalformedError(f"a head that does not end within {self._most_bytes} bytes", 431)
        return None


def fields_of(lines: list[bytes]) -> Fields:
    """The fields of a head without its first line. Raises MalformedError for folding, blanks around a name, no colon."""
    found = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            folded = line[:1] in b" \t"
            raise MalformedError("a header that is folded over lines" if folded else "a header without a proper name and colon")
        name, value = field.groups()
        if b"_" in name and name.lower().replace(b"_", b"-") in FRAMING:
            raise MalformedError("a header that some readers take for one that frames the message")
        found.append((name, value.rstrip(b" \t")))
    return found


def values(fields: Fields, name: bytes) -> list[bytes]:
    """All values of one field; name is in lower case."""
    return [value for each, value in fields if each.lower() == name]


def tokens(fields: Fields, name: bytes) -> list[bytes]:
    """The parts of a list field such as Connection, in lower case (RFC 9110, 5.6.1)."""
    return [part for value in values(fields, name) for each in value.split(b",") if (part := each.strip(b" \t").lower())]


def end_to_end(fields: Fields, also: frozenset[bytes] = frozenset()) -> Fields:
    """The fields that are for the other end: without those of this connection, those that Connection names, and `also`.

    Every Proxy- field goes: credentials for a proxy are for us, and a far side asks nobody for any.
    """
    gone = _HOP_BY_HOP | also | set(tokens(fields, b"connection"))
    return [(name, value) for name, value in fields if (low := name.lower()) not in gone and not low.startswith(b"proxy-")]


def trailers_of(lines: list[bytes]) -> Fields:
    """The trailers that may go on: none that would change what the head said, nor one of our marks."""
    return unmarked(end_to_end(fields_of(lines), _NO_TRAILER))


def unmarked(fields: Fields) -> Fields:
    """Fields without any that only an answer of ours has."""
    return [(name, value) for name, value in fields if not name.lower().startswith(MARK)]


def written(fields: Fields) -> bytes:
    return b"".join(b"%b: %b\r\n" % field for field in fields)
