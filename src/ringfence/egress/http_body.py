"""How long a body is, and its bytes as they go on. A chunked one is written anew, chunk by chunk: sizes in our spelling, no
extensions, trailers that were read. Sources: RFC 9112, 6 and 7.

All have one shape: `take` gives bytes to send on, b"" when more has to arrive; `done`; `end` says that no more will. `plain` is
how many bytes may be moved without being looked at (by splice), `moved` says how many were; None is all until the end.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ringfence.egress.http_head import MAX_TRAILERS, Lines, MalformedError, Stream, trailers_of, written

MOST_AT_ONCE = 256 * 1024  # bytes of one take
MAX_CHUNK_LINE = 256
MAX_EXTENSIONS = 16 * 1024  # bytes of chunk extensions in one body: nobody uses them for anything
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})((?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?)\r\n")


class Sized:
    """A body of a length that the head says."""

    def __init__(self, size: int) -> None:
        self._left = size

    @property
    def done(self) -> bool:
        return self._left == 0

    @property
    def plain(self) -> int:
        return self._left

    def moved(self, count: int) -> None:
        if not 0 <= count <= self._left:
            raise ValueError(f"{count} bytes were moved, of a body with {self._left} left")
        self._left -= count

    def take(self, stream: Stream) -> bytes:
        taken = stream.take(min(self._left, MOST_AT_ONCE))
        self._left -= len(taken)
        return taken

    def end(self) -> None:
        if self._left:
            raise MalformedError("the connection ended inside a message")


class UntilClose:
    """A body that ends with the connection, which only a response has."""

    plain = None

    def __init__(self) -> None:
        self._ended = self.done = False

    def moved(self, count: int) -> None:
        pass

    def take(self, stream: Stream) -> bytes:
        taken = stream.take(MOST_AT_ONCE)
        self.done = self._ended and not len(stream)
        return taken

    def end(self) -> None:
        self._ended = True


class Chunked:
    """A chunked body. bare: only its bytes go on, for a client that knows no chunks."""

    def __init__(self, bare: bool = False) -> None:
        self.done = False
        self._bare = bare
        self._left = 0  # of this chunk, without the line end behind it
        self._inside = False
        self._extensions = self._seen = 0
        self._trailers: Lines | None = None
        self._fault: MalformedError | None = None

    @property
    def plain(self) -> int:
        return self._left

    def moved(self, count: int) -> None:
        if not 0 <= count <= self._left:
            raise ValueError(f"{count} bytes were moved, of a chunk with {self._left} left")
        self._left -= count

    def take(self, stream: Stream) -> bytes:
        """As of all bodies. What was right before a fault is given first, however the bytes arrived."""
        out: list[bytes] = []
        room = MOST_AT_ONCE
        try:
            while room > 0 and not self.done and self._fault is None:
                more, data = self._step(stream, room)
                out.append(data)
                room -= len(data) + 1
                if not more:
                    break
        except MalformedError as error:
            self._fault = error
        data = b"".join(out)
        if self._fault is not None and not data:
            raise self._fault
        return data

    def _step(self, stream: Stream, room: int) -> tuple[bool, bytes]:
        """What comes next, and whether something may follow it already."""
        if self._left:
            data = stream.take(min(self._left, room))
            self._left -= len(data)
            return bool(data), data
        if self._inside:
            return self._close(stream)
        if self._trailers is None:
            return self._open(stream)
        return self._finish(stream, self._trailers)

    def end(self) -> None:
        if not self.done:
            raise MalformedError("the connection ended inside a message")

    def _open(self, stream: Stream) -> tuple[bool, bytes]:
        end = stream.find(b"\n", self._seen)
        if end >= MAX_CHUNK_LINE or (end < 0 and len(stream) >= MAX_CHUNK_LINE):
            raise MalformedError(f"a chunk whose first line has more than {MAX_CHUNK_LINE} bytes")
        if end < 0:
            self._seen = len(stream)
            return False, b""
        self._seen = 0
        line = _CHUNK.fullmatch(stream.take(end + 1))
        if line is None:
            raise MalformedError("a chunk whose size has no single reading")
        self._extensions += len(line[2])
        if self._extensions > MAX_EXTENSIONS:
            raise MalformedError(f"chunk extensions of more than {MAX_EXTENSIONS} bytes")
        self._left = int(line[1], 16)
        if self._left == 0:
            self._trailers = Lines(*MAX_TRAILERS, first=False)
            return True, b""
        self._inside = True
        return True, b"" if self._bare else b"%x\r\n" % self._left

    def _close(self, stream: Stream) -> tuple[bool, bytes]:
        if len(stream) and stream.first() != 13:
            raise MalformedError("a chunk that is longer than it says")
        if len(stream) < 2:
            return False, b""
        if stream.take(2) != b"\r\n":
            raise MalformedError("a chunk that is longer than it says")
        self._inside = False
        return True, b"" if self._bare else b"\r\n"

    def _finish(self, stream: Stream, trailers: Lines) -> tuple[bool, bytes]:
        lines = trailers.take(stream)
        if lines is None:
            return False, b""
        self.done = True
        kept = written(trailers_of(lines))
        return True, b"" if self._bare else b"0\r\n%b\r\n" % kept


Framing: TypeAlias = "Sized | UntilClose | Chunked"
