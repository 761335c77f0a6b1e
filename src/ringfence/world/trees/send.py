"""A tree of the caller's, as the stream that guest/trees.py unpacks. Links are sent as links; none is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ringfence import errors
from ringfence.world.trees.places import Place

CHUNK = 1 << 16
MAX_DEPTH = 200
"""Folders within folders: each is an open descriptor while it is sent."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class Sending:
    """Counts what it sends, and refuses by name what cannot be sent."""

    def __init__(self, given: str, most_bytes: int, most_files: int) -> None:
        self.given, self.bytes_left, self.files_left = given, most_bytes, most_files
        self.files = self.folders = self.links = self.bytes = 0
        self.refused: list[tuple[str, str]] = []

    def pieces(self, place: Place) -> Iterator[bytes]:
        yield from self._entry(place.folder, os.fsencode(place.name), b"", 0)
        yield b"end\0"

    def _entry(self, folder: int, name: bytes, path: bytes, depth: int) -> Iterator[bytes]:
        found = os.lstat(name, dir_fd=folder)
        kind = stat.S_IFMT(found.st_mode)
        self.files_left -= 1
        if self.files_left < 0:
            raise errors.FileTooLargeError(f"{self.given!r} has more entries than max_files.", hint="Raise max_files.")
        if kind == stat.S_IFDIR:
            yield from self._folder(folder, name, path, depth)
        elif kind == stat.S_IFREG:
            yield from self._file(folder, name, path)
        elif kind == stat.S_IFLNK:
            target = os.readlink(name, dir_fd=folder)
            self.links += 1
            yield _record(found.st_mode, len(target), 0, path) + target
        elif path:
            self.refused.append((os.fsdecode(path), f"it is {_KINDS.get(kind, 'no file')}"))
        else:
            raise errors.NotAFileError(f"{self.given!r} is {_KINDS.get(kind, 'no file')}.")

    def _folder(self, above: int, name: bytes, path: bytes, depth: int) -> Iterator[bytes]:
        if depth > MAX_DEPTH:
            self.refused.append((os.fsdecode(path), f"it lies more than {MAX_DEPTH} folders deep"))
            return
        folder = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=above)
        try:
            self.folders += 1
            yield _record(os.fstat(folder).st_mode, 0, 0, path)
            for each in sorted(map(os.fsencode, os.listdir(folder))):
                try:
                    yield from self._entry(folder, each, path + b"/" + each if path else each, depth + 1)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except PermissionError as error:
                    self.refused.append((os.fsdecode(path + b"/" + each if path else each), f"{error.strerror}"))
        finally:
            os.close(folder)

    def _file(self, folder: int, name: bytes, path: bytes) -> Iterator[bytes]:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError  # it was a file a moment ago
            self.bytes_left -= found.st_size
            if self.bytes_left < 0:
                raise errors.FileTooLargeError(f"{self.given!r} is larger than max_bytes.", hint="Raise max_bytes.")
            yield _record(found.st_mode, found.st_size, found.st_mtime_ns, path)
            left = found.st_size  # what it grows by from here on is not sent
            while left:
                chunk = os.read(descriptor, min(left, CHUNK))
                if not chunk:
                    shown = os.path.join(self.given, os.fsdecode(path))
                    raise errors.HostError(f"{shown!r} became shorter while it was read.", hint="Try again.")
                left -= len(chunk)
                yield chunk
            self.files += 1
            self.bytes += found.st_size
        finally:
            os.close(descriptor)


def _record(mode: int, size: int, modified: int, path: bytes) -> bytes:
    return b"%o %d %d %b\0" % (mode, size, modified, path)
