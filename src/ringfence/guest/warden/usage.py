"""What folders take on their disks, counted by a walk over them: blocks and names, as they are and not as they look.

The tree belongs to a box, which may change it meanwhile: every folder is opened from the one above it, no link is followed,
no mount entered. A file with holes counts what it takes, a file with many names counts once.
"""

import os
import stat

from ringfence.guest import kernel

BLOCK = 512  # st_blocks, whatever the file system's own is (stat(2))
MAX_DEPTH = 512
"""Folders that are open at once; what lies deeper is not looked into."""
MAX_LINKS = 1_000_000
COARSE_NS = 20_000_000
"""By which the times of files may lag the clock: they are those of the last tick."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Usage:
    """What was counted. hidden: folders that could not be looked into."""

    __slots__ = ("files", "hidden", "size")

    def __init__(self) -> None:
        self.size = self.files = self.hidden = 0


class Walk:
    """One count over roots, which are descriptors. since: what came into being from then on (ns since the epoch) is left out.

    It ends early where more than most_bytes or most_files were found, as what follows only adds.
    """

    def __init__(self, most_bytes: float, most_files: float, since: int = 0) -> None:
        self.usage = Usage()
        self.seen: set[tuple[int, int]] = set()
        self._most_bytes, self._most_files, self._since = most_bytes, most_files, since

    @property
    def over(self) -> bool:
        return self.usage.size > self._most_bytes or self.usage.files > self._most_files

    def count(self, roots: "Iterable[int]") -> Usage:
        for root in roots:
            found = os.fstat(root)
            if stat.S_ISDIR(found.st_mode):
                self._tree(root, found.st_dev)
            else:
                self.usage.size += found.st_blocks * BLOCK
        return self.usage

    def file(self, found: os.stat_result) -> None:
        """A file that is found elsewhere, such as one that has no name any more."""
        key = (found.st_dev, found.st_ino)
        if key not in self.seen and len(self.seen) < MAX_LINKS:
            self.seen.add(key)
            self.usage.size += found.st_blocks * BLOCK
            self.usage.files += 1

    def _tree(self, root: int, device: int) -> None:
        # Each level: its folder, and the names of the folders in it that are still to be entered.
        levels: list[tuple[int, list[str]]] = [
            (os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root), [])
        ]  # a position of its own
        levels[0][1].extend(self._folder(levels[0][0], device))
        try:
            while levels and not self.over:
                folder, names = levels[-1]
                if not names:
                    os.close(levels.pop()[0])
                    continue
                name = names.pop()
                if len(levels) >= MAX_DEPTH:
                    self.usage.hidden += 1
                    continue
                try:
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                except FileNotFoundError:
                    continue  # it is gone
                except OSError:
                    self.usage.hidden += 1
                    continue
                levels.append((below, self._folder(below, device)))
        finally:
            for folder, _ in levels:
                os.close(folder)

    def _folder(self, folder: int, device: int) -> "list[str]":
        """Count what is in a folder; the names of the folders in it."""
        below: list[str] = []
        usage, since = self.usage, self._since
        size = files = 0
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # it is gone
                    if stat.S_ISDIR(found.st_mode):
                        if found.st_dev != device:
                            continue  # another file system is mounted there
                        below.append(entry.name)
                    elif found.st_nlink > 1 and len(self.seen) < MAX_LINKS:
                        key = (found.st_dev, found.st_ino)
                        if key in self.seen:
                            continue
                        self.seen.add(key)
                    if since and found.st_ctime_ns >= since and kernel.birth(folder, os.fsencode(entry.name)) >= since:
                        continue
                    size += found.st_blocks
                    files += 1
        except OSError:
            usage.hidden += 1
        usage.size += size * BLOCK
        usage.files += files
        return below


def nameless(pid: int, devices: "set[int]", walk: Walk, most: int) -> int:
    """Count the files of these devices that a process has open and that have no name any more; descriptors looked at."""
    looked = 0
    try:
        for looked, entry in enumerate(os.scandir(f"/proc/{pid}/fd")):
            if looked >= most:
                break
            try:
                found = os.stat(entry.path)
            except OSError:
                continue
            if not found.st_nlink and stat.S_ISREG(found.st_mode) and found.st_dev in devices:
                walk.file(found)
    except OSError:
        pass  # it has ended, or lets nobody look
    return looked
