"""A box as the warden holds it, and what a watcher is."""

import _socket
import fcntl
import os
import signal
import sys
import time

from ringfence.guest import wire
from ringfence.guest.warden import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = float("inf")
PATIENCE = 2.0
"""Seconds that a guest has to end a run before the box is ended for it."""
TIOCOUTQ = 0x5411  # asm-generic/ioctls.h: what was sent and not yet read (unix(7): SIOCOUTQ)
MOST_WORDS = 10_000
"""Templates that a box can have in its life; a program may kill each, and starting one takes longer than hearing of it."""
MOST_RUNS = 64
"""Runs, and sessions of what runs left behind, that a guest is asked to end at once: more words find no room."""
MAX_PID = 1 << 22  # PID_MAX_LIMIT, linux/threads.h


class Watcher:
    """What watches one thing of one box. See the package."""

    due = NEVER
    descriptors: "tuple[int, ...]" = ()
    over = False
    """Whether a descriptor that hangs up tells nothing: what it told of has ended, and its box is about to."""

    def act(self, now: float) -> None:
        raise NotImplementedError

    def known(self, cap: bytes) -> None:
        """The caller has seen that a cap was met by what has ended."""

    def close(self) -> None:
        """Close what this object opened; what the box was given is closed by the box."""


class Watched:
    """One box: its first process, its two sockets, its watchers."""

    def __init__(
        self,
        pid: int,
        given: "dict[bytes, int]",
        add: "Callable[[Watched, Watcher], None]",
        drop: "Callable[[Watcher], None]",
    ) -> None:
        self.pid, self.given = pid, given
        self.pidfd = given[b"pidfd"]
        self.evidence, self.watch = (
            _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, given.pop(name)) for name in (b"evidence", b"watch")
        )
        self.evidence.setblocking(False)
        self.watch.setblocking(False)
        self.watchers: list[Watcher] = []
        self.always_contested = False
        self.contested = False  # the guest says that its runs overlap, or that one began beside what another left
        self.template = 0  # the pid in the box that the guest says its template has
        self._add, self._drop = add, drop
        self._template = (0, 0)  # its pid in the box, and on the host
        self._dropped = 0
        self._words = MOST_WORDS
        wire.refuse_descriptors(self.watch)

    def record(
        self, cap: bytes, limit: int, observed: int, by: bytes, *, pid: int = 0, run: int = 0, ends: bool = False, box: bool = False
    ) -> None:
        """Tell the caller that a cap was met: what was observed, by which mechanism; pid and run as the box counts them.

        run: the first process of the run, 0 where it is not known. ends: that run is ended for it. box: all of the box is.
        """
        fields = {"cap": cap, "limit": limit, "observed": observed, "by": by, "pid": pid, "run": run, "ends": ends + 2 * box}
        self.tell(fields)

    def tell(self, fields: "dict[str, object]") -> None:
        """A record of any kind, with its time. Where the caller does not read, records are dropped and their number is told."""
        fields["at"] = time.monotonic_ns()
        if self._dropped:
            fields["dropped"] = self._dropped
        try:
            wire.send(self.evidence, fields)
            self._dropped = 0
        except OSError:
            self._dropped += 1

    def has_room(self) -> bool:
        """Whether half of what the caller can leave unread is free, for records of which a box can cause any number."""
        queued = int.from_bytes(fcntl.ioctl(self.evidence.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
        return 2 * queued < self.evidence.getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF)

    def drop(self) -> None:
        """A record that was not told; the number of these is told with the next."""
        self._dropped += 1

    def end_run(self, run: int, cause: bytes) -> None:
        """Have the guest end the tree of a run, by the pid in the box of its first process; it will say this cause."""
        try:
            wire.send(self.watch, {"op": "end", "run": run, "cause": cause})
        except OSError:
            self.kill()  # it does not read
            return
        self._add(self, Ending(self, run))

    def end_all(self, cap: bytes, limit: int, observed: int, by: bytes) -> None:
        """End all that runs in the box for a cap: whose doing it was nobody can tell. Where that is too much, the box ends."""
        found = self.tree()
        runs = {found.run_of(pid) for pid in found.processes} - {0}
        whole = len(runs) > MOST_RUNS
        self.record(cap, limit, observed, by, ends=True, box=whole)
        for run in () if whole else runs:
            self.end_run(run, cap)
        if whole:
            self.kill()

    def kill(self) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def tree(self) -> "tree.Tree":
        """The processes of the box as they are now."""
        return tree.Tree(self.pid, self._template_here())

    def idle(self) -> bool:
        """Whether nothing runs in the box but its own."""
        return tree.is_idle(self.pid, self._template_here())

    def _template_here(self) -> int:
        """The pid on the host of what the guest says is its template; looked for when it says so."""
        if self.template != self._template[0]:
            self._template = (self.template, tree.Tree(self.pid).child_with(self.template))
        return self._template[1]

    def hear(self) -> bool:
        """Take what the guest says; False when its end is closed. It is hostile: anything odd ends its box."""
        try:
            packet, _ = wire.receive(self.watch, 0)
            if not packet:
                return False
            self._words -= 1
            said = wire.decode(packet) if self._words else None  # a guest that talks on would keep the warden from the others
            if said in ({"contested": 1}, {"contested": 2}):
                self.contested, self.always_contested = True, said == {"contested": 2}
                return True
            pid = said.get("template") if isinstance(said, dict) else None
            if not isinstance(pid, int) or not 0 <= pid <= MAX_PID:
                raise wire.WireError("not what a guest says")
            self.template = pid
        except BlockingIOError:
            pass
        except (OSError, wire.WireError):
            self.kill()
            return False
        return True

    def let_go(self, name: bytes, watcher: Watcher) -> None:
        """Close what was given under a name, and wait no more for what a watcher waits for."""
        self._drop(watcher)
        watcher.descriptors = ()
        os.close(self.given.pop(name))

    def close(self) -> None:
        for watcher in self.watchers:
            watcher.close()
        self.watchers.clear()  # each holds this box, and nothing here collects what holds itself
        self.evidence.close()
        self.watch.close()
        for descriptor in self.given.values():
            os.close(descriptor)


class Ending(Watcher):
    """Makes sure that a run ends which the guest was asked to end."""

    def __init__(self, box: Watched, run: int) -> None:
        self.box, self.run = box, run
        self.due = time.monotonic() + PATIENCE

    def act(self, now: float) -> None:
        self.due = NEVER
        found = self.box.tree()
        # Its first process counts also where it has ended: a guest that has collected it has told the caller.
        if any(self.run in (found.inner(pid), found.run_of(pid)) for pid in found.processes):
            self.box.tell({"failed": b"its first process did not end a run whose cap was met"})
            self.box.kill()
        self.box.watchers.remove(self)
