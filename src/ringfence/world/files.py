"""Work on the files of a box, from outside: requests to a fork of its guest, and what comes back, believed in nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import Literal, Protocol

from ringfence import errors
from ringfence.guest import wire
from ringfence.outcome import CapHit, Exited, Outcome
from ringfence.policy import patterns
from ringfence.policy.resolve import ResolvedPolicy
from ringfence.process import box as boxes
from ringfence.process.command import checked_text
from ringfence.process.run import Run
from ringfence.process.wait import Interrupted, Waits
from ringfence.values import frozen

MAX_READ = 32 << 20
"""Bytes that one read returns at most."""
MAX_LISTING = 64 << 20
MAX_ENTRY = 4096 + 256
FILE_SECONDS = 30.0
"""How long one file operation may take: a network file system can hang."""
REFUSED = 3  # guest/files.py: the exit status of an operation that was refused
MAX_NUMBER = 1 << 63  # no size and no time of a file is larger (off_t, time64_t in nanoseconds)

Kind = Literal["file", "dir", "link", "other"]
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


@frozen
class FileInfo:
    """What is at a path of the box. kind 'other' is a device, a FIFO or a socket; a link is described itself, not its target.

    path: absolute for stat, the name alone for list. size: bytes. mode: permission bits. modified: nanoseconds since the epoch.
    """

    path: str
    kind: Kind
    size: int
    mode: int
    modified: int

    @property
    def executable(self) -> bool:
        """Whether it is a regular file with an execute bit for anybody."""
        return self.kind == "file" and bool(self.mode & 0o111)


class Reached(Protocol):
    """The box whose files these are."""

    policy: ResolvedPolicy
    box: boxes.Box

    @property
    def workdir(self) -> str: ...

    def must_be_open(self) -> None: ...

    def before_run(self) -> int: ...

    def resolve_path(self, path: str | os.PathLike[str], *, write: bool = False, entry: bool = False) -> str: ...

    def reach(self, plain: str) -> Mapping[str, bool]: ...


class FileWork:
    """Every operation is a Waits routine. Paths are the caller's: absolute, or relative to the workspace."""

    def __init__(self, world: Reached) -> None:
        self.world = world

    def read(self, path: str | os.PathLike[str], most: int = MAX_READ) -> Waits[bytes]:
        target = self.world.resolve_path(path)
        content = yield from self.ask("read", target, {"most": most}, keep=most + 1)
        if len(content) > most:
            raise errors.FileTooLargeError(f"{target!r} grew past {most} bytes while it was read.")
        return content

    def write(self, path: str | os.PathLike[str], content: bytes) -> Waits[str]:
        target = self.world.resolve_path(path, write=True)
        yield from self.ask("write", target, {}, data=content, write=True)
        return target

    def stat(self, path: str | os.PathLike[str]) -> Waits[FileInfo]:
        target = self.world.resolve_path(path, entry=True)
        return _info((yield from self.ask("stat", target, {"entry": 1})), target)

    def exists(self, path: str | os.PathLike[str]) -> Waits[bool]:
        target = self.world.resolve_path(path)
        try:
            yield from self.ask("stat", target, {})
        except errors.PathNotFoundError:
            return False
        return True

    def folder(self, path: str | os.PathLike[str]) -> Waits[list[FileInfo]]:
        target = self.world.resolve_path(path)
        listing = yield from self.ask("list", target, {}, keep=MAX_LISTING)
        return sorted((parse_entry(record) for record in _records(listing)), key=lambda info: info.path)

    def walk(self) -> Waits[list[str]]:
        listing = yield from self.ask("walk", self.world.workdir, {}, keep=MAX_LISTING)
        return sorted(os.fsdecode(name) for name in _records(listing))

    def glob(self, pattern: str) -> Waits[list[str]]:
        whole = self._whole(pattern)
        base = "/" if pattern.startswith("/") else self.world.workdir
        if not patterns.is_glob(whole):
            path = patterns.literal(whole)
            try:
                yield from self.stat(path)
            except errors.PathNotFoundError:
                return []
            return [path if base == "/" else os.path.relpath(path, base)]
        glob = patterns.compiled(whole)
        names = whole.strip("/").split("/")[glob.depth :]
        more: dict[str, object] = {"folders": 1} if patterns.ANY_FOLDERS in names else {"folders": 1, "depth": len(names)}
        try:
            listing = yield from self.ask("walk", self.world.resolve_path(glob.prefix), more, keep=MAX_LISTING)
        except errors.PathNotFoundError:
            return []
        found = (os.path.join(glob.prefix, os.fsdecode(name.rstrip(b"/"))) for name in _records(listing))
        start = 0 if base == "/" else len(base.rstrip("/")) + 1
        return sorted(path[start:] for path in found if glob.matches(path))

    def _whole(self, pattern: str) -> str:
        """The pattern as policies have it, absolute. Raises ArgumentError for what is none."""
        names = [name for name in checked_text(pattern, "the pattern").split("/") if name not in ("", ".")]
        try:
            patterns.check("/".join(names))
        except errors.ConfigError as error:
            raise errors.ArgumentError(error.message) from None
        if not names or ".." in names:
            raise errors.ArgumentError(f"{pattern!r} is no pattern of names below a folder.", hint="Give one such as '**/*.py'.")
        return "/".join(("" if pattern.startswith("/") else patterns.escaped(self.world.workdir), *names))

    def mkdir(self, path: str | os.PathLike[str], parents: bool) -> Waits[str]:
        target = self.world.resolve_path(path, write=True)
        yield from self.ask("mkdir", target, {"parents": 1} if parents else {}, write=True)
        return target

    def rename(self, path: str | os.PathLike[str], to: str | os.PathLike[str]) -> Waits[str]:
        target, new = self._entry(path), self._entry(to)
        yield from self.ask("rename", target, {"to": new, "entry": 1}, write=True)
        return new

    def remove(self, path: str | os.PathLike[str], recursive: bool) -> Waits[None]:
        target = self._entry(path)
        yield from self.ask("remove", target, {"entry": 1, **({"recursive": 1} if recursive else {})}, write=True)

    def _entry(self, path: str | os.PathLike[str]) -> str:
        """A name that is moved or removed: none of the folders that the box was given."""
        target = self.world.resolve_path(path, write=True, entry=True)
        if target in self.world.reach(target):
            raise errors.OutsideError(f"{os.fspath(path)!r} is a folder that the box was given, not a name in one.")
        return target

    @property
    def shared(self) -> list[str]:
        """Folders of the host in which programs of the box make what they like."""
        policy = self.world.policy
        return [folder.path for folder in ((policy.workspace,) if policy.workspace else ()) + policy.writable]

    # One request

    def ask(
        self,
        do: str,
        path: str,
        more: Mapping[str, object],
        *,
        data: bytes | None = None,
        keep: int = MAX_ENTRY,
        write: bool = False,
    ) -> Waits[bytes]:
        """One operation within FILE_SECONDS; what it put out. Raises the PathError that stands for its refusal."""
        run = self.begin(keep)
        try:
            run.start(self.request(do, path, more, write=write), data)
            yield from run.finish()
            return self.answer(run, path)
        except Interrupted:
            yield from run.abort()
            raise
        finally:
            run.release()

    def begin(self, keep: int, seconds: float = FILE_SECONDS) -> Run:
        self.world.must_be_open()
        self.world.before_run()
        return Run(self.world.box, self.world.policy.limits, seconds, keep=2 * keep)

    def request(self, do: str, path: str, more: Mapping[str, object], *, write: bool = False) -> dict[str, object]:
        roots = [root for root, writable in self.world.reach(path).items() if writable or not write]
        return {"op": "files", "do": do, "path": path, "roots": roots, **more}

    def answer(self, run: Run, path: str) -> bytes:
        output, refusal = run.output()
        outcome = run.outcome()
        if outcome == Exited(0):
            return output.data
        raise refused(outcome, refusal.data, path)


def _records(listing: bytes) -> list[bytes]:
    return [record for record in listing.split(b"\0") if record]


def _info(record: bytes, path: str) -> FileInfo:
    found = parse_entry(record.rstrip(b"\0"), named=False)
    return FileInfo(path, found.kind, found.size, found.mode, found.modified)


def parse_entry(record: bytes, *, named: bool = True) -> FileInfo:
    """An entry as the box sends it, `mode size mtime name`. Raises ProtocolError for anything else; never anything but that."""
    mode, size, modified, name = parse_record(record)
    if named and (b"/" in name or name in (b"", b".", b"..")):
        raise errors.ProtocolError("the box named an entry that is in no folder.")
    return FileInfo(os.fsdecode(name), _KINDS.get(stat.S_IFMT(mode), "other"), size, stat.S_IMODE(mode), modified)


def parse_record(record: bytes) -> tuple[int, int, int, bytes]:
    parts = record.split(b" ", 3)
    if len(parts) != 4 or not all(part.removeprefix(b"-").isdigit() and len(part) <= 20 for part in parts[:3]):
        raise errors.ProtocolError("the box sent an entry of a file that is none.")
    try:
        mode, size, modified = int(parts[0], 8), int(parts[1]), int(parts[2])
    except ValueError:
        raise errors.ProtocolError("the box sent an entry whose mode is none.") from None
    if not (0 <= mode <= 0o177777 and 0 <= size < MAX_NUMBER and -MAX_NUMBER < modified < MAX_NUMBER):
        raise errors.ProtocolError("the box sent an entry of a file that is out of bounds.")
    return mode, size, modified, parts[3]


def refused(outcome: Outcome, said: bytes, path: str) -> errors.PathError:
    """The error for an operation that was not done; what the box says of it is checked like all it says."""
    if isinstance(outcome, CapHit) and outcome.kind == "wall":
        return errors.FileTimeError(f"{path!r} was worked on for {outcome.limit:g} s without an end.")
    if isinstance(outcome, CapHit):
        return errors.FileRefusedError(
            f"{path!r} was left as it was by then: the box met its {outcome.kind} cap.", errno=errno.EDQUOT
        )
    if outcome != Exited(REFUSED):
        return errors.FileRefusedError(f"{path!r} could not be worked on: {outcome}.")
    what, number, named = parse_refusal(said)
    return _for_word(what, named or path) or _for_errno(number, named or path)


def parse_refusal(said: bytes) -> tuple[bytes, int, str]:
    """The word, the errno and the path of a refusal; empty, 0 and empty where it says something else."""
    try:
        fields = wire.decode(said)
    except (wire.WireError, RecursionError):
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    number, what, named = fields.get("errno"), fields.get("what"), fields.get("path")
    return (
        what if isinstance(what, bytes) else b"",
        number if isinstance(number, int) and 0 < number < 4096 else 0,
        os.fsdecode(named) if isinstance(named, bytes) and len(named) <= 4096 else "",
    )


def _for_word(what: bytes, path: str) -> errors.PathError | None:
    match what:
        case b"not-regular":
            return errors.NotAFileError(f"{path!r} is not a regular file.")
        case b"not-folder":
            return errors.NotAFolderError(f"{path!r} is not a folder.")
        case b"outside":
            return errors.OutsideError(f"{path!r} leads out of what may be worked on in the box.")
        case b"too-many":
            return errors.FileTooLargeError(f"{path!r} has more entries than one call takes.")
        case b"changed":
            return errors.FileRefusedError(f"{path!r} became shorter while it was read.", errno=errno.ESTALE)
    return None


def _for_errno(number: int, path: str) -> errors.PathError:
    if not number:
        return errors.FileRefusedError(f"{path!r} could not be worked on.")
    reason = os.strerror(number)
    match number:
        case errno.ENOENT | errno.ENOTDIR | errno.ELOOP:  # links that lead to each other lead to nothing
            return errors.PathNotFoundError(f"{path!r} is not there: {reason}.")
        case errno.EISDIR | errno.ENXIO:  # a folder, or a FIFO or socket that nobody holds open
            return errors.NotAFileError(f"{path!r} is not a regular file: {reason}.")
        case errno.EEXIST:
            return errors.PathExistsError(f"{path!r} is there already.")
        case errno.ENOTEMPTY:
            return errors.FolderNotEmptyError(f"{path!r} is not empty.")
        case errno.EFBIG | errno.E2BIG:
            return errors.FileTooLargeError(f"{path!r} is larger than one call takes.")
    return errors.FileRefusedError(f"{path!r} was refused: {reason}.", errno=number)
