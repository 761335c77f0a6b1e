"""The stream of a tree as a box sends it (guest/trees.py), read as if an attacker wrote it. No file is touched here."""

from __future__ import annotations

import os
import stat
from typing import Protocol

from ringfence import errors
from ringfence.world.files import parse_record

MAX_RECORD = 4096 + 64
MAX_NAME = 255  # NAME_MAX, linux/limits.h
MAX_PATH = 4096
MAX_DEPTH = 200
END = b"end"

Parts = tuple[str, ...]
_DEVICE = "it is a device"
_KINDS = {stat.S_IFIFO: "it is a FIFO", stat.S_IFSOCK: "it is a socket", stat.S_IFCHR: _DEVICE, stat.S_IFBLK: _DEVICE}


class Sink(Protocol):
    """Where a tree goes. Parts are the names from the root to the entry, none for the root itself."""

    def folder(self, parts: Parts, mode: int) -> None: ...

    def file(self, parts: Parts, mode: int, modified: int) -> None: ...

    def content(self, data: bytes) -> None: ...

    def end_of_file(self) -> None: ...

    def link(self, parts: Parts, target: bytes) -> str | None: ...


class Parser:
    """feed() it what comes, then end(). Raises ProtocolError for what no guest of ours sends, FileTooLargeError past the bounds."""

    def __init__(self, sink: Sink, most_bytes: int, most_files: int) -> None:
        self._sink, self._bytes_left, self._files_left = sink, most_bytes, most_files
        self._held = bytearray()
        self._content = 0  # bytes of the open file that are to come
        self._link: tuple[Parts, int] | None = None
        self._root = ""  # "folder" or "file" once it is known
        self._ended = False
        self.bytes = 0
        self.refused: list[tuple[str, str]] = []

    def feed(self, data: bytes) -> None:
        self._held += data
        while self._held and self._step():
            pass

    def end(self) -> None:
        """After the last byte: raises ProtocolError where the stream was cut."""
        if not self._ended or self._held:
            raise errors.ProtocolError("the box sent a tree that is cut, or more than one.")

    def _step(self) -> bool:
        if self._ended:
            raise errors.ProtocolError("the box sent bytes after the end of a tree.")
        if self._content:
            self._take_content()
            return True
        if self._link is not None:
            return self._take_target(*self._link)
        end = self._held.find(b"\0", 0, MAX_RECORD)
        if end < 0:
            if len(self._held) >= MAX_RECORD:
                raise errors.ProtocolError("the box sent a record of a tree without an end.")
            return False
        record = bytes(self._held[:end])
        del self._held[: end + 1]
        if record == END:
            if not self._root:
                raise errors.ProtocolError("the box sent a tree with nothing in it.")
            self._ended = True
        else:
            self._record(*parse_record(record))
        return True

    def _take_content(self) -> None:
        piece = bytes(self._held[: self._content])
        del self._held[: len(piece)]
        self._content -= len(piece)
        self._sink.content(piece)
        if not self._content:
            self._sink.end_of_file()

    def _take_target(self, parts: Parts, size: int) -> bool:
        if len(self._held) < size:
            return False
        target = bytes(self._held[:size])
        del self._held[:size]
        self._link = None
        why = self._sink.link(parts, target)
        if why is not None:
            self._refuse(parts, why)
        return True

    def _record(self, mode: int, size: int, modified: int, name: bytes) -> None:
        parts = self._place(name, stat.S_IFMT(mode))
        kind = stat.S_IFMT(mode)
        self._files_left -= 1
        if self._files_left < 0:
            raise errors.FileTooLargeError("the tree has more entries than max_files.", hint="Raise max_files.")
        if kind in (stat.S_IFREG, stat.S_IFLNK):
            self._bytes_left -= size
            self.bytes += size if kind == stat.S_IFREG else 0
        if self._bytes_left < 0:
            raise errors.FileTooLargeError("the tree is larger than max_bytes.", hint="Raise max_bytes.")
        if kind == stat.S_IFREG:
            self._sink.file(parts, mode & 0o777, modified)
            self._content = size
            if not size:
                self._sink.end_of_file()
        elif kind == stat.S_IFDIR:
            self._sink.folder(parts, mode & 0o777)
        elif kind == stat.S_IFLNK:
            if not 0 < size <= MAX_PATH:
                raise errors.ProtocolError("the box sent a link whose target is out of bounds.")
            self._link = (parts, size)
        elif kind == 0:
            self._refuse(parts, os.strerror(size) if size < 4096 else "it could not be read")
        else:
            self._refuse(parts, _KINDS.get(kind, "it is no file"))

    def _refuse(self, parts: Parts, why: str) -> None:
        self.refused.append(("/".join(parts), why))

    def _place(self, name: bytes, kind: int) -> Parts:
        """The names of an entry's path. The root comes first and once, and only a folder holds others."""
        if not name:
            if self._root or kind not in (stat.S_IFDIR, stat.S_IFREG):
                raise errors.ProtocolError("the box sent a tree whose root is none.")
            self._root = "folder" if kind == stat.S_IFDIR else "file"
            return ()
        names = name.split(b"/")
        if self._root != "folder" or len(name) > MAX_PATH or len(names) > MAX_DEPTH:
            raise errors.ProtocolError("the box sent an entry of a tree where there can be none.")
        if any(each in (b"", b".", b"..") or len(each) > MAX_NAME for each in names):
            raise errors.ProtocolError("the box sent an entry of a tree whose name leads out of it.")
        return tuple(os.fsdecode(each) for each in names)
