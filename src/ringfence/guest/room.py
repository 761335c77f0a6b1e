"""What the guest may still start where commands have taken all the processes that their cap allows.

Commands and this process are in one control group, which counts them and refuses the next (cgroups(7), pids). Where that meets
this process it steps over into a group beside it, forks there, and steps back; a command that was forked there steps
over before it begins. A process of one thread moves itself without waiting for others.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


class Room:
    """The two groups, by the descriptors of their files of tasks; none of them where no group counts processes."""

    def __init__(self, groups: "list[int]") -> None:
        self.own, self.commands = groups or (-1, -1)
        self._outside = False  # in a fork that was made in the group beside

    def fork(self) -> int:
        """os.fork, also where the cap leaves nothing."""
        try:
            return os.fork()
        except BlockingIOError:
            if self.own < 0:
                raise
        return self.beside(os.fork)

    def beside(self, start: "Callable[[], T]") -> "T":
        """Start something in the group beside; in a fork that start makes this returns too."""
        me = os.getpid()
        self._enter(self.own)
        try:
            return start()
        finally:
            self._outside = os.getpid() != me
            if not self._outside:
                self._enter(self.commands)

    def join(self) -> None:
        """Of a fork that becomes a command: from here on it counts."""
        if self._outside:
            self._enter(self.commands)

    def _enter(self, group: int) -> None:
        if group >= 0:
            os.write(group, b"0")
