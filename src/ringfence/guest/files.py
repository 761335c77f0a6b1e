"""Work on the files of a box, done inside it by a short-lived fork of the guest.

Inside, a path means what it means to the box's own programs: no link leads out of the view, and whatever a hostile tree
holds, the outside only receives bytes on a pipe. A request names the operation, its path, and the roots that the path may
lead to. A refusal is one message on standard error and status REFUSED. Entries are sent as text, `mode size mtime name`
(octal, bytes, nanoseconds), each ended by NUL: no name holds one.
"""

import errno
import os
import stat

from ringfence.guest import processes, relay, trees, wire
from ringfence.guest.trees import Refusal, write_all

REFUSED = 3
MAX_ENTRIES = 200_000
"""Entries of one listing; a larger one is refused by name rather than cut."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def perform(request: "dict[str, Any]") -> int:
    """Carry out one request with stdin and stdout as its data; the exit status of the process."""
    path = request.get("path", b"")
    try:
        if "roots" in request:
            _must_lie_within(request["roots"], path, "entry" in request)
        return OPERATIONS[request["do"]](path, request) or 0
    except Refusal as refusal:
        return _refuse(refusal.errno, refusal.what, refusal.path or path)
    except OSError as error:
        if error.errno == errno.EPIPE:
            return 0  # the outside has read as much as it wants
        named = error.filename if isinstance(error.filename, bytes) else path
        return _refuse(error.errno or 0, b"", named)


def _refuse(number: int, what: bytes, path: bytes) -> int:
    write_all(2, wire.encode({"errno": number, "what": what, "path": path[:4096]}))
    return REFUSED


def _must_lie_within(roots: "list[bytes]", path: bytes, entry: bool) -> None:
    """With entry the path's last name is meant itself, whatever it leads to."""
    above, name = os.path.split(path)
    real = os.path.join(os.path.realpath(above), name) if entry else os.path.realpath(path)
    for root in roots:
        real_root = os.path.realpath(root)
        if real == real_root or real.startswith(real_root.rstrip(b"/") + b"/"):
            return
    raise Refusal(b"outside")


def _read(path: bytes, request: "dict[str, Any]") -> None:
    descriptor = trees.open_regular(path, os.O_RDONLY)
    left: int = request["most"]
    if os.fstat(descriptor).st_size > left:
        raise Refusal(b"", errno.EFBIG)
    while left >= 0 and (chunk := os.read(descriptor, min(left + 1, 65536))):
        left -= len(chunk)  # one byte more than may be: so the outside sees a file that grew meanwhile
        write_all(1, chunk)


def _write(path: bytes, request: "dict[str, Any]") -> None:
    os.makedirs(os.path.dirname(path) or b"/", exist_ok=True)
    descriptor = trees.open_regular(path, os.O_WRONLY | os.O_CREAT)
    os.ftruncate(descriptor, 0)
    while chunk := os.read(0, 65536):
        write_all(descriptor, chunk)


def _stat(path: bytes, request: "dict[str, Any]") -> None:
    write_all(1, trees.entry(os.lstat(path) if "entry" in request else os.stat(path), b""))


def _list(path: bytes, request: "dict[str, Any]") -> None:
    """The entries of one folder."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise Refusal(b"not-folder", errno.ENOTDIR)
    out = trees.Out()
    with os.scandir(path) as entries:
        for count, each in enumerate(entries):
            if count == MAX_ENTRIES:
                raise Refusal(b"too-many", errno.E2BIG)
            try:
                out.put(trees.entry(each.stat(follow_symlinks=False), each.name))
            except FileNotFoundError:
                continue  # removed meanwhile
    out.flush()


def _walk(path: bytes, request: "dict[str, Any]") -> None:
    """What lies below path, relative to it, each name ended by NUL; links are named and never followed.

    folders: name folders too, with a slash at the end. depth: how many levels down.
    """
    start = len(path.rstrip(b"/")) + 1
    queue = [(path, 1)]
    count = 0
    out = trees.Out()
    while queue:
        folder, level = queue.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            if folder == path:
                raise
            continue  # removed meanwhile, or closed to its own owner
        count += len(entries)
        if count > MAX_ENTRIES:
            raise Refusal(b"too-many", errno.E2BIG)
        for each in entries:
            is_folder = each.is_dir(follow_symlinks=False)
            if is_folder and level < request.get("depth", MAX_ENTRIES):
                queue.append((each.path, level + 1))
            if not is_folder or "folders" in request:
                out.put(each.path[start:] + (b"/\0" if is_folder else b"\0"))
    out.flush()


def _mkdir(path: bytes, request: "dict[str, Any]") -> None:
    if "parents" in request:
        os.makedirs(path, exist_ok=True)
    else:
        os.mkdir(path)


def _rename(path: bytes, request: "dict[str, Any]") -> None:
    to = request["to"]
    _must_lie_within(request["roots"], to, True)
    os.rename(path, to)


def _remove(path: bytes, request: "dict[str, Any]") -> None:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    folders = [path]
    if "recursive" in request:
        for folder in folders:  # grows as it is read: parents come before what they hold
            for each in list(os.scandir(folder)):
                if each.is_dir(follow_symlinks=False):
                    folders.append(each.path)
                else:
                    os.unlink(each.path)
    for folder in reversed(folders):
        os.rmdir(folder)


def _processes(path: bytes, request: "dict[str, Any]") -> None:
    described = processes.describe(request["guest"], set(request["spared"]) | {os.getpid()}, set(request["leaders"]))
    if described is None:
        raise Refusal(b"too-many", errno.E2BIG)
    write_all(1, wire.encode(described))


CHANGING = frozenset((b"write", b"mkdir", b"rename", b"remove", b"unpack"))
"""Operations after which names are new that no run has made."""

OPERATIONS: "dict[bytes, Any]" = {
    b"read": _read,
    b"write": _write,
    b"stat": _stat,
    b"list": _list,
    b"walk": _walk,
    b"mkdir": _mkdir,
    b"rename": _rename,
    b"remove": _remove,
    b"pack": trees.pack,
    b"unpack": trees.unpack,
    b"connect": relay.connect,
    b"processes": _processes,
}
