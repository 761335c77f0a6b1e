"""Where commands count against the caps of their control groups, and the box's own processes do not.

The guest and the template rest outside of the group that is capped: they can start, list and end when commands have taken all
of it, and never stand still with them at their cap on memory. A command is started from within: this process steps in and out
again, or a fork of it goes in alone. A process of one thread moves itself without waiting for others, in 10 us.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


FIRST = b"500"
"""The rank of commands: above everything of the host's that has none."""


class Room:
    """The groups by the descriptors of their files of tasks: those outside, and within each of them that of the commands."""

    def __init__(self, groups: "list[int]", shielded: bool = False) -> None:
        half = len(groups) // 2
        self.outside, self.commands = groups[:half], groups[half:]
        self.shielded = shielded
        self._rank = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC) if shielded else -1  # before it may not be

    def within(self, start: "Callable[[], T]") -> "T":
        """Start a command from within."""
        if not self.commands:
            return self.ranked(start)
        try:
            self.join()
            return start()
        finally:
            for group in self.outside:
                os.write(group, b"0")

    def ranked(self, start: "Callable[[], T]") -> "T":
        """Start what the kernel shall kill before this process, where it picks what ends (proc_pid_oom_score_adj(5)): a fork keeps
        the rank that its parent had."""
        if self._rank < 0:
            return start()
        me = os.getpid()
        os.pwrite(self._rank, FIRST, 0)
        try:
            return start()
        finally:
            if os.getpid() == me:
                os.pwrite(self._rank, b"0", 0)

    def move_to(self, first: int) -> int:
        """Have the descriptors at first and after it, in a fork that closes what comes then: the next number."""
        kept = [os.dup(group) for group in self.commands]  # above all that is moved over
        for at, group in enumerate(kept, first):
            os.dup2(group, at, inheritable=False)
        self.commands = list(range(first, first + len(kept)))
        return first + len(kept)

    def join(self) -> None:
        """Of a process that becomes a command: from here on it counts."""
        for group in self.commands:
            os.write(group, b"0")
