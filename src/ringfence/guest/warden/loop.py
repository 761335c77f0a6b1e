"""The loop of the warden: boxes on one socket, the ends of boxes on their pidfds, watchers by their times and descriptors."""

import _socket
import os
import select
import signal
import time

from ringfence.guest import kernel, wire
from ringfence.guest.warden import cpu, membership, memory, memory_group, reached, syscalls
from ringfence.guest.warden.watched import NEVER, Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONTROL = 3
MAX_DESCRIPTORS = 16
URGENT = -10
"""The nice value of the warden, where it may have one: boxes that are busy must not keep it from looking."""
TOGETHER = 0.005
"""Seconds by which a look may come early to be done with others: waking up costs more than most looks."""


def _disk(box: Watched, settings: "dict[str, Any]") -> Watcher:
    from ringfence.guest.warden import disk  # few boxes have a cap on it

    return disk.Monitor(box, settings)


def _full(box: Watched, settings: "dict[str, Any]") -> Watcher:
    from ringfence.guest.warden import disk

    return disk.Full(box, settings)


def _memory_events(box: Watched, settings: "dict[str, Any]") -> Watcher:
    from ringfence.guest.warden import memory_events  # a host has groups of one version

    return memory_events.Killed(box, settings)


def _forks(box: Watched, settings: "dict[str, Any]") -> Watcher:
    from ringfence.guest.warden import forks  # few policies let them end a run

    return forks.Refused(box, settings)


def _membership(box: Watched, settings: "dict[str, Any]") -> Watcher:
    return membership.Membership(box)


MAKERS: "dict[str, Callable[[Watched, dict[str, Any]], Watcher]]" = {
    "memory": memory.Monitor,
    "memory_group": memory_group.Grouped,
    "memory_events": _memory_events,
    "cpu": cpu.Cpu,
    "membership": _membership,
    "syscalls": syscalls.Listener,
    "disk": _disk,
    "full": _full,
    "forks": _forks,
    "reached": reached.Reached,
}
"""Each watcher by the name that the caller asks for it with."""


class Warden:
    """Holds every watched box of one caller."""

    def __init__(self, control: "_socket.socket") -> None:
        self.control = control
        self.poll = select.epoll()
        self.poll.register(control.fileno(), select.EPOLLIN)
        self.boxes: dict[int, Watched] = {}  # by their pidfds
        self.guests: dict[int, Watched] = {}  # by the descriptors of their sockets
        self.by_descriptor: dict[int, tuple[Watched, Watcher]] = {}

    def serve(self) -> None:
        """Until the caller is gone."""
        while True:
            for descriptor, events in self.poll.poll(self._patience()):
                if descriptor == self.control.fileno():
                    if not self._request():
                        return
                elif descriptor in self.by_descriptor:
                    if events == select.EPOLLHUP and self.by_descriptor[descriptor][1].over:
                        self.poll.unregister(descriptor)
                        del self.by_descriptor[descriptor]
                    else:
                        self._act(*self.by_descriptor[descriptor], time.monotonic())
                elif descriptor in self.guests:
                    if not self.guests[descriptor].hear():
                        self.poll.unregister(descriptor)
                        del self.guests[descriptor]
                elif descriptor in self.boxes:
                    self._forget(self.boxes[descriptor])
            now = time.monotonic() + TOGETHER
            for box in list(self.boxes.values()):
                for watcher in list(box.watchers):
                    if watcher.due <= now:
                        self._act(box, watcher, now)

    def _patience(self) -> float:
        due = min((watcher.due for box in self.boxes.values() for watcher in box.watchers), default=NEVER)
        return max(0.0, due - time.monotonic()) if due != NEVER else -1

    def _act(self, box: Watched, watcher: Watcher, now: float) -> None:
        try:
            watcher.act(now)
        except Exception as error:
            self._fail(box, error)

    def _fail(self, box: Watched, error: Exception) -> None:
        """A box that cannot be watched any more ends."""
        box.tell({"failed": f"its caps can be watched no more: {error!r}"[:300]})
        box.kill()

    def _request(self) -> bool:
        """A box to watch: its guest's pid, the names of the descriptors that come along, the watchers with their settings.

        Or a cap that the caller saw met itself, at the end of a run: what runs there next has nothing to do with it.
        """
        packet, descriptors = wire.receive(self.control, MAX_DESCRIPTORS)
        if not packet:
            return False
        request = wire.decode(packet)
        assert isinstance(request, dict)
        if request["op"] == b"known":
            for watcher in (each for box in self.boxes.values() if box.pid == request["pid"] for each in box.watchers):
                watcher.known(request["cap"])
            return True
        box = Watched(request["pid"], dict(zip(request["given"], descriptors, strict=True)), self._add, self._drop)
        self.boxes[box.pidfd] = box
        self.guests[box.watch.fileno()] = box
        for descriptor in (box.pidfd, box.watch.fileno()):
            self.poll.register(descriptor, select.EPOLLIN)
        try:
            for name, settings in request["watchers"].items():
                self._add(box, MAKERS[name](box, settings))
        except Exception as error:
            self._fail(box, error)
        return True

    def _add(self, box: Watched, watcher: Watcher) -> None:
        box.watchers.append(watcher)
        for descriptor in watcher.descriptors:
            self.by_descriptor[descriptor] = (box, watcher)
            self.poll.register(descriptor, select.EPOLLIN)

    def _drop(self, watcher: Watcher) -> None:
        """Its descriptors are about to be closed, though its box goes on."""
        for descriptor in watcher.descriptors:
            if self.by_descriptor.pop(descriptor, None):
                self.poll.unregister(descriptor)

    def _forget(self, box: Watched) -> None:
        self.poll.unregister(box.pidfd)
        del self.boxes[box.pidfd]
        if self.guests.pop(box.watch.fileno(), None):
            self.poll.unregister(box.watch.fileno())
        for descriptor in [each for each, (owner, _) in self.by_descriptor.items() if owner is box]:
            del self.by_descriptor[descriptor]
            self.poll.unregister(descriptor)
        box.close()


def start(control: int) -> None:
    """Never returns: becomes the warden, in a fork of the zygote."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(control, CONTROL, inheritable=False)
        kernel.close_from(CONTROL + 1)
        kernel.hide_command_line(b"ringfence-watch")
        try:
            os.setpriority(os.PRIO_PROCESS, 0, URGENT)
        except PermissionError:
            pass  # only root may
        Warden(_socket.socket(fileno=CONTROL)).serve()
    finally:
        os._exit(0)
