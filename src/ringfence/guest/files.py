"""Work on the files of a box, done inside it by a short-lived fork of the guest.

Inside, a path means what it means to the box's own programs: no link leads out of the view, and whatever a hostile tree
holds, the outside only receives bytes on a pipe. Requests: read, write, list. A refusal is one message on standard error and
status REFUSED.
"""

import errno
import os
import stat

from ringfence.guest import wire

REFUSED = 3
MAX_LISTED = 200_000
"""Entries of one listing; a larger tree is refused by name rather than cut."""


class NotRegular(Exception):
    """The path is a folder, a device, a FIFO or a socket."""


def perform(request: dict[str, object]) -> int:
    """Carry out one request with stdin and stdout as its data; the exit status of the process."""
    path = request["path"]
    assert isinstance(path, bytes)
    try:
        _OPERATIONS[request["do"]](path, request)  # type: ignore[index]
    except NotRegular:
        return _refuse(errno.EINVAL, b"not-regular", path)
    except OSError as error:
        if error.errno == errno.EPIPE:
            return 0  # the outside has read as much as it wants
        return _refuse(error.errno or 0, b"", path)
    return 0


def _refuse(number: int, what: bytes, path: bytes) -> int:
    os.write(2, wire.encode({"errno": number, "what": what, "path": path[:4096]}))
    return REFUSED


def _open_regular(path: bytes, flags: int) -> int:
    # O_NONBLOCK: opening a FIFO or a device must not wait for its other end.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise NotRegular
    return descriptor


def _read(path: bytes, request: dict[str, object]) -> None:
    descriptor = _open_regular(path, os.O_RDONLY)
    left = request["most"]
    assert isinstance(left, int)
    if os.fstat(descriptor).st_size > left:
        raise OSError(errno.EFBIG, "larger than may be read")
    while left >= 0 and (chunk := os.read(descriptor, min(left + 1, 65536))):
        left -= len(chunk)
        write_all(1, chunk)


def _write(path: bytes, request: dict[str, object]) -> None:
    os.makedirs(os.path.dirname(path) or b"/", exist_ok=True)
    descriptor = _open_regular(path, os.O_WRONLY | os.O_CREAT)
    os.ftruncate(descriptor, 0)
    while chunk := os.read(0, 65536):
        write_all(descriptor, chunk)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _list(path: bytes, request: dict[str, object]) -> None:
    """Files and links below path, NUL-separated, relative; links are named and never followed."""
    start = len(path.rstrip(b"/")) + 1
    folders = [path]
    count = 0
    out: list[bytes] = []
    first = True
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            if first:
                raise
            continue  # removed meanwhile, or closed to its own owner
        first = False
        count += len(entries)
        if count > MAX_LISTED:
            raise OSError(errno.E2BIG, "more entries than a listing may have")
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                out.append(entry.path[start:])
        if len(out) > 1024:
            write_all(1, b"\0".join(out) + b"\0")
            out = []
    if out:
        write_all(1, b"\0".join(out) + b"\0")


_OPERATIONS = {b"read": _read, b"write": _write, b"list": _list}
