"""Reads one file of settings, if it can be trusted to be the user's or the system's."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ringfence.policy.links import LinkOfABox, real_path
from ringfence.policy.patterns import within

MAX_BYTES = 256 * 1024


class Unread(Exception):
    """A file that is there and is not read; its message says why."""


def read(path: str, roots: Sequence[str]) -> str | None:
    """The text of a file, None where there is none. roots: folders that boxes can write, by their real paths.

    Raises Unread for what is no regular file of one name in UTF-8, belongs to another user, can be written by everybody, or lies in
    or behind a folder that a box can write. It is judged by what was opened.
    """
    try:
        real = real_path(path, roots)
    except LinkOfABox as error:
        raise Unread(str(error)) from None
    except OSError:
        return None
    try:
        # Nothing that is not a regular file is waited for or acted on (open(2)).
        opened = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise Unread(f"it cannot be opened: {error.strerror}") from None
    try:
        _refuse(os.fstat(opened), os.readlink(f"/proc/self/fd/{opened}"), roots)
        with open(opened, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unread(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(opened)
    if len(data) > MAX_BYTES:
        raise Unread(f"it has more than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unread("it is not UTF-8") from None


def _refuse(found: os.stat_result, real: str, roots: Sequence[str]) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unread("it is no regular file")
    if any(within(real, os.path.realpath(root)) for root in roots):
        raise Unread("it is in a folder that the box has")
    if found.st_nlink != 1:
        raise Unread("it has a second name, by which others may write it")
    if found.st_uid not in (0, os.geteuid()):
        raise Unread("it belongs to another user")
    if found.st_mode & stat.S_IWOTH:
        raise Unread("everybody may write it")
