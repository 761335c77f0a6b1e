"""Trees of files from one box into another: read as hostile, held in a file without a name, and made by the other box's guest.

The two are boxes of one caller over one workspace. What is no file, folder or link, and what cannot be read, is left out and named.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO

from ringfence import errors
from ringfence.process.run import Run
from ringfence.process.wait import Interrupted, Waits
from ringfence.values import frozen
from ringfence.world.files import MAX_ENTRY, FileWork
from ringfence.world.trees.receive import Parser, Parts

MAX_BYTES = 256 << 20
MAX_ENTRIES = 20_000
"""Of one folder: more than a private home holds that a few commands filled, less than anybody waits for."""
MAX_REMOVED = 100
CARRY_SECONDS = 60.0
_DIGITS = 20
_CHUNK = 1 << 16

Names = Mapping[Parts, tuple[int, int, int]]
"""What a tree holds: the kind of each entry, its size and when it was changed."""


@frozen
class Held:
    """A tree that was taken out of a box. refused: what was left out of it, with the reason."""

    spool: IO[bytes]
    names: Names
    refused: tuple[tuple[str, str], ...]


class _Stream:
    """The sink of a parser: writes the tree as the stream that a guest unpacks, with nothing in it that it does not unpack."""

    def __init__(self, spool: IO[bytes]) -> None:
        self.spool = spool
        self.names: dict[Parts, tuple[int, int, int]] = {}
        self._size = 0
        self._open: tuple[Parts, int, int, int] = ((), 0, 0, 0)

    def folder(self, parts: Parts, mode: int) -> None:
        self._record(stat.S_IFDIR | mode, 0, 0, parts)
        self.names[parts] = (stat.S_IFDIR, 0, 0)

    def file(self, parts: Parts, mode: int, modified: int) -> None:
        self._open, self._size = (parts, mode, modified, self.spool.tell()), 0
        self._record(stat.S_IFREG | mode, 0, modified, parts)

    def content(self, data: bytes) -> None:
        self._size += len(data)
        self.spool.write(data)

    def end_of_file(self) -> None:
        parts, mode, modified, at = self._open
        end = self.spool.tell()
        self.spool.seek(at)
        self._record(stat.S_IFREG | mode, self._size, modified, parts)
        self.spool.seek(end)
        self.names[parts] = (stat.S_IFREG, self._size, modified)

    def link(self, parts: Parts, target: bytes) -> str | None:
        self._record(stat.S_IFLNK | 0o777, len(target), 0, parts)
        self.spool.write(target)
        self.names[parts] = (stat.S_IFLNK, hash(target), 0)
        return None

    def _record(self, mode: int, size: int, modified: int, parts: Parts) -> None:
        """One record. The size of a file is known after its content, and then written again, so it always takes as many bytes."""
        name = b"/".join(os.fsencode(part) for part in parts)
        self.spool.write(b"%o %0*d %d %b\0" % (mode, _DIGITS, size, modified, name))


def take(work: FileWork, folder: str) -> Waits[Held]:
    """A folder of a box with all below it, but for what is mounted there.

    Raises PathError past the bounds, ProtocolError, SandboxLostError, HostError.
    """
    spool: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # it is the result, and closed with it
    try:
        stream = _Stream(spool)
        parser = Parser(stream, MAX_BYTES, MAX_ENTRIES)
        run = work.begin(MAX_ENTRY, CARRY_SECONDS)
        run.on_chunk = (parser.feed, None)
        request = {"op": "files", "do": "pack", "path": folder, "roots": [folder], "here": 1}
        yield from _driven(work, run, {**request, "most_bytes": MAX_BYTES, "most_entries": MAX_ENTRIES}, None, folder)
        parser.end()
        spool.write(b"end\0")
    except errors.ProtocolError:
        spool.close()
        work.world.box.kill()
        raise
    except BaseException:
        spool.close()
        raise
    return Held(spool, stream.names, tuple(parser.refused))


def put(work: FileWork, held: Held, folder: str) -> Waits[None]:
    """Make a tree in a folder of a box, over what is there. Raises PathError, SandboxLostError."""
    held.spool.seek(0)
    pieces: Iterator[bytes] = iter(lambda: held.spool.read(_CHUNK), b"")
    run = work.begin(MAX_ENTRY, CARRY_SECONDS)
    run.more = lambda: next(pieces, b"")
    request = {"op": "files", "do": "unpack", "path": folder, "roots": [folder], "overwrite": 1}
    yield from _driven(work, run, request, b"", folder)


def remove(work: FileWork, folder: str, gone: list[Parts]) -> Waits[None]:
    """Remove entries of a folder of a box. Raises PathError where there are too many, or where one cannot be removed."""
    if len(gone) > MAX_REMOVED:
        raise errors.FileTooLargeError(f"{len(gone)} entries of {folder!r} were removed; so many are not carried over.")
    for parts in gone:
        request = {
            "op": "files",
            "do": "remove",
            "path": os.path.join(folder, *parts),
            "roots": [folder],
            "entry": 1,
            "recursive": 1,
        }
        yield from _driven(work, work.begin(MAX_ENTRY), request, None, folder)


def gone(before: Names, after: Names) -> list[Parts]:
    """What is there no more, without what was in a folder that is gone too."""
    missing = {parts for parts in before if parts and parts not in after}
    return sorted(parts for parts in missing if parts[:-1] not in missing)


def _driven(work: FileWork, run: Run, request: dict[str, object], data: bytes | None, path: str) -> Waits[None]:
    """The run to its end; what raised on this side ends it."""
    try:
        run.start(request, data)
        yield from run.finish()
        work.answer(run, path)
    except (errors.PathError, Interrupted, OSError, errors.ProtocolError):
        yield from run.abort()
        raise
    finally:
        run.release()
