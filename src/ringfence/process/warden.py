"""The outside of the warden: one process for each that uses ringfence, started at the first box whose caps must be watched."""

from __future__ import annotations

import _socket
import os
import select
import threading
from collections.abc import Mapping

from ringfence.errors import SandboxLostError
from ringfence.guest import wire
from ringfence.process import zygote

DIED = "the process that watches its caps has died"

Watchers = Mapping[str, Mapping[str, object]]
"""Who watches a box: each watcher by its name in guest/warden/loop.py, with its settings."""


class Warden:
    """A warden, running once start() was called. It is never waited for: where it could not be started, its socket is closed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.zygote = zygote.current()
        self.socket, self._theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)

    def start(self) -> None:
        """Have it forked, after the box that needs it first was asked for. Safe to call again. Raises SandboxLostError."""
        with _lock:
            if self._theirs.fileno() >= 0:
                try:
                    self.zygote.send({"op": "warden", "number": self.number}, [self._theirs.fileno()])
                finally:
                    self._theirs.close()

    def close(self) -> None:
        self.socket.close()
        self._theirs.close()

    def watch(self, pid: int, watchers: Watchers, given: Mapping[str, int]) -> None:
        """Give it a box: its guest's pid, who is to watch it, and descriptors by their names. Raises SandboxLostError."""
        request = {
            "op": "watch",
            "pid": pid,
            "watchers": {name: dict(each) for name, each in watchers.items()},
            "given": list(given),
        }
        try:
            wire.send(self.socket, request, list(given.values()))
        except OSError:
            raise SandboxLostError(f"the box was lost: {DIED}.") from None

    def known(self, pid: int, cap: str) -> None:
        """Tell it of a cap that was seen met here, at the end of a run: it is not to take the next run for the one that did it."""
        try:
            wire.send(self.socket, {"op": "known", "pid": pid, "cap": cap})
        except OSError:
            pass  # then the box is ended too

    def alive(self) -> bool:
        if self.zygote is not zygote.current():
            return False  # it ends with the zygote that forked it
        poll = select.poll()
        poll.register(self.socket.fileno(), 0)
        return not poll.poll(0)


_lock = threading.Lock()
_current: Warden | None = None
_number = 0


def current() -> Warden:
    """The warden of this process, which may still have to be started; a new one where there is none or where it died."""
    global _current, _number
    with _lock:
        if _current is None or not _current.alive():
            if _current is not None:
                _current.close()
                _current = None
            _number += 1
            _current = Warden(_number)
        return _current


def _forget() -> None:
    # In a fork of the caller: its copy of the socket would keep the warden after the caller's death.
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.close()
        _current = None


os.register_at_fork(after_in_child=_forget)
