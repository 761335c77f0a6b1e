"""What an event loop has of the files of a box: `Sandbox.files`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ringfence.process.asynchronous import awaiting
from ringfence.process.command import as_bytes

if TYPE_CHECKING:
    from ringfence.world.files import FileInfo, FileWork

Path: TypeAlias = "str | os.PathLike[str]"
Infos: TypeAlias = "list[FileInfo]"  # in a class that has a method of that name, list is the method
Names: TypeAlias = "list[str]"


class Files:
    """The files of a box. The work is done inside it: a path means there what the box's own programs mean by it.

    Paths are absolute or relative to the workspace. A link is followed within what the box may read or write; one that leads
    out of it is refused. Every operation ends within 30 seconds. Raises ArgumentError for a path that no call takes,
    OutsideError for one outside the box's folders, PathNotFoundError where nothing is, FileRefusedError where the box's system
    refuses, FileTimeError when the time is over, SandboxClosedError and SandboxLostError. Not promised: that what was looked
    at is still so afterwards, while programs run.
    """

    def __init__(self, work: Callable[[], FileWork]) -> None:
        self._work = work

    async def read(self, path: Path) -> str:
        """The text of a regular file, at most 32 MiB; bytes that are not UTF-8 become replacement characters.

        Raises NotAFileError for folders, devices, FIFOs and sockets, FileTooLargeError.
        """
        return (await self.read_bytes(path)).decode("utf-8", "replace")

    async def read_bytes(self, path: Path) -> bytes:
        """The bytes of a regular file, at most 32 MiB. Raises as read()."""
        return await awaiting(self._work().read(path))

    async def write(self, path: Path, content: str | bytes) -> str:
        """Write a whole file, text as UTF-8, and the folders above it; returns its absolute path. Not atomic."""
        return await awaiting(self._work().write(path, as_bytes(content, "content") or b""))

    async def stat(self, path: Path) -> FileInfo:
        """What is at the path; a link is described itself."""
        return await awaiting(self._work().stat(path))

    async def exists(self, path: Path) -> bool:
        """Whether something is at the path, where it is a link at its end. Raises OutsideError for a link that leads out."""
        return await awaiting(self._work().exists(path))

    async def list(self, path: Path = ".") -> Infos:
        """What one folder holds, sorted by name, links not followed; at most 200,000 entries.

        Raises NotAFolderError, and FileTooLargeError past the bound.
        """
        return await awaiting(self._work().folder(path))

    async def mkdir(self, path: Path, parents: bool = True) -> str:
        """Make a folder; returns its absolute path. parents: those above it too, and one that is there is no error.

        Raises PathExistsError.
        """
        return await awaiting(self._work().mkdir(path, parents))

    async def rename(self, path: Path, to: Path) -> str:
        """Give a file, folder or link another name, in the place of a file that has it; returns the new absolute path.

        Raises FolderNotEmptyError where a folder with content has the name. A link is moved itself.
        """
        return await awaiting(self._work().rename(path, to))

    async def remove(self, path: Path, recursive: bool = False) -> None:
        """Remove a file, a link itself, or an empty folder; recursive: a folder with all it holds, following no link.

        Raises FolderNotEmptyError.
        """
        await awaiting(self._work().remove(path, recursive))

    async def glob(self, pattern: str) -> Names:
        """The paths that match, sorted, relative where the pattern is. A pattern means what it means in a policy:

        `*` and `?` stay within a name, `**` crosses folders, `[a-z]` is one character, a dot at the start of a name is nothing
        special, `{a,b}` is refused. No link is followed; at most 200,000 entries are looked at. Raises FileTooLargeError past
        that, ArgumentError for what is no pattern.
        """
        return await awaiting(self._work().glob(pattern))
