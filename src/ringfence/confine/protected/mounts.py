"""Whether the mounts that protect a box's workspace are still there, and how they come back.

When a program of the host, or a box without the rule, puts another file in the place of a protected one, the kernel takes
the mount off in every namespace, without an error. It says so on the table of mounts: a poll of an open mountinfo reports
a change of its namespace (proc_pid_mountinfo(5)). Nothing in the box may mount, so a change is always of this kind.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ringfence.confine.plan import Step, View
from ringfence.confine.protected.gitconfig import parse
from ringfence.guest import kernel
from ringfence.values import replace

READ_ONLY_INSTEAD = -1  # guest/remount.py

MAX_REMEMBERED = 1000
MAX_CONTENT = 64 * 1024
"""Bytes of a protected file that are compared; of a larger one its size and its times are."""


COMPARED = ("protect", "private-file", "private-folder")
KINDS = (*COMPARED, "pin", "cover")
"""Steps of a plan that hold a path of a folder that others may change too."""
GONE = (0, 0)
NO_ANSWER = -2
TRIES = 5
MAX_NAMED = 10
MAX_LOOKED_AT = 200
"""Paths that are asked for their inode after a run that made names; of a box with more the table alone tells."""


class Loss(NamedTuple):
    """A path whose mount came off. held: nothing is open any more. said: what is known of it, in words."""

    step: Step
    held: bool
    said: str


class Mounts:
    """The mounts of one box. put_back does steps of a plan again in it, one number for each, or None where the box is gone."""

    def __init__(self, view: View, put_back: Callable[[bytes], list[int] | None]) -> None:
        steps = [step for step in view.steps if isinstance(step, Step) and step.kind in KINDS and step.identity != GONE]
        self._held = {step.target: step for step in steps}
        self._planned = frozenset(self._held)
        self._put_back = put_back
        self._table = -1
        self._content = {step.target: _remembered(step.target) for step in steps if step.kind in COMPARED}
        self.first = dict(self._content)

    @property
    def held(self) -> list[str]:
        """Paths that are held, as many as are looked at one by one."""
        return list(islice(self._held, MAX_LOOKED_AT))

    def open(self, pid: int) -> int:
        """Begin to watch the box with this first process; returns what to poll for POLLPRI, -1 where nothing is mounted.

        Raises OSError where the table cannot be read.
        """
        if self._held:
            self._table = os.open(f"/proc/{pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        return self._table

    def replaced(self) -> bool:
        """Whether another file has a name than the one that was mounted over.

        A mount goes with a folder that the host renames, and the table then tells of no change.
        """
        return any(_identity(path) != step.identity for path, step in islice(self._held.items(), MAX_LOOKED_AT))

    def check(self) -> list[Loss]:
        """Read the table, put back what came off, and say what that was. An empty list where everything is in place.

        What is gone from the host is told once; when it is there again it is put back.
        """
        points = self._points()
        self._follow(points)
        lost = [step for path, step in self._held.items() if path not in points]
        lost = [step for step in lost if step.identity != GONE or _identity(step.target) != GONE]
        answers: dict[str, int] = {}
        for _ in range(TRIES):
            # A rename is told of before it is over, and a copied folder before it is full: then a file is another one by the time
            # it is mounted over (ESTALE), or is only there after the first look.
            open_still = [step for step in lost if step.target not in points and answers.get(step.target) in (None, errno.ESTALE)]
            there = [step for step in map(_as_it_is, open_still) if step.identity != GONE]
            if not there:
                break
            done = self._put_back(View.of(there).wire)
            answers |= dict.fromkeys([step.target for step in there], NO_ANSWER)
            answers |= zip([step.target for step in there], done or [], strict=False)
            points = self._points()
        return [self._loss(step, answers.get(step.target), step.target in points) for step in lost]

    def _follow(self, points: set[str]) -> None:
        """A folder that a cover lies in may be moved: the cover goes with it and is held by its new path too. The path of the
        plan stays held, since something can be there again at any later time."""
        moved = [step for path, step in self._held.items() if step.kind == "cover" and path not in points]
        if moved:
            there = {_identity(path): path for path in points - self._held.keys()}
            for step in moved:
                if path := there.get(step.identity):
                    self._held[path] = replace(step, target=path)
                    if _identity(step.target) != GONE:
                        continue
                    if step.target in self._planned:
                        self._held[step.target] = replace(step, identity=GONE)
                    else:
                        del self._held[step.target]

    def _loss(self, step: Step, answer: int | None, back: bool) -> Loss:
        path, compared = step.target, step.kind in COMPARED
        current = self._held[path] = _as_it_is(step) if back or answer is not None else replace(step, identity=GONE)
        if current.identity == GONE:
            return Loss(current, True, "it is gone from the host")  # or was, a moment ago: once it is there it is looked at again
        before, now = self._content.get(path), _content(path) if compared else None
        if compared:
            self._content[path] = now
        if not back:
            why = os.strerror(answer) if answer and answer > 0 else "the box does not answer"
            return Loss(step, False, f"it could not be put back: {why}")
        said = "put back" if answer != READ_ONLY_INSTEAD else "put back as read-only, since the box has no copy of it any more"
        if compared:
            said += "; the host's content is as before" if now == before else f"; the host's content has changed{_how(before, now)}"
        return Loss(step, True, said)

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
        return GONE
    return found.st_dev, found.st_ino


def _as_it_is(step: Step) -> Step:
    """The same with the file that has the name now."""
    return replace(step, identity=_identity(step.target))


def _how(before: object, now: object) -> str:
    """What is new in a protected file or folder, as far as it says more than that something is."""
    if isinstance(before, list) and isinstance(now, list):
        names = sorted({entry[0] for entry in now} - {entry[0] for entry in before})
        return f": new in it {', '.join(map(repr, names[:MAX_NAMED]))}" if names else ""
    if not isinstance(now, bytes):
        return ""
    try:
        had = set(parse(os.fsdecode(before))) if isinstance(before, bytes) else set()
        keys = dict.fromkeys(key for key, value in parse(os.fsdecode(now)) if (key, value) not in had)
    except (ValueError, IndexError, RuntimeError):
        return ""
    return f": it now sets {', '.join(map(repr, list(keys)[:MAX_NAMED]))}" if keys else ""


_contents: dict[str, tuple[object, object]] = {}


def _remembered(path: str) -> object:
    """_content(), not read again where the file is as it was when another box was made over it."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    known = _contents.get(path)
    if known is not None and known[0] == signature:
        return known[1]
    content = _content(path)
    if len(_contents) >= MAX_REMEMBERED:
        _contents.clear()
    _contents[path] = (signature, content)
    return content


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
