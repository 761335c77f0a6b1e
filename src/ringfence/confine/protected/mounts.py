"""Whether the mounts that protect a box's workspace are still there, and how they come back.

When a program of the host, or a box without the rule, puts another file in the place of a protected one, the kernel takes
the mount off in every namespace, without an error. It says so on the table of mounts: a poll of an open mountinfo reports
a change of its namespace (proc_pid_mountinfo(5)). Nothing in the box may mount, so a change is always of this kind.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ringfence.confine.plan import View
from ringfence.confine.protected.plan import Protected, steps_for
from ringfence.guest import kernel

READ_ONLY_INSTEAD = -1  # guest/remount.py

MAX_CONTENT = 64 * 1024
"""Bytes of a protected file that are compared; of a larger one its size and its times are."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A protected path whose mount came off. back: whether it is held again. said: what is known of it, in words."""

    protected: Protected
    back: bool
    said: str


class Mounts:
    """The mounts of one box. put_back does steps of a plan again in it, one number for each, or None where the box is gone."""

    def __init__(self, protected: Iterable[Protected], put_back: Callable[[bytes], list[int] | None]) -> None:
        self._held = {each.path: each for each in protected if each.how != "watch"}
        self._put_back = put_back
        self._table = -1
        self._poll = select.poll()
        self._content = {path: _content(path) for path, each in self._held.items() if each.how != "pin"}
        self._missing: set[str] = set()

    def open(self, pid: int) -> int:
        """Begin to watch the box with this first process; returns what to poll for POLLPRI, -1 where nothing is mounted.

        Raises OSError where the process is gone.
        """
        if self._held:
            self._table = os.open(f"/proc/{pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._table, select.POLLPRI)
        return self._table

    def replaced(self) -> bool:
        """Whether another file has a protected name than the one that was mounted over.

        A mount goes with a folder that the host renames, and the table then tells of no change.
        """
        return any(each.inode and _identity(path) != (each.device, each.inode) for path, each in self._held.items())

    def check(self) -> list[Loss]:
        """Read the table, put back what came off, and say what that was. An empty list where everything is in place."""
        points = self._points()
        lost = [each for path, each in self._held.items() if path not in points]
        if not lost:
            self._missing.clear()
            return []
        there = [each for each in (_as_it_is(each) for each in lost) if each is not None]
        steps = [step for step in steps_for(there) if step.kind != "private"]
        done = self._put_back(View.of(steps).wire) if steps else []
        answers = dict(zip([step.target for step in steps], done or [], strict=False))
        points = self._points()
        losses = [self._loss(each, answers.get(each.path), each.path in points) for each in lost]
        self._missing = {loss.protected.path for loss in losses if not loss.back}
        return losses

    def _loss(self, each: Protected, answer: int | None, back: bool) -> Loss:
        before = self._content.get(each.path)
        now = _content(each.path) if each.how != "pin" else None
        if each.how != "pin":
            self._content[each.path] = now
        self._held[each.path] = _as_it_is(each) or each
        if not os.path.lexists(each.path):
            said = "it is gone from the host"
        elif back:
            said = "put back" if answer != READ_ONLY_INSTEAD else "put back as read-only, since the box has no copy of it any more"
        else:
            said = f"it could not be put back: {os.strerror(answer) if answer and answer > 0 else 'the box does not answer'}"
        if each.how != "pin":
            said += "; the host's content is as before" if now == before else "; the host's content has changed"
        return Loss(each, back, said)

    def _points(self) -> set[str]:
        """The mount points of the box (proc_pid_mountinfo(5): field 5, with octal escapes)."""
        os.lseek(self._table, 0, os.SEEK_SET)
        table = b""
        while chunk := os.read(self._table, 65536):  # the kernel gives a page at a time
            table += chunk
        points = [line.split(b" ", 5)[4] for line in table.splitlines()]
        return {os.fsdecode(_unescaped(point)) for point in points}

    def close(self) -> None:
        if self._table >= 0:
            os.close(self._table)
        self._table = -1


def _unescaped(point: bytes) -> bytes:
    return point.decode("unicode_escape").encode("latin-1") if b"\\" in point else point


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _as_it_is(each: Protected) -> Protected | None:
    """The same with the file that has the name now; None where there is none."""
    device, inode = _identity(each.path)
    return replace(each, device=device, inode=inode) if inode else None


def _content(path: str) -> object:
    """What a protected path holds, to be compared: bytes of a file, names and times of a folder; None where it cannot be read."""
    try:
        descriptor = kernel.open_path(os.fsencode(path), follow=False, flags=os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_CONTENT:
            return os.read(descriptor, MAX_CONTENT)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                return sorted((entry.name, entry.inode(), entry.stat(follow_symlinks=False).st_mtime_ns) for entry in entries)
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        return None
    finally:
        os.close(descriptor)
