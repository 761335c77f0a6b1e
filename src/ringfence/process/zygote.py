"""The outside of the zygote: one small interpreter for each process that uses ringfence, started at the first box."""

from __future__ import annotations

import _socket
import atexit
import os
import sys
import threading
from collections.abc import Sequence

from ringfence.errors import HostError, SandboxLostError
from ringfence.guest import wire


class Zygote:
    """A running zygote. Requests are single packets, so threads need no lock; answers come on each request's own socket."""

    def __init__(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        program = os.path.join(os.path.dirname(wire.__file__), "zygote.py")
        if not sys.executable:
            raise HostError("this program does not say which Python runs it (sys.executable is empty).")
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        try:
            # -OO and no_debug_ranges: what the zygote has in memory is copied page by page into every box.
            # setsid: a Ctrl-C in the caller's terminal must not end the boxes before the caller decides.
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-OO", "-X", "no_debug_ranges", program],
                {},
                file_actions=actions,
                setsid=True,
            )
        except OSError as error:
            ours.close()
            raise HostError(f"{sys.executable} cannot be started: {error.strerror}.", errno=error.errno or 0) from None
        finally:
            theirs.close()
        self.socket = ours
        self._removed: Sequence[str] = ()

    def send(self, request: dict[str, object], descriptors: list[int]) -> None:
        """Raises SandboxLostError when the zygote is gone."""
        try:
            wire.send(self.socket, request, descriptors)
        except OSError:
            raise SandboxLostError("the process that makes boxes has died.") from None

    def remove_at_end(self, prefixes: Sequence[str]) -> None:
        """Have folders that begin so removed when this process is gone, however it ends: its control groups."""
        if prefixes and prefixes != self._removed:
            self._removed = prefixes
            self.send({"op": "groups", "prefixes": list(prefixes)}, [])

    def close(self) -> None:
        """End every box and the zygote, and reap it."""
        self.socket.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # the caller collects all its children itself

    def alive(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return True  # collected by someone else, or still there: the next send tells


_lock = threading.Lock()
_current: Zygote | None = None


def current() -> Zygote:
    """The zygote of this process; a new one where there is none or where it died."""
    global _current
    with _lock:
        if _current is None or not _current.alive():
            if _current is not None:
                _current.socket.close()
            _current = Zygote()
        return _current


def warm_up() -> None:
    """Start ahead of the first box what makes boxes: it takes as long as an interpreter, and the caller need not wait.

    Raises HostError where no process can be started. Safe to call again. Not promised: that a box can be made.
    """
    current()


def shut_down() -> None:
    """End the zygote of this process with all its boxes; the next box starts another."""
    global _current
    with _lock:
        ended, _current = _current, None
    if ended is not None:
        ended.close()


def _forget() -> None:
    # In a fork of the caller: its copy of the socket would keep the boxes alive after the caller's death.
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.socket.close()
        _current = None


os.register_at_fork(after_in_child=_forget)
atexit.register(shut_down)
