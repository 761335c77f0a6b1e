"""Files and trees of files as one stream of bytes, packed and unpacked inside the box.

One record for each entry: `mode size mtime name` as guest/files.py has it, then size bytes: the content of a regular file, the
target of a link. The entry without a name is the root. What cannot be read is a record of mode 0 whose size is the errno;
devices, FIFOs and sockets are records of their mode and no bytes. The record `end` closes the stream: without it, it was cut.
"""

import errno
import os
import stat

CHUNK = 1 << 16
MAX_DEPTH = 200
MAX_PATH = 4096
"""What the outside reads at most: names in a path, and its bytes."""
END = b"end\0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Refusal(Exception):
    """An operation that was not done: why, by a word of the protocol or an errno, and on which path if not the request's."""

    def __init__(self, what: bytes, number: int = 0, path: bytes = b"") -> None:
        super().__init__(what)
        self.what, self.errno, self.path = what, number, path


def write_all(descriptor: int, data: "bytes | bytearray") -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Out:
    """Standard output in large pieces."""

    def __init__(self) -> None:
        self.held = bytearray()

    def put(self, data: bytes) -> None:
        self.held += data
        if len(self.held) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        write_all(1, self.held)
        self.held = bytearray()


def entry(found: os.stat_result, name: bytes) -> bytes:
    return b"%o %d %d %b\0" % (found.st_mode, found.st_size, found.st_mtime_ns, name)


def _record(mode: int, size: int, name: bytes) -> bytes:
    return b"%o %d 0 %b\0" % (mode, size, name)


def open_regular(path: bytes, flags: int, mode: int = 0o644) -> int:
    # O_NONBLOCK: opening a FIFO or a device must not wait for its other end.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refusal(b"not-regular", errno.EINVAL)
    return descriptor


# From the box


class _Packing:
    """A tree on its way out, within bounds of bytes and of entries."""

    def __init__(self, most_bytes: int, most_entries: int, device: int) -> None:
        self.bytes_left, self.entries_left = most_bytes, most_entries
        self.device = device  # of the only file system that is sent, -1 for all
        self.out = Out()

    def file(self, path: bytes, name: bytes) -> None:
        descriptor = open_regular(path, os.O_RDONLY | (os.O_NOFOLLOW if name else 0))
        try:
            found = os.fstat(descriptor)
            self.bytes_left -= found.st_size
            if self.bytes_left < 0:
                raise Refusal(b"", errno.EFBIG, path)
            self.out.put(entry(found, name))
            left = found.st_size  # what it grows by from here on is not sent
            while left:
                try:
                    chunk = os.read(descriptor, min(left, CHUNK))
                except OSError as error:
                    raise Refusal(b"", error.errno or errno.EIO, path) from None
                if not chunk:
                    raise Refusal(b"changed", 0, path)
                left -= len(chunk)
                self.out.put(chunk)
        finally:
            os.close(descriptor)

    def folder(self, path: bytes, prefix: bytes) -> "list[tuple[bytes, bytes]]":
        """Send what a folder holds; returns the folders in it."""
        below = []
        with os.scandir(path) as entries:
            for each in entries:
                self.entries_left -= 1
                if self.entries_left < 0:
                    raise Refusal(b"too-many", errno.E2BIG)
                name = prefix + each.name
                if len(name) > MAX_PATH or name.count(b"/") >= MAX_DEPTH:
                    self.out.put(_record(0, errno.ENAMETOOLONG, prefix[:-1]))
                    continue
                try:
                    if self._one(each, name):
                        below.append((each.path, name + b"/"))
                except OSError as error:
                    if error.errno == errno.EPIPE:
                        raise
                    self.out.put(_record(0, error.errno or errno.EIO, name))
        return below

    def _one(self, each: "os.DirEntry[bytes]", name: bytes) -> bool:
        found = each.stat(follow_symlinks=False)
        kind = stat.S_IFMT(found.st_mode)
        if self.device not in (-1, found.st_dev):
            return False  # something is mounted there
        if kind == stat.S_IFREG:
            self.file(each.path, name)
        elif kind == stat.S_IFLNK:
            target = os.readlink(each.path)
            self.out.put(_record(found.st_mode, len(target), name) + target)
        else:
            self.out.put(_record(found.st_mode, 0, name))
        return kind == stat.S_IFDIR


def pack(path: bytes, request: "dict[str, Any]") -> None:
    """Send a file, or a folder and all below it; with `here`, of its own file system. No link below the path is followed."""
    found = os.stat(path)
    packing = _Packing(request["most_bytes"], request["most_entries"], found.st_dev if "here" in request else -1)
    if not stat.S_ISDIR(found.st_mode):
        packing.file(path, b"")
    else:
        packing.out.put(_record(found.st_mode, 0, b""))
        below = packing.folder(path, b"")
        while below:
            folder, prefix = below.pop()
            try:
                below += packing.folder(folder, prefix)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise
                packing.out.put(_record(0, error.errno or errno.EIO, prefix[:-1]))
    packing.out.put(END)
    packing.out.flush()


# Into the box


class _In:
    """Standard input in records."""

    def __init__(self) -> None:
        self.held = b""

    def record(self) -> bytes:
        while b"\0" not in self.held:
            self._more()
        record, _, self.held = self.held.partition(b"\0")
        return record

    def _more(self) -> None:
        chunk = os.read(0, CHUNK)
        if not chunk:
            raise Refusal(b"cut", errno.EPROTO)
        self.held += chunk

    def copy(self, size: int, descriptor: int) -> None:
        while size:
            if not self.held:
                self._more()
            piece, self.held = self.held[:size], self.held[size:]
            write_all(descriptor, piece)
            size -= len(piece)

    def take(self, size: int) -> bytes:
        while len(self.held) < size:
            self._more()
        taken, self.held = self.held[:size], self.held[size:]
        return taken


def unpack(path: bytes, request: "dict[str, Any]") -> None:
    """Make a file or a tree at path from the stream; folders that are there are gone on with, files only with overwrite."""
    os.makedirs(os.path.dirname(path) or b"/", exist_ok=True)
    records = _In()
    while (record := records.record()) != b"end":
        octal, size, modified, name = record.split(b" ", 3)
        mode, target = int(octal, 8), path + (b"/" + name if name else b"")
        kind = stat.S_IFMT(mode)
        if kind == stat.S_IFDIR:
            _make_folder(target, mode)
            continue
        if "overwrite" in request:
            _make_room(target)
        if kind == stat.S_IFLNK:
            os.symlink(records.take(int(size)), target)
            continue
        descriptor = open_regular(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o777)
        try:
            records.copy(int(size), descriptor)
            os.utime(descriptor, ns=(int(modified), int(modified)))
        finally:
            os.close(descriptor)


def _make_room(path: bytes) -> None:
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass


def _make_folder(path: bytes, mode: int) -> None:
    try:
        os.mkdir(path, mode & 0o777 | 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
