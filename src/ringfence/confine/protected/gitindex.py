"""The gitlinks of a git index: entries that make `git status` start git again in a folder below (gitformat-index(5)).

Read here, since asking git would run what the repository's settings name. The file is the box's to write: nothing in it is
believed, sizes are bounded, and what cannot be read is said instead of being taken for an index without gitlinks.
"""

from __future__ import annotations

import os
import stat

from ringfence.guest import kernel

MAX_BYTES = 64 << 20
"""A larger index is not read; this is one of some 600,000 files."""
MAX_NAME = 4096  # PATH_MAX: no file of a longer name can be where the entry says
MAX_CONFIG = 1 << 20

UNREADABLE = "?"
"""Stands for the gitlinks that an index may have that could not be read."""

_MODE = b"\0\0\xe0\0"  # 0160000 as the index holds it
_NAME_BITS, _EXTENDED = 0x0FFF, 0x4000


class BadIndexError(ValueError):
    """The bytes are not an index that git would read."""


def gitlinks_of(root: int, directory: str) -> frozenset[str]:
    """Paths of the gitlinks in the index of a git directory below root, with those of an index that it shares.

    Contains UNREADABLE where there is an index that could not be read whole. Never raises for what the files hold.
    """
    try:
        folder = kernel.open_beneath(root, os.fsencode(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return frozenset()  # gone, and its index with it
    try:
        names = [name for name in os.listdir(folder) if name == "index" or name.startswith("sharedindex.")]
        settings = (_content(folder, "config", MAX_CONFIG) or b"").lower().translate(None, b' \t"')
        width = 32 if b"\nobjectformat=sha256" in settings else 20
        found: set[str] = set()
        for name in names:
            found |= _gitlinks(_content(folder, name, MAX_BYTES), width)
        return frozenset(found)
    except OSError:
        return frozenset({UNREADABLE})
    finally:
        os.close(folder)


def _content(folder: int, name: str, most: int) -> bytes | None:
    """What a regular file holds; None for what is none, is larger, or cannot be opened."""
    try:
        # A link is followed, as git does: what it leads to is only parsed. A device or a FIFO is not opened.
        known = os.open(name, kernel.O_PATH | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(known)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with open(f"/proc/self/fd/{known}", "rb") as file:
            content = file.read(most + 1)
        return content if len(content) <= most else None
    except OSError:
        return None
    finally:
        os.close(known)


def _gitlinks(content: bytes | None, width: int) -> set[str]:
    if content is None:
        return {UNREADABLE}
    if _MODE not in content:  # at the speed of memory, for nearly every index there is
        return set()
    try:
        return parse(content, width)
    except BadIndexError:
        return {UNREADABLE}


def parse(content: bytes, width: int = 20) -> set[str]:
    """The gitlinks of an index whose object names have width bytes. Raises BadIndexError.

    An entry of a split index that only replaces one of the shared index has no name of its own: UNREADABLE stands for it.
    """
    version = int.from_bytes(content[4:8], "big")
    if content[:4] != b"DIRC" or version not in (2, 3, 4):
        raise BadIndexError("not an index of version 2, 3 or 4")
    count = int.from_bytes(content[8:12], "big")
    fixed = 40 + width + 2
    at, name = 12, b""
    found: set[str] = set()
    for _ in range(count):
        head = content[at : at + fixed]
        if len(head) < fixed:
            raise BadIndexError("an entry that is cut short")
        flags = int.from_bytes(head[-2:], "big")
        start = at + fixed + (2 if flags & _EXTENDED and version >= 3 else 0)
        if version == 4:
            name, at = _compressed(content, start, name)
        else:
            name, at = _padded(content, at, start, flags & _NAME_BITS)
        if head[24:28] == _MODE:
            found.add(os.fsdecode(name) if name else UNREADABLE)
    return found


def _padded(content: bytes, entry: int, start: int, length: int) -> tuple[bytes, int]:
    """A whole name, and where the next entry begins: entries are padded with NUL to a multiple of eight."""
    end = start + length if length < _NAME_BITS else content.find(b"\0", start)
    if end < 0 or end >= len(content) or content[end] != 0:
        raise BadIndexError("a name without its end")
    return content[start:end], entry + ((end - entry) // 8 + 1) * 8


def _compressed(content: bytes, at: int, previous: bytes) -> tuple[bytes, int]:
    """A name as a number of bytes to take off the one before, and what follows them."""
    drop, at = _varint(content, at)
    end = content.find(b"\0", at)
    if not 0 <= end - at <= MAX_NAME or drop > len(previous):
        raise BadIndexError("a name that builds on nothing, or has no end")
    name = previous[: len(previous) - drop] + content[at:end]
    if len(name) > MAX_NAME:  # each name may repeat the one before: only this bounds them
        raise BadIndexError("a name longer than a path")
    return name, end + 1


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Git's offset encoding (pack-format(5), OFS_DELTA)."""
    value = -1
    for byte in content[at : at + 10]:
        at += 1
        value = (value + 1 << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, at
    raise BadIndexError("a number without its end")
