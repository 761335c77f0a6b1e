"""Which files a run brought into the workspace, found by the modification times of its folders.

A new name changes its folder's mtime, so a run that created nothing costs one stat for each folder. A workspace with more
folders or names than the bounds is not watched at all, and the result says so by having no list.
"""

import os

MAX_FOLDERS = 32
MAX_NAMES = 1024
MAX_REPORTED = 256
MAX_REPORTED_BYTES = 24 * 1024  # a report is one packet
SKIPPED = (".git",)


class Created:
    """Remembers the names of a tree; each look reports those that are new since the last one."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folders: dict[str, tuple[int, set[str]]] = {}
        self.names = 0
        self.watched = self._look(root) is not None

    def new(self) -> list[bytes] | None:
        """Paths relative to the root, within the bounds of a report; None when the tree is too large to be watched."""
        if not self.watched:
            return None
        found: list[str] = []
        for folder in list(self.folders):
            names = self._look(folder)
            if names is None:
                return None
            found += names
        start = len(self.root.rstrip("/")) + 1
        reported: list[bytes] = []
        left = MAX_REPORTED_BYTES
        for path in sorted(found)[:MAX_REPORTED]:
            name = os.fsencode(path[start:])
            left -= len(name)
            if left < 0:
                break
            reported.append(name)
        return reported

    def _look(self, folder: str) -> list[str] | None:
        """The files that are new in folder and in folders that are new below it; None past the bounds."""
        try:
            changed = os.lstat(folder).st_mtime_ns
            before, known = self.folders.get(folder, (-1, set()))
            if before == changed:
                return []
            entries = list(os.scandir(folder))
        except OSError:
            self.names -= len(self.folders.pop(folder, (0, set()))[1])
            return []  # removed, or closed to us: nothing in it is ours to report
        names = {entry.name for entry in entries}
        self.names += len(names) - len(known)
        self.folders[folder] = (changed, names)
        if len(self.folders) > MAX_FOLDERS or self.names > MAX_NAMES:
            self.watched = False
            self.folders.clear()
            return None
        found: list[str] = []
        for entry in entries:
            if entry.name in known:
                continue
            if not entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
            elif entry.name not in SKIPPED:
                below = self._look(entry.path)
                if below is None:
                    return None
                found += below
        return found
