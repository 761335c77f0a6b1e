"""Take a planted repository away, in a folder that a hostile box may be changing at the same time.

Every step is relative to the descriptor of a folder that was opened without following a link, so a name that is exchanged
for a link meanwhile leads nowhere else: what is removed is what hangs below the folder that was looked at. Folders inside
are moved up before they are emptied, so the depth of a tree costs neither stack nor descriptors. A caller that has more
rights than the box empties only folders that belong to the box's owner: the box could have given the name to another's.
"""

from __future__ import annotations

import os
import stat
import time

from ringfence.guest import kernel

MAX_SECONDS = 10.0
"""What a removal may take, with a box that fills the folder at the same time."""
LAYOUT = (
    "HEAD", "commondir", "config", "config.worktree", "hooks", "index", "objects", "refs", "packed-refs", "description",
    "info", "logs", "branches", "modules", "worktrees", "shallow", "FETCH_HEAD", "ORIG_HEAD",
)  # fmt: skip
"""What git itself keeps in a repository (gitrepository-layout(5)); HEAD first, since without it git takes it for none."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def remove(root: str, path: str, identity: tuple[int, int], *, layout_only: bool, owner: int | None) -> None:
    """Remove the entry at path below root if it is the file of identity; with layout_only only what git keeps in it.

    owner: whose folders alone may be emptied, or None where the caller may do no more than the box. Raises OSError where it
    could not be removed whole; HEAD goes first, so that what is left is no repository.
    """
    top = kernel.open_path(os.fsencode(root), follow=False, flags=_FOLDER)
    try:
        parent = kernel.open_beneath(top, os.fsencode(os.path.dirname(path) or "."), _FOLDER)
    finally:
        os.close(top)
    name = os.path.basename(path) or "."
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if (found.st_dev, found.st_ino) != identity:
            raise FileNotFoundError(2, "it was exchanged")
        if stat.S_ISDIR(found.st_mode):
            Removal(owner).folder(parent, name, identity, layout_only)
        else:
            os.unlink(name, dir_fd=parent)
    finally:
        os.close(parent)


class Removal:
    """One removal: its bounds."""

    def __init__(self, owner: int | None) -> None:
        self.owner, self.until = owner, time.monotonic() + MAX_SECONDS

    def folder(self, parent: int, name: str, identity: tuple[int, int], layout_only: bool) -> None:
        folder = self.open(parent, name)
        try:
            opened = os.fstat(folder)
            if (opened.st_dev, opened.st_ino) != identity:
                raise FileNotFoundError(2, "it was exchanged")
            for part in LAYOUT:
                self.entry(folder, part)
            if not layout_only:
                self.empty(folder)
        finally:
            os.close(folder)
        if name != ".":
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:
                if not layout_only:
                    raise

    def entry(self, folder: int, name: str) -> None:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            inner = self.open(folder, name)
            try:
                self.empty(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)

    def empty(self, top: int) -> None:
        """Remove everything in a folder. A folder in it gives up its folders to the top, and is then empty."""
        moved = 0
        while names := os.listdir(top):
            for name in names:
                if time.monotonic() > self.until:
                    raise TimeoutError(110, "it was filled faster than it was emptied")
                try:
                    os.unlink(name, dir_fd=top)
                    continue
                except FileNotFoundError:
                    continue
                except (IsADirectoryError, PermissionError):
                    inner = self.open(top, name)
                try:
                    for each in os.listdir(inner):
                        try:
                            os.unlink(each, dir_fd=inner)
                        except (IsADirectoryError, PermissionError):
                            os.close(self.open(inner, each))  # moving a folder takes the right to write it
                            moved += 1
                            os.rename(each, f"moved-{moved}-{time.monotonic_ns():x}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)

    def open(self, parent: int, name: str) -> int:
        """A folder to empty. One that its own owner may not open or change is opened up first, by descriptor."""
        known = os.open(name, kernel.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(known)
            if self.owner is not None and found.st_uid != self.owner:
                raise PermissionError(1, f"a folder in it belongs to another, uid {found.st_uid}")
            if found.st_mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{known}", 0o700)
            return os.open(f"/proc/self/fd/{known}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(known)
