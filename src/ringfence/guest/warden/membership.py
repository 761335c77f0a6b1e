"""Whether a box is still in its control groups: root can move it out or take a hierarchy away, and then nothing holds it there."""

from ringfence.guest.warden import tree
from ringfence.guest.warden.watched import NEVER, Watched, Watcher

EVERY = 2.0
"""Seconds between two looks, those of all boxes together."""


class Membership(Watcher):
    """Looks at the groups of the box's first process, which all that it starts inherits (proc_pid_cgroup(5))."""

    def __init__(self, box: Watched) -> None:
        self.box, self.due = box, 0.0
        self._at_first = self._groups()

    def act(self, now: float) -> None:
        self.due = (now // EVERY + 1) * EVERY
        found = self._groups()
        if found == self._at_first or not found:  # with nothing to read it has ended
            return
        self.due = NEVER
        left = set(self._at_first.splitlines()) - set(found.splitlines())
        names = {line.split(b":", 2)[1] or b"v2" for line in left if b"/ringfence-" in line}
        if names:
            self.box.tell({"lost": b",".join(sorted(names))[:100]})

    def _groups(self) -> bytes:
        # While it starts a command the box's first process is in the group within (guest/room.py).
        return tree.read(f"/proc/{self.box.pid}/cgroup").replace(b"/commands\n", b"\n")
