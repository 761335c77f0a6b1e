"""Which folders of a walk have changed since it, as the kernel tells: asking each of them is most of what a box over a large
folder costs.

Only on file systems that nothing but this kernel writes: a change that another machine makes is told to nobody here. What a
mount hides or shows is not told either, so another table of mounts means that every folder is asked.
"""

from __future__ import annotations

import ctypes
import os
import select

from ringfence.policy.inotify import CONTENT, Queue

LOCAL = frozenset((0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994))
"""ext2 to ext4, xfs, btrfs, f2fs, tmpfs: f_type of statfs(2), linux/magic.h."""
SHARE = 8
"""One walk takes no more than this part of the watches that the kernel gives a user: editors need them too."""
MOST = "/proc/sys/fs/inotify/max_user_watches"

_libc = ctypes.CDLL(None, use_errno=True)


class NotTold(Exception):
    """The kernel does not tell of every change of these folders: they must be asked."""


class _Source:
    """What the kernel tells this process of folders, and of mounts that come and go."""

    def __init__(self) -> None:
        with open(MOST) as file:
            self.most = int(file.read()) // SHARE
        self.queue = Queue()
        self._mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._mounts, select.POLLPRI)

    def dispatch(self) -> None:
        if self._poll.poll(0):
            self.queue.forget_all()
        self.queue.dispatch()

    def close(self) -> None:
        self.queue.close()
        os.close(self._mounts)


_source: _Source | None = None


def _forget() -> None:
    """In a fork of this process: the queue is the parent's, and reading it would take the changes away."""
    global _source
    if _source is not None:
        _source.close()
        _source = None


os.register_at_fork(after_in_child=_forget)


class Watched:
    """The folders of one walk. Raises NotTold where they are too many or lie on a file system that others may write."""

    def __init__(self, folders: int) -> None:
        global _source
        if _source is None:
            try:
                _source = _Source()
            except (OSError, ValueError):
                raise NotTold from None
        self._told_by = _source
        self._changed: set[str] | None = set()
        self._local: set[int] = set()
        if folders + len(_source.queue) > _source.most:
            raise NotTold

    def add(self, descriptor: int, path: str, device: int) -> None:
        """Watch the folder that a descriptor is open on. Before it is read, or asked: what comes after is told."""
        queue = self._told_by.queue
        if device not in self._local:
            if _file_system(descriptor) not in LOCAL:
                raise NotTold
            self._local.add(device)
        try:
            queue.watch(descriptor, self, path, CONTENT)
        except OSError:
            raise NotTold from None
        if len(queue) > self._told_by.most:
            raise NotTold

    def changed(self) -> set[str] | None:
        """The paths of the folders that may have changed since the last call; None where any may have."""
        with self._told_by.queue.guard:
            self._told_by.dispatch()
            told, self._changed = self._changed, set()
        return told

    def notice(self, path: str, mask: int, name: str) -> None:
        if self._changed is not None:
            self._changed.add(path)

    def forget_all(self) -> None:
        self._changed = None

    def close(self) -> None:
        if self._told_by is _source:  # else this is a fork of the process that watches
            self._told_by.queue.leave(self)


def _file_system(descriptor: int) -> int:
    buffer = (ctypes.c_long * 32)()  # struct statfs begins with f_type and has 120 bytes, asm-generic/statfs.h
    return buffer[0] if _libc.fstatfs(descriptor, ctypes.byref(buffer)) == 0 else 0
