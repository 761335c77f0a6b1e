"""Starting a command: found as execvp(3) does, in a session of its own, under its limits, with its own descriptors only."""

import errno
import os
import resource
import signal

from ringfence.guest import terminal
from ringfence.guest.room import Room

LIMITS = (
    (b"cpu", resource.RLIMIT_CPU),
    (b"open_files", resource.RLIMIT_NOFILE),
    (b"file_size", resource.RLIMIT_FSIZE),
    (b"processes", resource.RLIMIT_NPROC),
)
RESERVE = 16
"""Processes that this one may have beyond what commands may: it must start, list and end also where they have taken all."""


def bound_processes(limits: "dict[bytes, int]") -> None:
    """Bound this process, and so what it starts before that has a limit of its own: a little above commands, or by the backstop."""
    wanted = limits[b"processes"] + RESERVE if b"processes" in limits else limits.get(b"backstop", 0)
    if wanted:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = wanted if hard < 0 else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


class StartError(Exception):
    """A command that could not be started: at which stage, with which path and errno."""

    def __init__(self, stage: str, path: bytes, number: int) -> None:
        super().__init__(stage)
        self.stage, self.path, self.errno = stage, path, number


class Start:
    """A command that is ready to be started, in any of the three ways."""

    __slots__ = ("argv", "environment", "limits", "path", "room")

    def __init__(
        self, path: bytes, argv: "list[bytes]", environment: "dict[bytes, bytes]", limits: "list[tuple[int, int]]", room: Room
    ) -> None:
        self.path, self.argv, self.environment, self.limits, self.room = path, argv, environment, limits, room

    def spawn(self, stdio: "list[int]") -> int:
        """By posix_spawn, which copies no memory and has no hook for limits; its pid.

        The soft limits are the child's from its first instruction; the hard ones follow right after, and a program that is
        quicker than this process may have raised its own by then.
        """
        before = [(which, resource.getrlimit(which)) for which, _ in self.limits]
        try:
            for (which, limit), (_, (_, most)) in zip(self.limits, before, strict=True):
                resource.setrlimit(which, (min(limit, most) if most >= 0 else limit, most))
            actions = [(os.POSIX_SPAWN_DUP2, source, at) for at, source in enumerate(stdio)]
            pid = self.room.within(
                lambda: os.posix_spawn(self.path, self.argv, self.environment, file_actions=actions, setsid=True, setsigmask=[])
            )
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            pid = 0  # under the lowered limit, or in the group, there is room for no process more
        finally:
            for which, value in before:
                resource.setrlimit(which, value)
        if not pid:
            return self.fork(stdio)
        for which, limit in self.limits:
            try:
                soft, _ = resource.prlimit(pid, which)
                resource.prlimit(pid, which, (min(soft, limit) if soft >= 0 else limit, _hard(which, limit)))
            except ProcessLookupError:
                break  # it has ended already
            except PermissionError:
                continue  # it has lowered its own hard limit below this one, and that must not be raised again
        return pid

    def fork(self, stdio: "list[int]") -> int:
        """By a fork that sets hard limits on itself before exec: a third slower, and exact; its pid."""
        told, tell = os.pipe()
        pid = self.room.ranked(os.fork)
        if pid == 0:
            try:
                os.setsid()
                for at, source in enumerate(stdio):
                    os.dup2(source, at)
                self._become()
            except OSError as error:
                os.write(tell, b"%d" % (error.errno or 0))
            finally:
                os._exit(127)
        os.close(tell)
        failure = os.read(told, 16)  # ends with exec, which closes the other end
        os.close(told)
        if failure:
            os.waitpid(pid, 0)
            raise OSError(int(failure), os.strerror(int(failure)))
        return pid

    def at_terminal(self, rows: int, columns: int) -> "tuple[int, int, int]":
        """At a terminal of its own: its keeper, its pid, the outer end of the terminal."""
        return self.room.ranked(lambda: terminal.start(rows, columns, self._become, self.room.move_to))

    def _become(self) -> None:
        self.room.join()
        for which, limit in self.limits:
            resource.setrlimit(which, (limit, _hard(which, limit)))
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(self.path, self.argv, self.environment)


def _hard(which: int, limit: int) -> int:
    # A second between the two: at the soft limit the kernel sends SIGXCPU, which tells more than the SIGKILL of the hard one.
    return limit + 1 if which == resource.RLIMIT_CPU else limit


def find(name: bytes, path: bytes) -> bytes:
    """The file that execvp(3) would run for name. Raises FileNotFoundError when nothing on PATH has it."""
    if b"/" in name:
        return name
    refused = b""
    for folder in path.split(b":") if name else ():
        candidate = (folder or b".") + b"/" + name
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            refused = refused or candidate
    if not refused:
        raise FileNotFoundError(errno.ENOENT, "not on PATH")
    return refused
