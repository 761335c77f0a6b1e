"""Upload and download: the routines, and what they tell."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ringfence import errors
from ringfence.process.command import checked_text, checked_timeout
from ringfence.process.run import Run
from ringfence.process.wait import Interrupted, Waits
from ringfence.values import frozen
from ringfence.world.files import MAX_ENTRY, FileWork
from ringfence.world.trees import places
from ringfence.world.trees.receive import Parser
from ringfence.world.trees.send import Sending
from ringfence.world.trees.write import Writer

MAX_BYTES = 1 << 30
MAX_FILES = 100_000
TRANSFER_SECONDS = 300.0


@frozen
class Transfer:
    """What was carried. path: where it is now. refused: what was left out, each with the reason, relative to the tree."""

    path: str
    files: int
    folders: int
    links: int
    bytes: int
    refused: tuple[tuple[str, str], ...]


@frozen
class Bounds:
    """What one transfer may come to."""

    overwrite: bool
    max_bytes: int
    max_files: int
    timeout: float

    @classmethod
    def checked(cls, overwrite: object, max_bytes: object, max_files: object, timeout: object) -> Bounds:
        for name, value in (("max_bytes", max_bytes), ("max_files", max_files)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 62:
                raise errors.ArgumentError(f"{name} must be a positive number, not {value!r}.")
        assert isinstance(max_bytes, int) and isinstance(max_files, int)
        return cls(bool(overwrite), max_bytes, max_files, checked_timeout(timeout) or TRANSFER_SECONDS)


def download(work: FileWork, remote: str | os.PathLike[str], local: str | os.PathLike[str], bounds: Bounds) -> Waits[Transfer]:
    target = work.world.resolve_path(remote)
    given = checked_text(os.fspath(local), "the local path")
    writer = Writer(places.find(given, work.shared, follow=False), given, overwrite=bounds.overwrite)
    parser = Parser(writer, bounds.max_bytes, bounds.max_files)
    run = work.begin(MAX_ENTRY, bounds.timeout)
    run.on_chunk = (parser.feed, None)
    more = {"most_bytes": bounds.max_bytes, "most_entries": bounds.max_files}
    try:
        yield from _driven(work, run, work.request("pack", target, more), None, target)
        parser.end()
        writer.make_links()
    except errors.ProtocolError:
        work.world.box.kill()
        raise
    except OSError as error:
        if isinstance(error, errors.RingfenceError):
            raise
        raise places.of_caller(error, given) from None
    finally:
        writer.close()
    return Transfer(os.path.abspath(given), writer.files, writer.folders, writer.links, parser.bytes, tuple(parser.refused))


def upload(work: FileWork, local: str | os.PathLike[str], remote: str | os.PathLike[str], bounds: Bounds) -> Waits[Transfer]:
    target = work.world.resolve_path(remote, write=True)
    given = checked_text(os.fspath(local), "the local path")
    place = places.find(given, work.shared, follow=True)
    sending = Sending(given, bounds.max_bytes, bounds.max_files)
    pieces: Iterator[bytes] = sending.pieces(place)
    run = work.begin(MAX_ENTRY, bounds.timeout)
    run.more = lambda: next(pieces, b"")
    more = {"overwrite": 1} if bounds.overwrite else {}
    try:
        yield from _driven(work, run, work.request("unpack", target, more, write=True), b"", target)
    except OSError as error:
        if isinstance(error, errors.RingfenceError):
            raise
        raise places.of_caller(error, given) from None
    finally:
        pieces.close()  # type: ignore[attr-defined]  # it is a generator
        place.close()
    return Transfer(target, sending.files, sending.folders, sending.links, sending.bytes, tuple(sending.refused))


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
