"""The supervisor of the egress server: holds what boxes were registered with, and the worker that serves them.

Started as `python -I -S supervisor.py FOLDER...` with an empty environment and one socket as standard input; the folders hold the
few modules of others that names need. It reads nothing that a box wrote: the worker, a fork of it that is confined, does. A worker
that dies is followed by another with the same registrations; when the caller is gone its end of the socket closes and both end.
"""

import os
import sys
import types

if __name__ == "__main__":
    # As guest/zygote.py: the package's own __init__ would import half of the standard library.
    _package = types.ModuleType("ringfence")
    _package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["ringfence"] = _package
    sys.path += sys.argv[1:]

import _socket
import gc
import select
import signal
import struct
import time
from typing import Any

from ringfence.egress import limits, lookup, worker
from ringfence.egress.registration import MOST_DESCRIPTORS, Registration
from ringfence.guest import kernel, wire

CONTROL = 3
LOOK_SECONDS = 5.0
"""How often resolv.conf and hosts are looked at for a change, while there are boxes."""
READ = ("/etc/resolv.conf", "/etc/hosts")
MOST_READ = 1 << 20
PATIENCE = struct.pack("ll", 5, 0)
"""How long a worker may leave what it is sent (struct timeval): then it is taken for hung, and killed."""
AT_ONCE = 3
"""Workers in a row that may die young and be followed without a pause; from then on one a second."""
YOUNG_SECONDS = 2.0


class Supervisor:
    """The loop. program: the filter of the worker."""

    def __init__(self, control: _socket.socket) -> None:
        self.control = control
        self.program = b""
        self.boxes: dict[int, Registration] = {}
        self.held = 0
        self.may_open = limits.descriptors()
        self.worker: _socket.socket | None = None
        self.pid = self.pidfd = 0
        self.young = 0
        self.born = 0.0
        self.start_at = 0.0
        self.broken = ""  # why there can be no worker
        self.read: tuple[object, ...] = ()
        self.files = ["", ""]

    def serve(self) -> None:
        """Until the caller is gone."""
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        while True:
            due = self.boxes and self.worker is None and not self.broken and time.monotonic() >= self.start_at
            if due and self._start():
                poll.register(self.pidfd, select.POLLIN)
            waits = 1.0 if self.worker is None else LOOK_SECONDS
            happened = dict(poll.poll(waits * 1000 if self.boxes and not self.broken else None))
            if self.worker is not None and self.pidfd in happened:
                poll.unregister(self.pidfd)
                self._died()
            if self.control.fileno() in happened and not self._hear():
                return
            if not happened and self.boxes and self._look():
                for box in self.boxes.values():
                    self._describe(box)
                    self._pass_on({"op": "outside", "id": box.number} | box.outside.said())

    def _hear(self) -> bool:
        packet, descriptors = wire.receive(self.control, MOST_DESCRIPTORS)
        if not packet:
            return False
        said = wire.decode(wire.carried(packet, descriptors))
        assert isinstance(said, dict)
        if said["op"] == b"filter":
            self.program = said["program"]
        elif said["op"] == b"box":
            self._add(said, descriptors)
        elif said["id"] in self.boxes:
            box = self.boxes[said["id"]]
            if said["op"] == b"rules":
                box.policy = said["policy"]
            elif said["op"] == b"answer" and said["until"] == b"box":
                box.grant(said["host"].decode(), said["port"], bool(said["allow"]))
            elif said["op"] == b"end":
                self._forget(said["id"])
            self._pass_on(said, descriptors)
        if said["op"] != b"box":
            for descriptor in descriptors:  # their last copy is closed when it is done
                os.close(descriptor)
        return True

    def _add(self, said: dict[str, Any], descriptors: list[int]) -> None:
        if self.held + len(descriptors) + 1 > self.may_open // 2:
            self._refuse(said, descriptors, f"{len(self.boxes)} boxes have egress already, and this process has no descriptor left")
            return
        try:
            descriptors.append(os.memfd_create("names", os.MFD_CLOEXEC))
        except OSError as error:
            self._refuse(said, descriptors, f"no memory for its names: {error.strerror}")
            return
        said["listeners"].append(b"journal")
        box = Registration(said, descriptors)
        self.boxes[box.number] = box
        self.held += len(descriptors)
        self._look()
        self._describe(box)
        if self.broken:
            self._give_up(self.broken)
        elif self.worker is not None:
            self._pass_on(said | box.outside.said(), descriptors)
            box.served = True

    def _refuse(self, said: dict[str, Any], descriptors: list[int], why: str) -> None:
        records = dict(zip(said["listeners"], descriptors, strict=True))[b"records"]
        wire.send_to(records, {"op": "failed", "why": why})
        for descriptor in descriptors:
            os.close(descriptor)

    def _forget(self, number: int) -> None:
        box = self.boxes.pop(number)
        self.held -= len(box.descriptors)
        for descriptor in box.descriptors:
            os.close(descriptor)

    def _describe(self, box: Registration) -> None:
        box.outside = lookup.Outside.of(box.resolvers, self.files[0], box.hosts, self.files[1])

    def _look(self) -> bool:
        """Read how this host looks names up, where that has changed since."""
        read = []
        for path in READ:
            try:
                found = os.stat(path)
                read.append((found.st_mtime_ns, found.st_ino, found.st_size))
            except OSError:
                read.append((0, 0, 0))
        if tuple(read) == self.read:
            return False
        self.read = tuple(read)
        for at, path in enumerate(READ):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    self.files[at] = file.read(MOST_READ)
            except OSError:
                self.files[at] = ""
        return True

    def _pass_on(self, said: dict[str, Any], descriptors: list[int] | None = None) -> None:
        if self.worker is None:
            return  # the next one is a fork that knows it
        try:
            wire.send(self.worker, said, descriptors)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)  # its end is told by its pidfd

    def _start(self) -> bool:
        """Fork a worker, and wait until it says that it is confined and serves. Whether there is one, which may be about to end."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            self.start_at = time.monotonic() + 1
            return False
        if self.pid == 0:
            ours.close()
            self.control.close()
            worker.start(theirs, self.boxes, self.program, parent)
        theirs.close()
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, PATIENCE)
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, PATIENCE)
        self.worker, self.pidfd = ours, os.pidfd_open(self.pid)
        self.born = time.monotonic()
        try:
            said = wire.decode(wire.receive(ours, 0)[0])
        except (OSError, wire.WireError):
            os.kill(self.pid, signal.SIGKILL)
            return True
        for box in self.boxes.values():
            box.served = True
        if isinstance(said, dict) and said.get("op") == b"failed":
            self.broken = f"its worker cannot be confined and started here: {os.fsdecode(said['why'])[:200]}"
        return True

    def _died(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        assert self.worker is not None
        self.worker.close()
        self.worker = None
        now = time.monotonic()
        self.young = self.young + 1 if now - self.born < YOUNG_SECONDS else 0
        self.start_at = now + (1 if self.young > AT_ONCE else 0)
        if self.broken:
            self._give_up(self.broken)

    def _give_up(self, why: str) -> None:
        """Nothing is served where a worker cannot be confined: every box is told, and its listeners are closed."""
        for number, box in list(self.boxes.items()):
            wire.send_to(box.by_name()["records"], {"op": "failed", "why": why})
            self._forget(number)


def main() -> None:
    os.dup2(0, CONTROL, inheritable=False)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    kernel.close_from(CONTROL + 1)
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # splice(2) into a socket whose other end is gone has no flag against it
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    kernel.hide_command_line(b"ringfence-net")
    os.umask(0o077)
    os.chdir("/")
    del sys.argv[:], sys.orig_argv[:]
    worker.load()
    gc.disable()
    gc.freeze()
    Supervisor(_socket.socket(fileno=CONTROL)).serve()


if __name__ == "__main__":
    main()
