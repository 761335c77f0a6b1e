"""A command at the caller's terminal: it has a terminal of its own in the box, and what passes between the two is copied.

Nothing in the box holds the caller's terminal, so nothing there can type into it. Ours is raw while the command has it: Ctrl-C and
Ctrl-Z act on the inner one. When the command stops, so do we, and the shell sees a stopped job; when we go on, so does it.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ringfence.cli.escapes import Filter
from ringfence.cli.relay import Relay, lent, write_all

if TYPE_CHECKING:
    from types import FrameType

    from ringfence.outcome import Result
    from ringfence.permission.terminal import CliApprover
    from ringfence.sync import Process, Sandbox

IN, OUT = 0, 1
LOOK_AGAIN = 500
"""Milliseconds between looks at whether we have come to the foreground, which no signal tells of."""


class Ended(Exception):
    """A signal that ends us came: its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(box: Sandbox, argv: list[str], approver: CliApprover | None = None) -> Result:
    """Run a command at a terminal to its end. Raises Ended for a signal that ends us; then nothing of it is left.

    approver: who may be asked meanwhile, at the same terminal.
    """
    size = os.get_terminal_size(OUT)
    before = termios.tcgetattr(IN)  # ahead of the command, and so of any question of it
    with box.spawn(
        argv, env={"TERM": os.environ.get("TERM") or "dumb"}, terminal=(max(size.lines, 1), max(size.columns, 1))
    ) as process:
        return Session(process, approver, before).run()


class Session:
    """The caller's terminal, lent to one process."""

    def __init__(self, process: Process, approver: CliApprover | None, before: list[Any]) -> None:
        self.process, self.approver, self.before = process, approver, before
        self.raw = False
        self.shown = Filter()
        self.came: list[int] = []
        self.relay = Relay(process, IN, {process.stdout.fileno(): self._show})

    def run(self) -> Result:
        with restored_whatever_happens(IN, self.before), self._signals() as woken:
            self.relay.watch[woken] = lambda: self._act(woken)
            try:
                with lent(self.relay, self.approver, self._for_a_question) as undisturbed:
                    while not self._until_stopped():
                        with undisturbed:
                            self._stop()
                return self.relay.rest()
            finally:
                self._give_back()

    @contextmanager
    def _for_a_question(self) -> Iterator[None]:
        """The screen without what the command did to it, then with it again. In the thread of the one who asks."""
        back, again = self.shown.aside()
        write_all(OUT, back)
        try:
            yield
        finally:
            write_all(OUT, again)
            if self.shown.alternate:  # it was drawn once: a new size makes its program draw it again
                size = os.get_terminal_size(OUT)
                self.process.resize(max(size.lines - 1, 1), max(size.columns, 1))
                self._resize()

    def _until_stopped(self) -> bool:
        """Whether the command has ended; else it was stopped."""
        relay, process = self.relay, self.process
        while not process.has_ended():  # its result is made when all that it said has been read
            if process.stopped:
                return False
            if not self.raw:
                self._take()
            relay.source = IN if self.raw else -1
            relay.patience = None if self.raw else LOOK_AGAIN
            relay.turn()
        return True

    def _show(self, data: bytes) -> None:
        self.process.passed(data)  # for the trace
        if self.approver:
            self.process.hinted(data)  # what it says it was refused may be asked for
        # A program that has taken the terminal over reads it byte by byte.
        line_mode = bool(termios.tcgetattr(self.process.stdout.fileno())[3] & termios.ICANON)
        write_all(OUT, self.shown.feed(data, line_mode=line_mode))

    # The caller's terminal

    def _take(self) -> None:
        """Make it raw, if it is ours: a job in the background leaves it as it is, and so does one whose question has it."""
        gate = self.relay.gate
        if os.tcgetpgrp(IN) != os.getpgrp() or (gate is not None and not gate.acquire(blocking=False)):
            return
        try:
            self._make_raw()
        finally:
            if gate is not None:
                gate.release()

    def _make_raw(self) -> None:
        raw = termios.tcgetattr(IN)
        raw[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON | termios.INLCR | termios.IGNCR)
        raw[1] &= ~termios.OPOST
        raw[2] = (raw[2] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(IN, termios.TCSADRAIN, raw)
        self.raw = True
        self._resize()

    def _give_back(self) -> None:
        if self.raw:
            write_all(OUT, self.shown.restore())
            # And drop what was not read: a terminal's answers to the command would be typed into the caller's shell.
            termios.tcsetattr(IN, termios.TCSAFLUSH, self.before)
            self.raw = False

    def _resize(self) -> None:
        size = os.get_terminal_size(OUT)
        self.process.resize(max(size.lines, 1), max(size.columns, 1))

    def _stop(self) -> None:
        self._give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # the shell's `fg` sends SIGCONT, and this returns; without a shell, at once
        signal.signal(signal.SIGTSTP, handler)
        self._take()
        self.process.send_signal(signal.SIGCONT)

    # Signals

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """Take note of signals, and wake the relay for them: the descriptor that it watches."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        numbers = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        before = {number: signal.signal(number, self._note) for number in numbers}
        woken_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)
        if self.approver and number not in (signal.SIGWINCH, signal.SIGTSTP):
            self.approver.withdraw()  # we end, and may be waiting for the terminal that a question has

    def _act(self, woken: int) -> None:
        try:
            os.read(woken, 4096)
        except BlockingIOError:
            pass
        came, self.came = self.came, []
        for number in came:
            if number == signal.SIGWINCH:
                self._resize()
            elif number == signal.SIGTSTP:  # from elsewhere: what is typed goes to the inner terminal
                self.process.send_signal(signal.SIGTSTP)
            elif number == signal.SIGINT:
                raise KeyboardInterrupt
            else:
                raise Ended(number)


@contextmanager
def restored_whatever_happens(terminal: int, before: list[object]) -> Iterator[None]:
    """A process of its own sets the terminal back where we are killed without a word."""
    told, tell = os.pipe()
    # From its first moment nothing but SIGKILL ends it; with SIGTTOU blocked the background may set a terminal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    keeper = os.fork()
    if keeper == 0:
        try:
            os.setpgid(0, 0)
            lowest = 3
            for kept in sorted({told, terminal}):
                if kept >= lowest:
                    os.closerange(lowest, kept)
                    lowest = kept + 1
            os.closerange(lowest, 1 << 16)
            if not os.read(told, 1):
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)  # type: ignore[arg-type]
                write_all(
                    terminal if terminal != IN else OUT,
                    b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m",
                )
        finally:
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(told)
    try:
        yield
    finally:
        os.write(tell, b".")
        os.close(tell)
        os.waitpid(keeper, 0)
