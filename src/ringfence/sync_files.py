"""The files of a box without await: `ringfence.sync.Sandbox.files`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ringfence.process.command import as_bytes
from ringfence.process.wait import blocking

if TYPE_CHECKING:
    from ringfence.world.files import FileInfo, FileWork

Path: TypeAlias = "str | os.PathLike[str]"
Infos: TypeAlias = "list[FileInfo]"  # in a class that has a method of that name, list is the method
Names: TypeAlias = "list[str]"


class Files:
    """The files of a box. Every method means what that of ringfence.Files means, and blocks."""

    def __init__(self, work: Callable[[], FileWork]) -> None:
        self._work = work

    def read(self, path: Path) -> str:
        """See ringfence.Files.read."""
        return self.read_bytes(path).decode("utf-8", "replace")

    def read_bytes(self, path: Path) -> bytes:
        """See ringfence.Files.read_bytes."""
        return blocking(self._work().read(path))

    def write(self, path: Path, content: str | bytes) -> str:
        """See ringfence.Files.write."""
        return blocking(self._work().write(path, as_bytes(content, "content") or b""))

    def stat(self, path: Path) -> FileInfo:
        """See ringfence.Files.stat."""
        return blocking(self._work().stat(path))

    def exists(self, path: Path) -> bool:
        """See ringfence.Files.exists."""
        return blocking(self._work().exists(path))

    def list(self, path: Path = ".") -> Infos:
        """See ringfence.Files.list."""
        return blocking(self._work().folder(path))

    def mkdir(self, path: Path, parents: bool = True) -> str:
        """See ringfence.Files.mkdir."""
        return blocking(self._work().mkdir(path, parents))

    def rename(self, path: Path, to: Path) -> str:
        """See ringfence.Files.rename."""
        return blocking(self._work().rename(path, to))

    def remove(self, path: Path, recursive: bool = False) -> None:
        """See ringfence.Files.remove."""
        blocking(self._work().remove(path, recursive))

    def glob(self, pattern: str) -> Names:
        """See ringfence.Files.glob."""
        return blocking(self._work().glob(pattern))
