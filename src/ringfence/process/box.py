"""A live box as the outside holds it: a socket to its guest, the zygote's report, a timer that outlives the caller's attention."""

from __future__ import annotations

import _socket
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import HostError, ProtocolError, RingfenceError, SandboxClosedError, SandboxLostError, TierUnavailableError
from ringfence.guest import kernel, wire
from ringfence.process import listener, messages, warden, zygote
from ringfence.process.evidence import Evidence
from ringfence.process.lane import Lanes
from ringfence.process.wait import Readable, Waits

if TYPE_CHECKING:
    from ringfence.confine.plan import Beginning, Ids, LaunchPlan
    from ringfence.confine.ways import Network
    from ringfence.process.life import Life
    from ringfence.process.network import Made
    from ringfence.process.run import Run
    from ringfence.process.warden import Watchers

MAKING_SECONDS = 30.0
"""How long a box may take to be made before it counts as lost: a host under load takes long, not for ever."""
ENDING_SECONDS = 10.0
REMOUNT_SECONDS = 5.0
TAKING_SECONDS = 5.0
"""How long a guest may leave a full socket unread."""


class Box:
    """Made by Making; every method but close() is for the runs in it."""

    def __init__(self, channel: _socket.socket, report: _socket.socket, timer: int, evidence: _socket.socket) -> None:
        self.channel, self.report, self.timer = channel, report, timer
        self.evidence = Evidence(evidence)
        self.under_way: set[Run] = set()
        self.pid = 0
        self.pidfd = -1
        self.scratch = -1  # of the private folders' file system; tells what they hold
        self.listener = -1  # of its filter, until the warden has it
        self.observed = False  # what its filter refuses is told
        self.network: Made | None = None  # where it has a way out
        self.lanes = Lanes()
        self.lost = ""  # why, once it is known
        self.killed_by_deadline = False
        self.life: Life | None = None
        self.life_over: tuple[str, float] | None = None  # which bound of its life ended it, and its seconds
        self._deadlines: dict[object, int] = {}
        self._guard = threading.Lock()
        self._gone = False

    # Deadlines: armed by the caller, kept by the kernel, acted on by the zygote. They hold while the caller is stopped. Then
    # the guest sets the timer by what really runs, so that a run that has ended ends no box whose caller has not looked yet.

    def arm(self, run: object, deadline_ns: int) -> None:
        """Before the request is sent: the timer stands at the earliest deadline, plus what the guest may take itself."""
        with self._guard:
            self._deadlines[run] = deadline_ns
            past = time.monotonic_ns() - wire.GRACE_NS  # of these the guest has made sure, or the box is gone
            kernel.arm(self.timer, min(each for each in self._deadlines.values() if each > past) + wire.GRACE_NS)

    def disarm(self, run: object) -> None:
        with self._guard:
            self._deadlines.pop(run, None)

    def send(self, request: dict[str, object], descriptors: list[int], lane: _socket.socket | None = None) -> None:
        """One request to the guest, on the channel of a kept lane or on the box's own.

        Raises SandboxLostError where the guest is gone or takes nothing any more.
        """
        channel = lane or self.channel
        try:
            while not _sent(channel, request, descriptors):
                if not _writable(channel, TAKING_SECONDS):
                    self.kill()
                    raise SandboxLostError("the box takes no more requests, so it was ended.")
        except OSError as error:
            if self.life and not self.lost and _readable(self.report, TAKING_SECONDS):
                self._take_report()
            if self.life_over:
                raise SandboxClosedError(f"the box has ended: {self.lost}.", hint="Make a new box, with a longer life.") from None
            raise SandboxLostError(f"the box is gone: {self.lost or error.strerror}.") from None

    @property
    def closed(self) -> bool:
        """Whether its owner ended it."""
        return self._gone

    def kill(self) -> None:
        """End everything in the box at once; the zygote reports when it is gone."""
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # already gone

    def cause_of_death(self, within: float) -> Waits[str]:
        """Why the box ended, as the zygote reports it; the empty string while it lives."""
        if self.report.fileno() < 0:  # closed by its owner, who took that report
            return self.lost
        if not self.lost and (yield Readable(self.report.fileno(), time.monotonic() + within)):
            self._take_report()
        return self.lost

    def _take_report(self) -> None:
        report, _ = _report(self.report)
        if not report:
            self.lost = "the process that makes boxes has died"
            return
        status = report.get("exited")
        reason = report.get("reason")
        self.killed_by_deadline = reason == b"deadline"
        if self.life and reason == b"life":
            kind, seconds = self.life_over = self.life.over
            self.lost = f"its life of {seconds:g} s is over" if kind == "lifetime" else f"nothing ran in it for {seconds:g} s"
        elif reason == b"warden":
            self.lost = warden.DIED
        elif self._ended_by_warden():
            cap = self.evidence.ending
            self.lost = f"its {cap.kind} cap was met, and no run could be ended for it" if cap else self.evidence.failed
        elif self.killed_by_deadline:
            self.lost = "it did not end its command at the deadline, so all of it was ended"
        elif isinstance(status, int) and os.WIFSIGNALED(status):
            self.lost = f"its first process was killed by signal {os.WTERMSIG(status)}"
        else:
            self.lost = "its first process ended"

    def let_go_of_listener(self) -> None:
        """Close this process's copy of the listener, if it has one."""
        if self.listener >= 0:
            listener.let_go(self.listener)
            self.listener, self.observed = -1, True

    def _ended_by_warden(self) -> bool:
        self.evidence.read()
        return self.evidence.ending is not None or bool(self.evidence.failed)

    def known(self, cap: str) -> None:
        """A cap was seen met here; whoever watches the box is told."""
        warden.current().known(self.pid, cap)

    def remount(self, steps: bytes) -> list[int] | None:
        """Do steps of the plan again in the live box; one number for each, as guest/remount.py gives it. None: it is gone.

        Holds the thread for some milliseconds: nothing may run in the box before its protection is back.
        """
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            zygote.current().send({"op": "remount", "pid": self.pid}, [theirs.fileno()])
            theirs.close()
            wire.send(ours, {"steps": steps})
            poll = select.poll()
            poll.register(ours.fileno(), select.POLLIN)
            done = _report(ours)[0].get("done") if poll.poll(REMOUNT_SECONDS * 1000) else None
        except (OSError, SandboxLostError):
            return None
        finally:
            ours.close()
            theirs.close()
        return [number for number in done if isinstance(number, int)] if isinstance(done, list) else None

    def close(self) -> Waits[None]:
        """End the box and wait until nothing of it is left. Safe to call again."""
        if self._gone:
            return
        self._gone = True
        self._tell_of_the_end()
        self.kill()
        self.channel.close()
        if self.pidfd >= 0 and not self.lost:
            yield Readable(self.report.fileno(), time.monotonic() + ENDING_SECONDS)
        self.release()

    def _tell_of_the_end(self) -> None:
        """So that the zygote holds nothing whose end it would have to wait for."""
        if self.pidfd >= 0 and not self.lost:
            try:
                zygote.current().send({"op": "ending", "pid": self.pid}, [])
            except (ConnectionError, SandboxLostError):
                pass  # then all has ended

    def release(self) -> None:
        """Close what this process holds of the box."""
        self._gone = True
        self.lanes.close()
        self.let_go_of_listener()
        self.channel.close()
        self.report.close()
        self.evidence.close()
        if self.life:
            self.life.close()
        if self.network:
            self.network.close()
        for descriptor in (self.timer, self.pidfd, self.scratch):
            if descriptor >= 0:
                os.close(descriptor)
        self.timer = self.pidfd = self.scratch = -1


def _sent(channel: _socket.socket, request: dict[str, object], descriptors: list[int]) -> bool:
    try:
        wire.send(channel, request, descriptors)
    except BlockingIOError:
        return False
    return True


def _readable(socket: _socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _writable(socket: _socket.socket, seconds: float) -> bool:
    """Whether the peer has made room. It reads at once unless it is no longer ours, so this may hold the thread."""
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _report(socket: _socket.socket) -> tuple[dict[str, object], list[int]]:
    try:
        packet, descriptors = wire.receive(socket, 1)
    except OSError:
        return {}, []
    fields = wire.decode(packet) if packet else {}
    assert isinstance(fields, dict)
    return fields, descriptors


class Making:
    """A box on its way: begin() as soon as its ids are known, send() its plan, complete() when it is built.

    The fork is made while the plan is, and the view while the caller finds out what else it has to.
    """

    def __init__(self, *, lifetime: float | None = None, idle: float | None = None, network: bool = False) -> None:
        self._box: Box | None = None
        self._network = network  # whether it gets a way out
        self._lifetime, self._idle = lifetime, idle
        self._watch: _socket.socket | None = None  # the guest's end, which goes with the plan, and the warden's
        self._theirs: dict[str, _socket.socket] = {}

    def begin(self, flags: int, ids: Ids | None) -> None:
        """Ask the zygote for the fork, which then waits for its plan."""
        opened: list[_socket.socket] = []
        try:
            for _ in range(4):
                opened += _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            ours, theirs, report, reporting, evidence, telling, watching, watched = opened
            self._box = Box(ours, report, kernel.timer_descriptor(), evidence)
            self._warden = warden.current()
            self._watch, self._theirs = watched, {"evidence": telling, "watch": watching}
            opened = [theirs, reporting]  # the zygote's
            request: dict[str, object] = {"op": "box", "flags": flags, "warden": self._warden.number, **_maps(ids)}
            request |= {"network": 1} if self._network else {}
            timers = [self._box.timer]
            if self._lifetime is not None or self._idle is not None:
                from ringfence.process.life import Life  # few boxes have a bound of their life

                self._box.life = Life(self._lifetime, self._idle)
                self._box.life.enter(self)  # while it is made it is not idle
                timers.append(self._box.life.timer)
            zygote.current().send(request, [theirs.fileno(), reporting.fileno(), *timers])
            self._warden.start()
        except OSError as error:
            if isinstance(error, RingfenceError):
                raise
            raise HostError(f"no box can be made: {error.strerror}.", errno=error.errno or 0) from None
        finally:
            for socket in opened:
                socket.close()

    def ahead(self, beginning: Beginning, trees: Sequence[int], groups: Callable[[], Sequence[int]]) -> None:
        """Send what the fork can build while the plan is made, with its trees and the control groups that it enters before. All
        are closed here in any case."""
        assert self._box is not None
        opened: Sequence[int] = ()
        try:
            opened = groups()
            wire.send(self._box.channel, {**beginning.wire(), "groups": len(opened)}, [*opened, *trees])
        except ConnectionError:
            pass  # the fork failed; the zygote's report says why
        finally:
            for descriptor in (*opened, *trees):
                os.close(descriptor)

    def send(self, plan: LaunchPlan, trees: Sequence[int], left: Sequence[str]) -> None:
        """Send the rest of the plan with its trees, which are closed here in any case.

        left: how the paths of folders begin that the zygote removes when this process is gone.
        """
        assert self._box is not None and self._watch is not None
        try:
            zygote.current().remove_at_end(left)
            wire.send(self._box.channel, plan.wire(), [*trees, self._watch.fileno()])
        except ConnectionError:
            pass  # the fork failed; the zygote's report says why
        finally:
            self._watch.close()
            for tree in trees:
                os.close(tree)

    def complete(
        self,
        explain: Callable[[int], tuple[str, str]],
        watchers: Watchers,
        given: Callable[[], dict[str, int]],
        network: Network | None,
    ) -> Waits[Box]:
        """The box, built and watched by watchers, which get the descriptors that given opens, by their names. network: of its plan.

        Raises TierUnavailableError where the host does not deliver it.
        """
        box = self._box
        assert box is not None
        until = time.monotonic() + MAKING_SECONDS
        yield from _made(box, until, explain)
        yield from _ready(box, until, network)
        opened = given()
        try:
            if box.listener < 0:
                watchers = {name: each for name, each in watchers.items() if name != "syscalls"}
            self._warden.watch(box.pid, watchers, self._given(opened))  # nothing has run in it yet
        finally:
            box.let_go_of_listener()
            for descriptor in opened.values():
                os.close(descriptor)
        self._close_ends()
        box.channel.setblocking(False)
        if box.life:
            box.life.leave(self)
        return box

    def _given(self, given: Mapping[str, int]) -> dict[str, int]:
        assert self._box is not None
        own = {"pidfd": self._box.pidfd, **{name: end.fileno() for name, end in self._theirs.items()}}
        if self._box.scratch >= 0:
            own["scratch"] = self._box.scratch
        if self._box.listener >= 0:
            own["listener"] = self._box.listener
        return {**own, **given}

    def _close_ends(self) -> None:
        if self._watch is not None:
            self._watch.close()
        for end in self._theirs.values():
            end.close()

    def rehearse(self, explain: Callable[[int], tuple[str, str]]) -> Waits[None]:
        """Wait until the fork is made, and end it instead of sending a plan. Raises TierUnavailableError as complete() does."""
        box = self._box
        assert box is not None
        yield from _made(box, time.monotonic() + MAKING_SECONDS, explain)
        yield from box.close()

    def remount(self, steps: bytes) -> list[int] | None:
        """Box.remount, for those who are made before the box is."""
        return self._box.remount(steps) if self._box is not None else None

    def abandon(self) -> None:
        """Give the box up, in whatever state it is."""
        self._close_ends()
        if self._box is not None:
            self._box.kill()
            self._box.release()
            self._box = None


def _maps(ids: Ids | None) -> dict[str, object]:
    if ids is None:
        return {"uid_map": b"", "gid_map": b""}
    return {"uid_map": ids.uid_map, "gid_map": ids.gid_map, "deny_setgroups": int(ids.deny_setgroups)}


def _made(box: Box, until: float, explain: Callable[[int], tuple[str, str]]) -> Waits[None]:
    if not (yield Readable(box.report.fileno(), until)):
        raise SandboxLostError("the process that makes boxes does not answer.")
    fields, descriptors = _report(box.report)
    if "failed" in fields:
        number = fields["failed"]
        assert isinstance(number, int)
        cause, step = explain(number)
        raise TierUnavailableError(f"no box can be made by namespaces here: {cause}.", hint=step, errno=number)
    if not descriptors:
        raise SandboxLostError("the process that makes boxes has died.")
    pid = fields["pid"]
    assert isinstance(pid, int)
    box.pid, box.pidfd = pid, descriptors[0]


def _ready(box: Box, until: float, network: Network | None) -> Waits[None]:
    if not (yield Readable(box.channel.fileno(), until)):
        raise SandboxLostError("the box was not ready in time.")
    try:
        packet, descriptors = _first_word(box.channel, wire.MOST_DESCRIPTORS if network else 2)
    except (OSError, wire.WireError):
        packet, descriptors = b"", []
    if network:
        from ringfence.process import network as made  # few boxes have a way out

        box.network = made.accept(network, packet, descriptors)
    box.scratch, box.listener = listener.accept(descriptors)
    if not packet:
        raise SandboxLostError("the box died while it was made.")
    match messages.parse(packet):
        case messages.Ready():
            return
        case messages.Refused(stage=stage, path=path, errno=number):
            raise refused(stage, path, number)
    raise ProtocolError("the guest spoke out of turn.")


def _first_word(channel: _socket.socket, most: int) -> tuple[bytes, list[int]]:
    try:
        return wire.receive(channel, most)
    except ConnectionResetError:  # it ended with a part of the plan unread, which is told before what it said (unix(7))
        return wire.receive(channel, most)


def refused(stage: str, path: str, number: int) -> RingfenceError:
    """The error for a box whose view could not be built."""
    reason = os.strerror(number) if number else stage
    message = f"the box could not be built: {stage} {path}: {reason}."
    if number == 116:  # ESTALE: the guest's word for a folder that was exchanged
        return TierUnavailableError(message, hint="The folder was replaced while the box was made; try again.")
    return TierUnavailableError(message, hint="A security module or a container may forbid mounts; nothing was run.")


def make_userns(uid_map: str, gid_map: str) -> int:
    """The descriptor of a user namespace with these maps, made by the zygote; for a privileged caller."""
    report, reporting = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        zygote.current().send({"op": "idmap", "uid_map": uid_map, "gid_map": gid_map}, [reporting.fileno()])
        reporting.close()
        fields, descriptors = _report(report)
    finally:
        report.close()
        reporting.close()
    if not descriptors:
        raise TierUnavailableError(f"no user namespace can be made for the ids of a box: {fields.get('call', b'')!r}.")
    return descriptors[0]
