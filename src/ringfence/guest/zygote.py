"""The zygote: makes boxes by forking itself, arms nothing twice, kills by pidfd, reads no plan.

Started as `python -I -S zygote.py` with an empty environment and one socket as standard input. A request brings three descriptors:
the box's own socket, a report socket, and a timer that the caller arms before any command may start. The fork reads the
plan from the box's socket, so nothing of one box is in the memory of the next. When the caller is gone its end of the
socket closes and every box ends; when the zygote dies, PDEATHSIG and the closed sockets end them. What watches the caps of
boxes, the warden, is a fork too; when it dies the boxes that it watched are killed.
"""

import os
import sys
import types

if __name__ == "__main__":
    # The package's own __init__ would import half of the standard library: give the name a package without running it.
    _package = types.ModuleType("ringfence")
    _package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["ringfence"] = _package

import _socket
import gc
import resource
import select
import signal

from ringfence.guest import box, guest, kernel, processes, protected, remount, view, wire  # noqa: F401  # loaded before the first fork

CONTROL = 3
MAX_DESCRIPTORS = 4


class Box:
    """What the zygote keeps of a live box."""

    __slots__ = ("confined", "namespaces", "pid", "pidfd", "reason", "report", "timers", "warden")

    def __init__(self, pid: int, report: int, timers: "list[int]", namespaces: "list[int]", warden: int) -> None:
        self.pid, self.report = pid, report
        self.warden = warden  # the number of the warden that watches it; 0: it has no cap to be watched
        self.timers = timers  # of its deadlines, which its guest holds too, and where it has one of its life
        self.namespaces = namespaces  # of its users and its mounts; none of a box that is not confined
        self.confined = bool(namespaces)
        self.pidfd = os.pidfd_open(pid)
        self.reason = b""

    def let_go(self) -> None:
        """Of a box that is about to end, so that its mounts are taken down by its own end: the last to let go waits for that."""
        while self.namespaces:
            os.close(self.namespaces.pop())

    def kill(self, reason: bytes) -> None:
        self.let_go()
        if not self.reason:
            self.reason = reason
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself; the pidfd is readable and says so


class Zygote:
    """The loop: requests on one socket, ends of boxes on their pidfds, deadlines on their timers."""

    def __init__(self, control: "_socket.socket") -> None:
        self.control = control
        self.poll = select.epoll()
        self.poll.register(control.fileno(), select.EPOLLIN)
        self.by_pidfd: dict[int, Box] = {}
        self.by_timer: dict[int, Box] = {}
        self.helpers: dict[int, int] = {}
        self.groups: list[bytes] = []  # how the paths of the caller's control groups begin
        self.wardens: dict[int, tuple[int, int]] = {}  # pid and number, by pidfd
        self.newest = 0  # the number of the last; a box may be asked for before its warden is

    def serve(self) -> None:
        while True:
            control = self.control.fileno()
            # Requests last: they make descriptors, and an event of before must not be taken for one of a new box.
            for descriptor, _ in sorted(self.poll.poll(), key=lambda event: event[0] == control):
                if descriptor == control:
                    if not self._request():
                        self._end_all()
                        return
                elif descriptor in self.by_timer:
                    self.poll.unregister(descriptor)
                    held = self.by_timer[descriptor]
                    held.kill(b"deadline" if descriptor == held.timers[0] else b"life")
                elif descriptor in self.by_pidfd:
                    self._ended(self.by_pidfd[descriptor])
                elif descriptor in self.wardens:
                    self._warden_ended(descriptor)
                elif descriptor in self.helpers:
                    os.waitpid(self.helpers.pop(descriptor), 0)
                    os.close(descriptor)

    def _request(self) -> bool:
        message, descriptors = wire.receive(self.control, MAX_DESCRIPTORS)
        if not message:
            return False
        request = wire.decode(message)
        assert isinstance(request, dict)
        report = descriptors[1] if len(descriptors) > 1 else descriptors[0] if descriptors else -1
        try:
            if request["op"] == b"box":
                self._make(request, descriptors)
            elif request["op"] == b"remount":
                self._remount(request, report)
            elif request["op"] == b"ending":
                for box in self.by_pidfd.values():
                    if box.pid == request["pid"]:
                        box.let_go()
            elif request["op"] == b"groups":
                self.groups = request["prefixes"]
            elif request["op"] == b"warden":
                self._start_warden(request, report)
            else:
                self._idmap(request, report)
        except OSError as error:
            wire.send_to(report, {"failed": error.errno or 0, "call": str(error)})
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _make(self, request: "dict[str, object]", descriptors: "list[int]") -> None:
        channel, report, *timers = descriptors
        flags = request["flags"]
        assert isinstance(flags, int)
        if request.get("network"):
            from ringfence.guest import network  # noqa: F401  # as box, for those who need it
        ready, go = os.pipe()
        pid = kernel.clone(flags) if flags else os.fork()
        if pid == 0:
            box.start(channel, ready, timers[0], confined=bool(flags))
        os.close(ready)
        os.close(channel)
        try:
            namespaces: list[int] = []
            if flags:
                _write_maps(pid, request)
                # Now: a box that cannot be looked into opens them to nobody but root.
                namespaces = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("user", "mnt")]
        except OSError:
            os.close(go)  # without the byte the child ends by itself
            os.waitpid(pid, 0)
            raise
        os.write(go, b"g")
        os.close(go)
        watched = request.get("warden", 0)
        assert isinstance(watched, int)
        made = Box(pid, report, timers, namespaces, watched)
        self.by_pidfd[made.pidfd] = made
        self.poll.register(made.pidfd, select.EPOLLIN)
        for timer in timers:
            self.by_timer[timer] = made
            self.poll.register(timer, select.EPOLLIN)
        if 0 < watched <= self.newest and all(number != watched for _, number in self.wardens.values()):
            made.kill(b"warden")  # it has died before it had this box
        wire.send_to(report, {"pid": pid}, [made.pidfd])

    def _remount(self, request: "dict[str, object]", channel: int) -> None:
        """A fork that joins a box and hears from channel what is to be mounted again there."""
        held = next((box for box in self.by_pidfd.values() if box.pid == request["pid"] and box.namespaces), None)
        if held is None:
            raise OSError(3, "no such box")  # ESRCH
        pid = os.fork()
        if pid == 0:
            remount.start(channel, *held.namespaces)
        os.close(channel)
        helper = os.pidfd_open(pid)
        self.helpers[helper] = pid
        self.poll.register(helper, select.EPOLLIN)

    def _start_warden(self, request: "dict[str, object]", control: int) -> None:
        """A fork that watches the boxes which the caller then gives it on control."""
        number = request["number"]
        assert isinstance(number, int)
        self.newest = number
        pid = os.fork()
        if pid == 0:
            from ringfence.guest.warden import loop  # in the fork alone: no box has a page of it

            loop.start(control)
        os.close(control)
        pidfd = os.pidfd_open(pid)
        self.wardens[pidfd] = (pid, number)
        self.poll.register(pidfd, select.EPOLLIN)

    def _warden_ended(self, pidfd: int) -> None:
        pid, number = self.wardens.pop(pidfd)
        os.waitpid(pid, 0)
        os.close(pidfd)
        for watched in self.by_pidfd.values():
            if watched.warden == number:
                watched.kill(b"warden")

    def _idmap(self, request: "dict[str, object]", report: int) -> None:
        """A user namespace that lives only as a descriptor: the map of an idmapped mount."""
        wait, end = os.pipe()
        pid = kernel.clone(kernel.CLONE_NEWUSER)
        if pid == 0:
            os.close(end)
            os.read(wait, 1)
            os._exit(0)
        try:
            _write_maps(pid, request)
            namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(end)
            os.close(wait)
            os.waitpid(pid, 0)
        wire.send_to(report, {"userns": 1}, [namespace])
        os.close(namespace)
        os.close(report)

    def _ended(self, ended: Box) -> None:
        status = os.waitpid(ended.pid, 0)[1]
        if not ended.confined:
            wardens = {pid for pid, _ in self.wardens.values()}
            processes.end_orphans({other.pid for other in self.by_pidfd.values()} | set(self.helpers.values()) | wardens)
        ended.let_go()
        wire.send_to(ended.report, {"exited": status, "reason": ended.reason})
        del self.by_pidfd[ended.pidfd]
        self.poll.unregister(ended.pidfd)  # the caller holds it too, and epoll(7) goes on telling of it after our close()
        for timer in ended.timers:
            del self.by_timer[timer]
            try:
                self.poll.unregister(timer)
            except FileNotFoundError:
                pass  # it has fired
        for descriptor in (ended.pidfd, ended.report, *ended.timers):
            os.close(descriptor)

    def _end_all(self) -> None:
        for ended in self.by_pidfd.values():
            ended.kill(b"caller")
        for ended in list(self.by_pidfd.values()):
            self._ended(ended)
        for prefix in self.groups:
            _remove_groups(*prefix.rsplit(b"/", 1))


def _remove_groups(parent: bytes, beginning: bytes) -> None:
    """Remove the control groups that a caller left who was killed: nothing is in them any more."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(beginning)]
    except OSError:
        return  # not mounted any more
    for name in names:
        for folder in (b"%b/%b/commands" % (parent, name), b"%b/%b" % (parent, name)):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # the caller was quicker, or it is not empty: a later start finds it


def _write_maps(pid: int, request: "dict[str, object]") -> None:
    files = [("uid_map", request["uid_map"]), ("gid_map", request["gid_map"])]
    if request.get("deny_setgroups"):
        files.insert(0, ("setgroups", b"deny"))
    for name, content in files:
        with open(f"/proc/{pid}/{name}", "wb", 0) as file:
            file.write(content)  # type: ignore[arg-type]


def main() -> None:
    os.dup2(0, CONTROL, inheritable=False)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    kernel.close_from(CONTROL + 1)  # whatever the caller left inheritable ends here
    control = _socket.socket(fileno=CONTROL)
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    kernel.hide_command_line(b"ringfence")
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each run of a box holds a descriptor of its guest
    os.umask(0o022)
    os.chdir("/")
    del sys.argv[:], sys.path[:], sys.orig_argv[:]
    gc.disable()
    gc.freeze()
    Zygote(control).serve()


if __name__ == "__main__":
    main()
