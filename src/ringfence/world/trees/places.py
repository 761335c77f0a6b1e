"""The caller's paths, opened so that no link which a box may have made is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ringfence import errors

MAX_LINKS = 40
"""Links on the way to one path, as the kernel follows them (path_resolution(7))."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """A name in an open folder."""

    def __init__(self, folder: int, name: str) -> None:
        self.folder, self.name = folder, name

    def close(self) -> None:
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1


def find(path: str, shared: Sequence[str], *, follow: bool) -> Place:
    """Where a path of the caller's leads. Below the folders that a box shares no link is followed, the last name only with follow.

    Raises OutsideError for a link in such a folder, PathNotFoundError, NotAFolderError.
    """
    left = [part for part in os.path.abspath(path).split("/") if part]
    folder = os.open("/", _FOLDER)
    links = 0
    try:
        while left:
            part = left.pop(0)
            if part == "..":
                folder = _replace(folder, os.open("..", _FOLDER, dir_fd=folder))
                continue
            target = _link(folder, part) if left or follow else None
            if target is None:
                if not left:
                    return Place(folder, part)
                folder = _replace(folder, os.open(part, _FOLDER, dir_fd=folder))
                continue
            links += 1
            if links > MAX_LINKS or _is_shared(folder, shared):
                raise errors.OutsideError(f"{path!r} goes through the link {part!r}, which a box may have made.")
            if target.startswith("/"):
                folder = _replace(folder, os.open("/", _FOLDER))
            left = [each for each in target.split("/") if each not in ("", ".")] + left
        return Place(folder, ".")
    except OSError as error:
        os.close(folder)
        if isinstance(error, errors.RingfenceError):
            raise
        raise of_caller(error, path) from None


def _replace(folder: int, by: int) -> int:
    os.close(folder)
    return by


def _link(folder: int, name: str) -> str | None:
    if not stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
        return None
    return os.readlink(name, dir_fd=folder)


def _is_shared(folder: int, shared: Sequence[str]) -> bool:
    real = os.readlink(f"/proc/self/fd/{folder}")
    return any(real == each or real.startswith(each.rstrip("/") + "/") for each in shared)


def of_caller(error: OSError, path: str) -> errors.RingfenceError:
    """The error for what the caller's own system refused."""
    if isinstance(error, FileNotFoundError):
        return errors.PathNotFoundError(f"{path!r} is not there.", hint="Name a path of the caller's files.")
    if isinstance(error, NotADirectoryError):
        return errors.NotAFolderError(f"{path!r} goes through something that is no folder.")
    if isinstance(error, FileExistsError):
        return errors.PathExistsError(f"{path!r} is there already.")
    return errors.HostError(f"{path!r} cannot be worked on: {error.strerror}.", errno=error.errno or 0)
