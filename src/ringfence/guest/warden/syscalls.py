"""Forbidden system calls of a box: the kernel tells of each and holds its caller until it is answered (seccomp_unotify(2)).

The answer is an errno, always: a call that went on could have other arguments by then. No memory of the caller is read. What
a box can ask of this process is bounded: past its budget the listener is closed, and the kernel alone refuses what comes then.
"""

import fcntl
import select
import sys
import time

from ringfence.guest.warden import tree
from ringfence.guest.warden.watched import Watched, Watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_*, linux/seccomp.h
NOTIF_BYTES = 80  # struct seccomp_notif: id, pid, flags, then struct seccomp_data: nr, arch, instruction pointer, six arguments
ARGUMENTS_AT = 32
EPERM = 1

BUDGET = 500
"""Calls of a box that are answered here, each for about a tenth of a millisecond; one is given back each REFILL seconds."""
REFILL = 2.0
A_TURN = 16
"""Calls that are answered before other boxes are looked at."""
EXACT = 8
"""Repetitions from which on not each is told."""
MAX_VARIANTS = 4
FURTHER = 1 << 32
"""Stands for all the arguments with which a run makes a call, past the first few: more than any has."""
MAX_KINDS = 128
"""Calls, by run, whose repetitions are counted; the oldest are forgotten."""
MAX_HOPS = 16
"""Processes looked at to find the run of one: from each to the leader of its session, from that to its parent."""


class Listener(Watcher):
    """Needs the descriptor `listener`. Settings: answers, for each call where it is not EPERM alone: "number first second errno;",
    the places of the two arguments that tell what it was for (6: none).
    """

    over = True  # nothing is left under the filter

    def __init__(self, box: Watched, settings: "dict[str, Any]") -> None:
        self.box = box
        self.listener = box.given[b"listener"]
        self.descriptors = (self.listener,)
        self._answers = settings["answers"]
        self._known: dict[int, list[int]] | None = None
        self._level = -1
        self._budget, self._at = float(BUDGET), time.monotonic()
        self._counts: dict[tuple[int, int, int, int], int] = {}  # by run, number and the two arguments
        self._variants: dict[tuple[int, int], set[tuple[int, int]]] = {}  # those arguments, by run and number
        self._poll = select.poll()
        self._poll.register(self.listener, select.POLLIN)

    def act(self, now: float) -> None:
        self._budget = min(BUDGET, self._budget + (now - self._at) / REFILL)
        self._at = now
        for _ in range(A_TURN):
            # Only after POLLIN: else taking a call waits for one, and with it everything here.
            if not any(events & select.POLLIN for _, events in self._poll.poll(0)):
                return
            if self._budget < 1:
                self.box.tell({"unobserved": BUDGET})
                self.box.let_go(b"listener", self)
                return
            self._budget -= 1
            self._answer()

    def _answer(self) -> None:
        call = bytearray(NOTIF_BYTES)
        try:
            fcntl.ioctl(self.listener, NOTIF_RECV, call)
        except OSError:
            return  # its caller has ended meanwhile
        number = _word(call, 16)
        first, second, error = self._kind(number)
        kind = (_argument(call, first), _argument(call, second))
        run = self._run_of(_word(call, 8))
        try:
            fcntl.ioctl(self.listener, NOTIF_ID_VALID, bytes(call[:8]))
        except OSError:
            run = 0  # its caller has ended: that pid may have been somebody else's
        self._tell(run, number, *kind)
        answer = call[:8] + bytes(8) + (-error).to_bytes(4, sys.byteorder, signed=True) + bytes(4)
        try:
            fcntl.ioctl(self.listener, NOTIF_SEND, bytes(answer))
        except OSError:
            pass  # killed while it waited

    def _kind(self, number: int) -> "tuple[int, int, int]":
        """The two arguments that tell what a call was for, and the errno that answers it."""
        if self._known is None:
            rows = (list(map(int, row.split())) for row in self._answers.split(b";") if row)
            self._known = {row[0]: row[1:] for row in rows}
        first, second, error = self._known.get(number, (6, 6, EPERM))
        return first, second, error

    def _tell(self, run: int, number: int, first: int, second: int) -> None:
        """Before the answer, so that it is there when the run ends. From EXACT repetitions on only each doubling is told."""
        variants = self._variants.setdefault((run, number), set())
        if len(variants) == MAX_VARIANTS and (first, second) not in variants:
            first, second = FURTHER, 0
        else:
            variants.add((first, second))
        kind = (run, number, first, second)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count < EXACT or count & count - 1 == 0:
            if self.box.has_room():
                self.box.tell({"syscall": number, "first": first, "second": second, "run": run, "count": count})
            else:
                self.box.drop()
        while len(self._variants) > MAX_KINDS:
            oldest = next(iter(self._variants))
            for seen in (*self._variants.pop(oldest), (FURTHER, 0)):
                self._counts.pop((*oldest, *seen), None)

    def _run_of(self, thread: int) -> int:
        """The pid in the box of the first process of a thread's run, or of another session's leader where no run is known; or 0.

        A run's first process leads a session, and its parent is the guest or the template. Whoever stayed in that session belongs
        to it even where its parents have ended.
        """
        if self._level < 0:
            self._level = tree.level_of(self.box.pid)
        pid, below = thread, 0
        for _ in range(MAX_HOPS):
            parent, leader, session = _line_of(pid, self._level)
            if parent == self.box.pid:
                return below if session and session == self.box.template else session
            below = session
            # The number of a leader that has ended is nobody else's while its session has members.
            pid = leader if session and leader != pid and _line_of(leader, 0)[0] else parent
            if not pid:
                return 0
        return 0


def _line_of(pid: int, level: int) -> "tuple[int, int, int]":
    """A process's parent and its session's leader, as the host counts them, and the session as the box does (0: of outside).

    All are 0 where it has ended. proc_pid_status(5): PPid, NSsid.
    """
    parent, sessions = 0, [b"0"]
    for line in tree.read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"PPid:"):
            parent = int(line[5:])
        elif line.startswith(b"NSsid:"):
            sessions = line[6:].split()
            break
    return parent, int(sessions[0]), int(sessions[level]) if level < len(sessions) else 0


def _word(call: bytearray, at: int) -> int:
    return int.from_bytes(call[at : at + 4], sys.byteorder)


def _argument(call: bytearray, place: int) -> int:
    """The low half of an argument, which is all that the kernel looks at where it is a number; 0 for place 6."""
    return _word(call, ARGUMENTS_AT + 8 * place) if place < 6 else 0
