"""Programs: source text run in a fresh interpreter state, from the second on by forking a template.

The template is an interpreter of its own, exec'd inside the box from the one that the workspace uses. Its first program is
not worth a template: a box that runs one program execs the interpreter once and runs it there. What the template is
sent are descriptors alone; the fork reads the request, so that nothing of one program is in the memory of the next.
"""

import _socket
import errno
import os
import select
import signal

from ringfence.guest import wire
from ringfence.guest.room import FIRST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringfence.guest.guest import Guest, Run

MAX_REPORT = 128
SIGN = b".began"
"""How the pipe beside a program's file ends by which the template says that it runs (template.py writes to it)."""


class Programs:
    """The guest's side of the template."""

    def __init__(self, guest: "Guest", plan: "dict[str, Any]") -> None:
        self.guest = guest
        self.interpreters: list[bytes] = plan["interpreters"]
        self.runner: bytes = plan["runner"]
        self.compiled_for: bytes = plan["compiled_for"]
        self.preload: list[bytes] = plan["preload"]
        self.pid = 0
        self.descriptor = -1
        self.socket: _socket.socket | None = None
        self.ran_one = bool(self.preload)
        self.waiting: list[Run] = []  # sent to the template, pid not known yet

    def start(self, request: "dict[str, Any]", stdio: "list[int]", run: "Run") -> int:
        """Start one program; its pid, or 0 when the template will report it."""
        path = self.guest.write_script(run, request["code"], b".py")
        cwd, env = request.get("cwd", os.fsencode(self.guest.workdir)), request.get("env", {})
        assert isinstance(cwd, bytes) and isinstance(env, dict)
        if not self.ran_one:
            self.ran_one = True
            sign = path + SIGN
            os.mkfifo(sign, 0o600)
            run.scripts.append(os.fsdecode(sign))
            run.sign = os.open(sign, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return self.guest.spawn([*self.command(), b"once", path], env, cwd, stdio)
        if self.socket is None:
            self._start_template()
        assert self.socket is not None
        carrier = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            limits = [b"%d" % self.guest.limit(name) for name in (b"cpu", b"open_files", b"file_size", b"processes")]
            limits.append(FIRST if self.guest.room.shielded else b"")
            changes = [key.encode() + b"=" + value for key, value in env.items()]
            os.write(carrier, b"\0".join([path, cwd, *limits, *changes]))
            wire.send(self.socket, b"", [carrier, *stdio, *self.guest.room.commands])
        except OSError as error:
            self.abandon()
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            self.guest.fail(run, None)  # it ended before it took anything
            return 0
        finally:
            os.close(carrier)
        self.waiting.append(run)
        return 0

    def has_begun(self, run: "Run") -> bool:
        """Whether the template gave its sign before the program of a run began, which nobody can take back."""
        try:
            return bool(os.read(run.sign, 1))
        except BlockingIOError:
            return False

    def command(self) -> "list[bytes]":
        """The first of the plan's interpreters that can be run inside, and the template in the form that suits it."""
        path = self.interpreters[-1]
        for candidate in self.interpreters:
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                path = candidate
                break
        return [path, self.runner + b"c" if path == self.compiled_for else self.runner]

    def _start_template(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        null = self.guest.null
        argv = [*self.command(), b"serve", *self.preload]
        workdir = os.fsencode(self.guest.workdir)
        try:
            self.pid = self.guest.spawn(argv, {}, workdir, [null, null, null, theirs.fileno()], limited=False)
        finally:
            theirs.close()
        self.guest.watch.template(self.pid)
        ours.setblocking(False)
        self.socket, self.descriptor = ours, ours.fileno()
        self.guest.poll.register(self.descriptor, select.EPOLLIN)

    def hear(self) -> None:
        """Take what the template reports: "S pid" when a program began, "E pid status user system" when it ended."""
        while self.socket is not None:
            try:
                report = self.socket.recv(MAX_REPORT)
            except BlockingIOError:
                return
            except OSError:
                report = b""
            fields = report.split()
            if not fields or not all(field.isdigit() for field in fields[1:]):
                self.abandon()
                return
            numbers = [int(field) for field in fields[1:]]
            if fields[0] == b"S" and len(numbers) == 1 and numbers[0] > 1 and self.waiting:
                self.guest.started(self.waiting.pop(0), numbers[0])
            elif fields[0] == b"E" and len(numbers) == 4 and numbers[0] in self.guest.by_pid:
                pid, status, user, system = numbers
                self.guest.ended(self.guest.by_pid[pid], status, user / 1e6, system / 1e6)
                self.guest.take_stock()

    def settle(self, run: "Run", seconds: float) -> None:
        """Give the template a moment to report the end of a run that was killed; past it the template ends as well."""
        if self.socket is not None and run.pid in self.guest.by_pid and not run.last:
            os.kill(self.pid, signal.SIGCONT)
            select.select([self.descriptor], [], [], seconds)
            self.hear()
            if run.pid in self.guest.by_pid and not run.last:
                self.abandon()

    def abandon(self) -> None:
        """End the template. Its programs become children of the guest, which then hears of their ends itself."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.lost()

    def lost(self) -> None:
        """The template has ended: forget it, and fail what it had not started."""
        if self.socket is not None:
            self.guest.poll.unregister(self.descriptor)
            self.socket.close()
        self.pid, self.descriptor, self.socket = 0, -1, None
        waiting, self.waiting = self.waiting, []
        for run in waiting:
            self.guest.fail(run, None)
        self.guest.reap()
