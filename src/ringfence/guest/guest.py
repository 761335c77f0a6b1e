"""The guest: first process of a box. Starts what it is asked to start, reaps everything, ends trees; trusted by nobody.

A request brings a lane: a channel (a SEQPACKET socket) and the writing ends of two pipes. On that channel the guest answers
once, with how the run ended, and takes signals for it; when the outside closes the channel before that, the run ends. Where
nothing but the guest can still hold the pipes then, both sides keep the lane, and the next request comes on its channel.
"""

import _socket
import os
import resource
import select
import signal
import time

from ringfence.guest import files, kernel, processes, trees, wire
from ringfence.guest.created import Created
from ringfence.guest.programs import Programs
from ringfence.guest.room import Room
from ringfence.guest.spawn import LIMITS, Start, StartError, bound_processes, find
from ringfence.guest.watch import Watch

MAX_RUN_DESCRIPTORS = 6
DISCARD_BYTES = 1 << 18
PATIENCE = 0.2
"""Seconds that the template has to report a program that was killed."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

TICKS = os.sysconf("SC_CLK_TCK")
NO_ROOM = Room([])


class Lane:
    """What a run is driven by: its channel, and the writing ends of its output, closed or kept with the answer."""

    __slots__ = ("channel", "output")

    def __init__(self, channel: "_socket.socket", output: "list[int]") -> None:
        self.channel, self.output = channel, output

    def close(self) -> None:
        self.let_go()
        self.channel.close()

    def let_go(self) -> None:
        for descriptor in self.output:
            os.close(descriptor)
        self.output = []


class Run:
    """A command that was started and has not ended."""

    __slots__ = (
        *("alone", "began", "cause", "command", "deadline", "earlier", "lane", "last", "names", "pid", "scripts"),
        *("sign", "shown", "since"),
    )

    def __init__(self, lane: Lane, deadline: int, earlier: "set[tuple[int, int]]") -> None:
        self.lane, self.deadline, self.earlier = lane, deadline, earlier
        self.pid = 0
        self.command = 0  # at a terminal: the command itself, where pid is its keeper
        self.shown: list[int] = []  # the outer end of that terminal, until it is handed out
        self.alone = False  # a fork of the guest, which starts nothing
        self.names = True  # it can bring new names into the workspace
        self.scripts: list[str] = []
        self.sign = -1  # of a program by an interpreter of its own: readable once that has come to it
        self.cause = b""
        self.last: tuple[int, float, float] | None = None  # how it ended, while the rest of its tree is being ended
        self.began = time.monotonic_ns()
        self.since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)


class Guest:
    """The loop of the box's first process."""

    def __init__(self, control: "_socket.socket", timer: int, watch: "_socket.socket", room: Room, plan: "dict[str, Any]") -> None:
        self.control, self.timer, self.watch, self.room = control, timer, Watch(self, watch), room
        self.environment: dict[bytes, bytes] = dict(plan["environment"])
        self.limits: dict[bytes, int] = {key.encode(): value for key, value in plan["limits"].items()}
        self.exact = bool(plan["exact"])
        self.workdir = os.fsdecode(plan["workdir"])
        self.private = os.fsdecode(plan["private"])
        self.is_init = os.getpid() == 1
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.by_pid: dict[int, Run] = {}
        self.by_channel: dict[int, Run] = {}
        self.idle: dict[int, Lane] = {}
        self.ending: Run | None = None
        self.left: set[tuple[int, int]] = set()  # processes, by pid and start, that were there when a run ended
        self.sessions: set[int] = set()  # of every run so far: none of their members is another run's orphan
        self.discarded: set[int] = set()
        self.created: Created | None = None
        self.poll = select.epoll()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        self.children = kernel.signal_descriptor(signal.SIGCHLD)
        self.programs = Programs(self, plan)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        bound_processes(self.limits)
        if b"file_size" in self.limits:
            # Inherited by all that is started: the call beyond the limit fails with EFBIG, and no signal comes (setrlimit(2)).
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for descriptor in (control.fileno(), self.children, watch.fileno()):
            self.poll.register(descriptor, select.EPOLLIN)

    def serve(self) -> None:
        """Until the outside closes the control socket."""
        control = self.control.fileno()
        while True:
            # Requests last: what one brings may have the number of what was closed in this turn, and be taken for it.
            for descriptor, _ in sorted(self.poll.poll(self._patience()), key=lambda event: event[0] == control):
                if descriptor == self.children:
                    os.read(self.children, 128 * 32)
                    self.reap()
                elif descriptor == control:
                    if not self._request():
                        return
                elif descriptor == self.watch.socket.fileno():
                    self.watch.hear()
                elif descriptor in self.by_channel:
                    self._signalled(self.by_channel[descriptor])
                elif descriptor in self.idle:
                    self._again(descriptor)
                elif descriptor in self.discarded:
                    self._discard(descriptor)
                elif descriptor == self.programs.descriptor:
                    self.programs.hear()
            now = time.monotonic_ns() if self.by_channel else 0
            for run in [run for run in self.by_channel.values() if run.deadline and run.deadline <= now and not run.cause]:
                self.end(run, b"deadline")

    def _patience(self) -> float:
        deadlines = [run.deadline for run in self.by_channel.values() if run.deadline and not run.cause]
        return max(0.0, (min(deadlines) - time.monotonic_ns()) / 1e9) if deadlines else -1

    def _rearm(self) -> None:
        """Set the zygote's timer by what really runs: the outside, stopped or busy, may not hear that a run has ended."""
        first = min((run.deadline for run in self.by_channel.values() if run.deadline), default=0)
        kernel.arm(self.timer, first + wire.GRACE_NS if first else 0)

    # Requests

    def _request(self) -> bool:
        packet, descriptors = wire.receive(self.control, MAX_RUN_DESCRIPTORS + 1)
        if not packet:
            return False
        request = wire.decode(wire.carried(packet, descriptors))
        assert isinstance(request, dict)
        if request["op"] == b"discard":
            for descriptor in descriptors:
                os.set_blocking(descriptor, False)
                self.discarded.add(descriptor)
                self.poll.register(descriptor, select.EPOLLIN)
            return True
        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptors[0])
        channel.setblocking(False)
        self.poll.register(channel.fileno(), select.EPOLLIN)
        self._begin(request, Lane(channel, descriptors[-2:]), descriptors[1:-2])
        return True

    def _again(self, descriptor: int) -> None:
        """The next request on a lane that was kept, or the end of the lane."""
        lane = self.idle.pop(descriptor)
        try:
            packet, descriptors = wire.receive(lane.channel, 2)
        except OSError:
            packet, descriptors = b"", []
        if packet:
            request = wire.decode(wire.carried(packet, descriptors))
            assert isinstance(request, dict)
            if request["op"] in (b"kill", b"signal"):
                self.idle[descriptor] = lane  # for the run before this one, which had ended when it was sent
            else:
                self._begin(request, lane, descriptors)
        else:
            self.poll.unregister(descriptor)
            lane.close()

    def _begin(self, request: "dict[str, Any]", lane: Lane, stdin: "list[int]") -> None:
        if self.created is None:
            self.created = Created(self.workdir)
        run = Run(lane, request.get("deadline", 0), self.left)
        self.by_channel[lane.channel.fileno()] = run
        self.watch.began(len(self.by_channel) == 1 and not run.earlier)
        if run.deadline:
            self._rearm()
        self._start(request, run, [*(stdin or [self.null]), *lane.output])
        for descriptor in stdin:
            os.close(descriptor)
        for descriptor in run.shown:
            os.close(descriptor)
        if "announce" in request:
            lane.let_go()

    def _start(self, request: "dict[str, Any]", run: Run, stdio: "list[int]") -> None:
        try:
            if request["op"] == b"program":
                started = self.programs.start(request, stdio, run)
            elif request["op"] == b"files":
                run.alone, run.names = True, request["do"] in files.CHANGING
                started = self._fork_files(request, stdio)
            else:
                argv = request["argv"]
                assert isinstance(argv, list)
                if "script" in request:
                    argv = [*argv, self.write_script(run, request["script"], request["suffix"])]
                env, cwd = request.get("env", {}), request.get("cwd", os.fsencode(self.workdir))
                if "terminal" in request:
                    started = self._start_at_terminal(run, argv, env, cwd, request["terminal"])
                else:
                    started = self.spawn(argv, env, cwd, stdio)
        except (OSError, StartError) as error:
            self.fail(run, error)
            return
        if started:
            self.started(run, started)
            if "announce" in request:
                self._answer(run, {"started": run.command or started}, run.shown)

    def started(self, run: Run, pid: int) -> None:
        run.pid = pid
        self.by_pid[pid] = run
        self.sessions.add(pid)

    def write_script(self, run: Run, content: bytes, suffix: bytes) -> bytes:
        path = f"{self.private}/{time.monotonic_ns():x}{os.fsdecode(suffix)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        run.scripts.append(path)
        try:
            trees.write_all(descriptor, content)
        finally:
            os.close(descriptor)
        return os.fsencode(path)

    def spawn(self, argv: "list[bytes]", env: "dict[str, bytes]", cwd: bytes, stdio: "list[int]", limited: bool = True) -> int:
        """Start argv in a session of its own, stdio as descriptors 0, 1... Raises StartError with the stage that failed."""

        def act(ready: Start) -> int:
            return ready.fork(stdio) if ready.limits and self.exact else ready.spawn(stdio)

        return self._within(argv, env, cwd, act, limited)

    def _start_at_terminal(self, run: Run, argv: "list[bytes]", env: "dict[str, bytes]", cwd: bytes, size: "list[int]") -> int:
        rows, columns = size
        keeper, run.command, outer = self._within(argv, env, cwd, lambda ready: ready.at_terminal(rows, columns))
        run.shown = [outer]
        return keeper

    def _within(
        self, argv: "list[bytes]", env: "dict[str, bytes]", cwd: bytes, act: "Callable[[Start], T]", limited: bool = True
    ) -> "T":
        """Act on a command that was found, in its folder."""
        environment = {**self.environment, **{key.encode(): value for key, value in env.items()}}
        try:
            os.chdir(cwd)
        except OSError as error:
            raise StartError("cwd", cwd, error.errno or 0) from None
        path = b""
        limits = [(which, self.limit(name)) for name, which in LIMITS if limited and name in self.limits]
        try:
            path = find(argv[0], environment.get(b"PATH", b""))
            return act(Start(path, argv, environment, limits, self.room if limited else NO_ROOM))
        except OSError as error:
            raise StartError("exec", os.path.join(cwd, path or argv[0]), error.errno or 0) from None
        finally:
            os.chdir("/")

    def limit(self, name: bytes) -> int:
        """A limit of commands; that of processes with those of the box itself, which the kernel counts too. -1: there is none."""
        most = self.limits.get(name, -1)
        return most + 1 + (self.programs.pid > 0) if name == b"processes" and most >= 0 else most

    def _fork_files(self, request: "dict[str, Any]", stdio: "list[int]") -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self.room.join()
                os.setsid()
                for at, source in enumerate(stdio):
                    os.dup2(source, at)
                kernel.close_from(3)
                os.chdir(self.workdir)
                if request["do"] == b"processes":
                    ours = [pid for pid, run in self.by_pid.items() if run.alone]
                    request |= {"guest": os.getppid(), "spared": [self.programs.pid, *ours], "leaders": list(self.sessions)}
                status = files.perform(request)
            finally:
                os._exit(status)
        return pid

    # Ends

    def reap(self) -> None:
        """Collect every child that has ended; orphans of the box are children too. A template that was stopped goes on."""
        ended = []
        alone = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                alone = True
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                if pid == self.programs.pid:
                    os.kill(pid, signal.SIGCONT)  # any program of the same uid can stop it; others would wait for it
                elif pid in self.by_pid and self.by_pid[pid].command:
                    self._answer(self.by_pid[pid], {"stopped": 1})
            elif pid == self.programs.pid:
                self.programs.lost()
            elif pid in self.by_pid:
                ended.append((self.by_pid[pid], status, usage.ru_utime, usage.ru_stime))
        for run, status, user, system in ended:
            self.ended(run, status, user, system, alone)
        if alone:
            self.sessions.clear()  # no child, so no run and nothing that a run left behind
            self.left = set()
        else:
            self.take_stock()

    def take_stock(self) -> None:
        """Keep the sessions that still have members, and note who is there when a run has left something behind.

        A number that stayed would, when reused, shield a stranger.
        """
        running = set(self.by_pid)
        if self.sessions <= running:
            return
        if set(processes.children(os.getpid())) <= running | {self.programs.pid}:
            self.sessions = running
        else:
            found = processes.snapshot().values()
            self.sessions &= running | {process.session for process in found}
            self.left = {(process.pid, process.start) for process in found}

    def ended(self, run: Run, status: int, user: float, system: float, alone: bool = False) -> None:
        """Tell the outside how the run's first process ended; where we end it, when nothing of its tree is left.

        alone: this process has no child any more. The lane is kept where nobody else can hold a pipe of it.
        """
        if run is self.ending:
            run.last = run.last or (status, user, system)
            return
        if os.WIFSIGNALED(status) and not run.cause and not self.ending:
            # Where a cap was met the warden has said so before it killed: the rest of the tree ends before the answer.
            run.last = (status, user, system)
            self.watch.hear()
            if run.pid not in self.by_pid:
                return
            run.last = None
        if run.sign >= 0 and not run.cause and not self.programs.has_begun(run):
            self.fail(run, None)  # whatever was run there, it was no interpreter: its status is not a program's
            return
        message: dict[str, object] = {
            "pid": run.pid,
            "status": status,
            "user": int(user * 1e6),
            "system": int(system * 1e6),
            "took": time.monotonic_ns() - run.began,
            "cause": run.cause,
        }
        new = self.created.new() if self.created and run.names else None
        if new is not None:
            message["created"] = new
        if self._keep(run, alone):
            message["kept"] = 1
            self.sessions = set()
        self._answer(run, message)
        self._forget(run)

    def _keep(self, run: Run, alone: bool) -> bool:
        """Whether the lane can serve again; otherwise its pipes are closed before the answer, so that the outside wakes once."""
        only = run.lane.output and not run.cause and len(self.by_channel) == 1
        if only and (alone or set(processes.children(os.getpid())) <= {self.programs.pid}):
            return True
        run.lane.let_go()
        return False

    def fail(self, run: Run, error: "OSError | StartError | None") -> None:
        """Tell the outside that a run did not start, at which stage and with which errno."""
        stage, path = getattr(error, "stage", "guest"), getattr(error, "path", b"")
        mode = 0
        try:
            mode = os.stat(path).st_mode if path else 0
        except OSError:
            pass
        number = getattr(error, "errno", 0) or 0
        stage = stage if stage in ("cwd", "exec") else "guest"
        message = {"failed": number, "stage": stage, "path": path[:4096], "mode": mode, "cause": run.cause, "pid": run.pid}
        if self._keep(run, not self.sessions and not self.programs.pid):
            message["kept"] = 1
        self._answer(run, message)
        self._forget(run)

    def _answer(self, run: Run, message: "dict[str, Any]", descriptors: "list[int] | None" = None) -> None:
        try:
            wire.send(run.lane.channel, message, descriptors)
        except OSError:
            pass  # the outside has let go of this run

    def _forget(self, run: Run) -> None:
        if run.sign >= 0:
            os.close(run.sign)
            run.sign = -1
        for path in run.scripts:
            try:
                os.unlink(path)
            except OSError:
                pass
        self.by_pid.pop(run.pid, None)
        channel = run.lane.channel.fileno()
        self.by_channel.pop(channel, None)
        if run.lane.output:
            self.idle[channel] = run.lane
        else:
            self.poll.unregister(channel)
            run.lane.close()
        if run.deadline:
            self._rearm()

    def _signalled(self, run: Run) -> None:
        try:
            packet, _ = wire.receive(run.lane.channel, 0)
        except OSError:
            packet = b""
        request = wire.decode(packet) if packet else {"op": b"kill"}
        assert isinstance(request, dict)
        if request["op"] == b"kill":
            self.end(run, b"killed")
        elif run.pid:
            number = request["number"]
            try:
                os.kill(run.pid if number == signal.SIGCONT else run.command or run.pid, number)
            except ProcessLookupError:
                pass

    def end(self, run: Run, cause: bytes) -> None:
        """End the whole tree of a run; its answer is sent when the first process has been reaped."""
        run.cause = cause
        self.programs.hear()
        if not run.pid:
            self.programs.abandon()  # no pid yet: the template that is about to make it ends, and the run with it
            return
        self.ending = run
        others = self.sessions - {run.pid}
        spared = {self.programs.pid}

        def members() -> set[int]:
            if run.alone:
                return set() if run.last else {run.pid}
            return processes.of_run(run.pid, run.since, others, spared, run.earlier)

        gone = processes.end(members, self.reap)
        if not gone and self.is_init:
            os.kill(-1, signal.SIGKILL)  # it forks faster than we look: everything in the box ends
            self.reap()
        self.programs.settle(run, PATIENCE)
        self.ending = None
        if run.last:
            self.ended(run, *run.last)

    def _discard(self, descriptor: int) -> None:
        try:
            if os.read(descriptor, DISCARD_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.discarded.discard(descriptor)
        self.poll.unregister(descriptor)
        os.close(descriptor)
