"""The private copies of a box as it has them now, read in it like every file of a box and believed like one: not at all."""

from __future__ import annotations

from ringfence.outcome import Exited
from ringfence.process.wait import Interrupted, Waits
from ringfence.world.files import FILE_SECONDS, FileWork, refused
from ringfence.world.trees.receive import Parser, Parts

MAX_BYTES = 4 << 20
MAX_ENTRIES = 2000
"""What is read of all copies together. More is refused by name: then there is no telling what changed."""


class Copies:
    """A sink that keeps what comes: bytes of files by their path below the folder, and the targets of links."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self._open = ""

    def folder(self, parts: Parts, mode: int) -> None:
        """Folders are known by what they hold."""

    def file(self, parts: Parts, mode: int, modified: int) -> None:
        self._open = "/".join(parts)
        self.files[self._open] = b""

    def content(self, data: bytes) -> None:
        self.files[self._open] += data

    def end_of_file(self) -> None:
        """The next entry follows."""

    def link(self, parts: Parts, target: bytes) -> str | None:
        self.links["/".join(parts)] = target.decode("utf-8", "replace")
        return None


def read_copies(work: FileWork, folder: str) -> Waits[Copies]:
    """What lies below a folder of the box that its programs may write. Raises PathError, ProtocolError, SandboxLostError."""
    run = work.begin(2 * MAX_BYTES, FILE_SECONDS)
    request: dict[str, object] = {"op": "files", "do": "pack", "path": folder, "roots": [folder]}
    try:
        run.start({**request, "most_bytes": MAX_BYTES, "most_entries": MAX_ENTRIES}, None)
        yield from run.finish()
        output, said = run.output()
        outcome = run.outcome()
    except Interrupted:
        yield from run.abort()
        raise
    finally:
        run.release()
    if outcome != Exited(0):
        raise refused(outcome, said.data, folder)
    copies = Copies()
    parser = Parser(copies, MAX_BYTES, MAX_ENTRIES)
    parser.feed(output.data)
    parser.end()
    return copies
