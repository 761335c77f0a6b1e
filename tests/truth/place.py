"""Where cases are run: a folder with a workspace in it for each box, and one beside them that no box shares."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import tempfile
from pathlib import Path

from truth.case import Case

_numbers = itertools.count(1)


class Place:
    """Not below /tmp, which a box has of its own: what lies beside the workspaces is outside of every box."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="rf-truth-"))
        self.root.chmod(0o755)
        self.outside = self.root / "outside"
        self.outside.mkdir()
        (self.outside / "here").write_text("outside\n")
        self.server = socket.create_server(("127.0.0.1", 0))

    def workspace(self) -> Path:
        """A fresh folder, for one box or one run."""
        made = self.root / f"work-{next(_numbers)}"
        made.mkdir(mode=0o755)
        return made

    def lay(self, case: Case, workspace: Path) -> Path:
        """The folder of one case in a workspace, with its files."""
        folder = workspace / f"case-{next(_numbers)}"
        folder.mkdir(mode=0o755)
        for name, (content, mode) in case.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.fill(content).encode() if isinstance(content, str) else content)
            path.chmod(mode)
        return folder

    def fill(self, text: str) -> str:
        """text with the names of this place in it."""
        return text.replace("@outside", str(self.outside)).replace("@port", str(self.server.getsockname()[1]))

    def names(self, folder: Path) -> dict[str, str]:
        """The names of this place as they are in the corpus; folder: of a case."""
        return {str(folder): "@folder", str(self.outside): "@outside", f":{self.server.getsockname()[1]}": ":@port"}

    def argv(self, case: Case) -> list[str]:
        return [self.fill(part) for part in case.argv]

    def heard(self) -> int:
        """How many connections have come to the server outside since this was last asked."""
        self.server.setblocking(False)
        for count in itertools.count():
            try:
                self.server.accept()[0].close()
            except BlockingIOError:
                return count
        raise AssertionError

    def remove(self) -> None:
        self.server.close()
        for folder, names, _ in os.walk(self.root):
            for name in names:
                if not os.path.islink(path := os.path.join(folder, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
