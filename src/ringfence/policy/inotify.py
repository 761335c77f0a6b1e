"""Changes of folders, as the kernel tells them (inotify(7)): one queue for this process, whatever boxes live in it.

A poll of the queue costs less than a microsecond, so a run that made no name costs nothing else. What the queue does not
tell: a write through a memory map, a change of mode, and what happens in a folder before its watch is there, so whoever
adds a watch looks at the folder after it.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from typing import Protocol

# sys/inotify.h
IN_NONBLOCK, IN_CLOEXEC = 0o4000, 0o2000000
IN_MODIFY, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF = 0x400, 0x800
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_EXCL_UNLINK, IN_ISDIR = 0x4000, 0x8000, 0x01000000, 0x04000000, 0x40000000
NAMES = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR
"""New names of a folder: one event for each."""
CONTENT = IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
"""Whatever can change which names a folder has, where it is, and who may read it."""

_HEADER = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len
_READ = 256 * 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]


class Inotify:
    """The queue and its watches. Raises OSError where the host has no instance or watch left (ENOSPC, EMFILE)."""

    def __init__(self) -> None:
        self.descriptor = _checked(_libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def watch(self, folder: int, mask: int) -> int:
        """Watch the folder that a descriptor is open on; its number is the same for the same folder."""
        return _checked(_libc.inotify_add_watch(self.descriptor, b"/proc/self/fd/%d" % folder, mask))

    def forget(self, number: int) -> None:
        _libc.inotify_rm_watch(self.descriptor, number)  # EINVAL: its folder is gone, and the watch with it

    def ready(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._poll.poll(0))

    def events(self) -> Iterator[tuple[int, int, str]]:
        """What happened since the last call: (number of the watch, mask, name)."""
        while self.ready():
            data = os.read(self.descriptor, _READ)
            at = 0
            while at < len(data):
                number, mask, _, size = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                yield number, mask, os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size

    def close(self) -> None:
        os.close(self.descriptor)


class Told(Protocol):
    """Who watches folders by a queue."""

    def notice(self, path: str, mask: int, name: str) -> None:
        """Something happened in the folder that is watched as path."""

    def forget_all(self) -> None:
        """Anything may have happened: events were lost."""


class Queue:
    """The changes of every watcher of this process, told apart by the number of the watch."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self.descriptor = self._inotify.descriptor
        self.stamp = 0  # another number whenever anything may have changed
        self.guard = threading.RLock()  # held while watchers are told
        self._watched: dict[int, list[tuple[Told, str]]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, folder: int, watcher: Told, path: str, mask: int = NAMES) -> None:
        with self.guard:
            number = self._inotify.watch(folder, mask)
            owners = self._watched.setdefault(number, [])
            if (watcher, path) not in owners:
                owners.append((watcher, path))

    def dispatch(self) -> None:
        """Tell the watchers what happened. Costs one poll where nothing did."""
        with self.guard:
            if not self._inotify.ready():
                return
            self.stamp += 1
            for number, mask, name in self._inotify.events():
                if mask & IN_Q_OVERFLOW:
                    self.forget_all()
                owners = self._watched.pop(number, []) if mask & IN_IGNORED else self._watched.get(number, [])
                for watcher, path in owners:
                    watcher.notice(path, mask, name)

    def forget_all(self) -> None:
        """Tell every watcher that anything may have happened."""
        with self.guard:
            for watcher in {watcher for owners in self._watched.values() for watcher, _ in owners}:
                watcher.forget_all()

    def leave(self, watcher: Told) -> None:
        """Drop the watches that only this one has."""
        with self.guard:
            for number, owners in list(self._watched.items()):
                left = [owner for owner in owners if owner[0] is not watcher]
                if left:
                    self._watched[number] = left
                else:
                    del self._watched[number]
                    self._inotify.forget(number)

    def close(self) -> None:
        self._inotify.close()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
