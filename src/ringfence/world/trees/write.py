"""A tree from a box, made in a folder of the caller's: by descriptors, through no link, and nothing that was not sent."""

from __future__ import annotations

import os
import stat

from ringfence import errors
from ringfence.world.trees.places import Place
from ringfence.world.trees.receive import Parts

MAX_LINK_BYTES = 16 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class Writer:
    """The sink of a download. Links are made last, so that nothing is ever written through one of them."""

    def __init__(self, place: Place, given: str, *, overwrite: bool) -> None:
        self.place, self.given, self.overwrite = place, given, overwrite
        self.files = self.folders = self.links = 0
        self._open = -1
        self._modified = 0
        self._folder: tuple[Parts, int] | None = None  # the last one written to
        self._links: list[tuple[Parts, str]] = []
        self._link_bytes = 0

    # The sink

    def folder(self, parts: Parts, mode: int) -> None:
        above, name = self._above(parts)
        try:
            os.mkdir(name, mode | 0o700, dir_fd=above)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
                raise errors.PathExistsError(f"{self._shown(parts)!r} is there already, and is no folder.") from None
        self.folders += 1

    def file(self, parts: Parts, mode: int, modified: int) -> None:
        above, name = self._above(parts)
        if self.overwrite:
            self._make_room(above, name, parts)
        try:
            # Without set-id bits, and less what the caller's umask takes.
            self._open = os.open(name, _FILE, mode & 0o777, dir_fd=above)
        except FileExistsError:
            raise errors.PathExistsError(
                f"{self._shown(parts)!r} is there already.", hint="Name a fresh place, or overwrite=True."
            ) from None
        self._modified = modified
        self.files += 1

    def content(self, data: bytes) -> None:
        if data and not data[0] and data.count(0) == len(data):
            os.lseek(self._open, len(data), os.SEEK_CUR)  # a hole stays one
            return
        view = memoryview(data)
        while view:
            view = view[os.write(self._open, view) :]

    def end_of_file(self) -> None:
        os.ftruncate(self._open, os.lseek(self._open, 0, os.SEEK_CUR))
        try:
            os.utime(self._open, ns=(self._modified, self._modified))
        except (OSError, OverflowError):
            pass  # a time that this file system cannot hold: the file has the time of now
        os.close(self._open)
        self._open = -1

    def link(self, parts: Parts, target: bytes) -> str | None:
        """Keep a link for the end; why not, where it leads or may lead out of the tree."""
        self._link_bytes += len(target)
        if self._link_bytes > MAX_LINK_BYTES:
            raise errors.FileTooLargeError("the links of the tree are larger than a download takes.")
        if not leads_inside(len(parts) - 1, target):
            return "it is a link that leads out of the tree"
        self._links.append((parts, os.fsdecode(target)))
        return None

    def make_links(self) -> None:
        """Make the links that stay in the tree."""
        ours = {parts for parts, _ in self._links}
        for parts, target in self._links:
            if self._crosses_older_link(parts, target, ours):
                raise errors.PathExistsError(f"{self._shown(parts)!r} would lead through a link that was there before.")
            above, name = self._above(parts)
            if self.overwrite:
                self._make_room(above, name, parts)
            try:
                os.symlink(target, name, dir_fd=above)
            except FileExistsError:
                raise errors.PathExistsError(f"{self._shown(parts)!r} is there already.") from None
            self.links += 1

    # Places

    def _above(self, parts: Parts) -> tuple[int, str]:
        """The open folder that an entry lies in, reached by real folders alone, and its name there."""
        if not parts:
            return self.place.folder, self.place.name
        if self._folder is None or self._folder[0] != parts[:-1]:
            folder = self._reach(parts[:-1])
            self._forget()
            self._folder = (parts[:-1], folder)
        return self._folder[1], parts[-1]

    def _reach(self, parts: Parts) -> int:
        folder = os.open(self.place.name, _FOLDER, dir_fd=self.place.folder)
        for name in parts:
            try:
                below = os.open(name, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                raise errors.ProtocolError("the box sent an entry of a folder that it did not send.") from None
            except OSError:
                raise errors.PathExistsError(f"{self._shown(parts)!r} is no folder, or a link.") from None
            finally:
                os.close(folder)
            folder = below
        return folder

    def _make_room(self, above: int, name: str, parts: Parts) -> None:
        # Removed and made anew: a file that is there can be a link, or have another name elsewhere.
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
                raise errors.PathExistsError(f"{self._shown(parts)!r} is there already, and is a folder.")
            os.unlink(name, dir_fd=above)
        except FileNotFoundError:
            pass

    def _crosses_older_link(self, parts: Parts, target: str, ours: set[Parts]) -> bool:
        """Whether a link's way leads through one that was there before, which may lead anywhere."""
        at = list(parts[:-1])
        for name in target.split("/"):
            if name == "..":
                at.pop()
                continue
            if name in ("", "."):
                continue
            at.append(name)
            if tuple(at) in ours:
                return False  # from there on its own way counts
            if self._is_link(tuple(at)):
                return True
        return False

    def _is_link(self, parts: Parts) -> bool:
        try:
            above, name = self._above(parts)
            return stat.S_ISLNK(os.lstat(name, dir_fd=above).st_mode)
        except (FileNotFoundError, errors.ProtocolError):
            return False  # nothing is there
        except errors.PathExistsError:
            return False  # through a file: the link leads nowhere

    def _shown(self, parts: Parts) -> str:
        return os.path.join(self.given, *parts)

    def _forget(self) -> None:
        if self._folder is not None:
            os.close(self._folder[1])
            self._folder = None

    def close(self) -> None:
        self._forget()
        if self._open >= 0:
            os.close(self._open)
            self._open = -1
        self.place.close()


def leads_inside(depth: int, target: bytes) -> bool:
    """Whether a link in a real folder that lies depth below the root of its tree stays in it, whatever other such links there are.

    Up by at most depth, then down by names: a `..` after a name could follow a link there and be taken from where that leads.
    """
    if not target or target.startswith(b"/") or b"\0" in target:
        return False
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    return ups <= depth and b".." not in names[ups:]
