"""What a running command's handle has alike on both surfaces: who it is, how it ended, signals."""

from __future__ import annotations

import signal

from ringfence.errors import ArgumentError
from ringfence.outcome import Exited, Result, Signaled
from ringfence.process.run import Run
from ringfence.process.wait import Readable, Waits

MAX_SAID = 64 * 1024


class Handle:
    """A started command. The surfaces add streams, wait and close."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._result: Result | None = None

    @property
    def pid(self) -> int:
        """The process id inside the box."""
        return self._run.pid

    @property
    def returncode(self) -> int | None:
        """As subprocess has it: None while it runs, the exit code, or minus the signal."""
        if self._result is None:
            return None
        match self._result.outcome:
            case Exited(code=code):
                return code
            case Signaled(signal=number):
                return -number
        return -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Send a signal to its first process; after its end this does nothing."""
        if number == signal.SIGCONT:
            self._run.stopped = False
        self._run.signal(signal.Signals(number))

    def terminate(self) -> None:
        """Send SIGTERM to its first process."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its first process. Closing the handle ends the whole tree."""
        self.send_signal(signal.SIGKILL)

    def fileno(self) -> int:
        """A descriptor that can be read when there is something for poll() to find; for select and its like."""
        return self._run.descriptor

    def has_ended(self) -> bool:
        """Whether it has ended, after a look. Unlike poll() it makes no result, so that the rest of stderr can be read before."""
        if self._result is None and not self._run.over:
            self._run.step()
        return self._result is not None or self._run.over

    def heard(self, data: bytes) -> None:
        """Take note of what was read of its stderr by the descriptor alone; what is read of `stderr` is noted without this.

        What it says was refused, and is, becomes a denial of the result. Kept are the last 64 KiB.
        """
        self._run.said = (self._run.said + data)[-MAX_SAID:]
        if self._run.observer is not None:
            self._run.observer.saw(2, data)

    def hinted(self, data: bytes) -> None:
        """The same of what was read of its terminal, where stderr is not told from the rest; for nothing but denials."""
        self._run.said = (self._run.said + data)[-MAX_SAID:]

    def passed(self, data: bytes) -> None:
        """Take note of what was read of its stdout by the descriptor alone, for the trace; as heard() of stderr."""
        if self._run.observer is not None:
            self._run.observer.saw(1, data)

    def _given_up(self) -> None:
        """Its caller closes it. Without a result nobody will ask for one."""
        observer, self._run.observer = self._run.observer, None
        if observer is not None:
            observer.given_up()

    @property
    def stopped(self) -> bool:
        """Whether the command at a terminal was stopped, as Ctrl-Z does; SIGCONT lets it go on, and makes this False."""
        return self._run.stopped

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size; after its end this does nothing. Raises ArgumentError for a command without one."""
        from ringfence.process.terminal import checked_size, resize  # with it comes termios

        size = checked_size((rows, columns))
        if not self._run.at_terminal:
            raise ArgumentError("the command has no terminal.", hint="Give spawn() terminal=(rows, columns).")
        if self._run.terminal >= 0:
            resize(self._run.terminal, *size)

    def _until_started(self) -> Waits[None]:
        while not (self._run.pid or self._run.over):
            yield Readable(self._run.descriptor)
            self._run.step()
