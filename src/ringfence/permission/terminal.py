"""CliApprover: a person at the terminal of this process is asked, and answers with a typed word.

The terminal belongs to the question while it is asked. What a box writes is held back (hold), all that a program may have changed
about how text is shown is set back, and what was typed before is thrown away. The question comes under a line with the mark of
this approver, which was drawn at random and which nothing in a box can know: a question that shows another mark, or none, is
something that a program wrote, and what is answered there grants nothing. What is asked is shown whole and escaped (see spelled).

An answer counts only if it is a word that was offered and an Enter, typed after the line for it has appeared. What a terminal
types by itself, as when a program has asked it something, begins with a control character: a line with one in it is no answer.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ringfence.permission.approvers import checked_deadline
from ringfence.permission.questions import DEADLINE_SECONDS, Answer, Question
from ringfence.permission.spelled import LINE, spelled

TERMINAL = "/dev/tty"
"""The terminal that controls this process, whatever its streams are: tty(4)."""
THINK_SECONDS = 0.7
"""What is typed while the question appears was meant for something else: a word at 60 words a minute takes a second."""
MOST_TRIES = 20
"""Lines that are no answer, before it is a refusal."""
FRESH = (
    b"\x1b7\x1b[?6l\x1b[?69l\x1b[r\x1b8"  # no margins; this moves the cursor, so it is kept (DECOM, DECLRMM, DECSTBM)
    b"\x1b[0m\x1b(B\x1b)B\x0f"  # no colour, nothing concealed; ASCII, and not the drawing characters (SGR, SCS, SI)
    b"\x1b[4l\x1b[20l\x1b[?5l\x1b[?7h\x1b[?25h"  # IRM, LNM, DECSCNM, DECAWM, DECTCEM
    b"\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?2004l"  # what types by itself: mouse, focus, paste marks
    b"\r\n\x1b[J"  # a line of its own, and nothing below it
)
"""What makes a terminal show plain text as it is (ECMA-48; xterm's control sequences)."""

_asking = threading.Lock()
"""One terminal, one question at a time."""


class CliApprover:
    """Asks at the terminal that controls this process; where there is none, or another job has it, everything is refused.

    The answer is one of the words that are offered and Enter; Enter alone, Ctrl-C and Ctrl-D are no. deadline_seconds: how long is
    waited for it. mark: what every question of this approver shows; print it before a box runs, so that a person knows it.
    hold: a function that returns a context manager, in which nothing else is written to the terminal or read from it.

    Not promised: that what the caller's own program writes meanwhile does not come between; that is for hold.
    """

    def __init__(
        self, *, deadline_seconds: float = DEADLINE_SECONDS, hold: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self.deadline_seconds = checked_deadline(deadline_seconds)
        self.hold = hold
        self.mark = _drawn()
        self._guard = threading.RLock()  # withdraw() may be called by the handler of a signal
        self._wakes: dict[int, int] = {}
        self._paused = False
        self._gone: deque[Question] = deque(maxlen=64)  # withdrawn before they were begun

    def ask(self, question: Question) -> Answer:
        """Ask, and wait for the answer."""
        until = time.monotonic() + question.deadline_seconds
        woken, wake = os.pipe()
        with self._guard:
            if self._paused or any(each is question for each in self._gone):
                os.write(wake, b"\0")
            self._wakes[id(question)] = wake
        try:
            return self._in_turn(question, woken, until)
        finally:
            with self._guard:
                del self._wakes[id(question)]
            os.close(woken)
            os.close(wake)

    def withdraw(self, question: Question | None = None) -> None:
        """Take a question away from the terminal, or all of them: it is over."""
        with self._guard:
            if question is not None and id(question) not in self._wakes:
                self._gone.append(question)
            for each in list(self._wakes) if question is None else [id(question)]:
                if each in self._wakes:
                    os.write(self._wakes[each], b"\0")

    def pause(self) -> None:
        """Ask nothing until resume(): what is asked now is withdrawn, and what comes is refused."""
        self._paused = True
        self.withdraw()

    def resume(self) -> None:
        """Ask again."""
        self._paused = False

    def _in_turn(self, question: Question, woken: int, until: float) -> Answer:
        while not _asking.acquire(timeout=0.05):
            if time.monotonic() > until or _readable(woken, 0):
                return Answer("no", "another question had the terminal until it was over")
        try:
            return self._at_terminal(question, woken, until)
        finally:
            _asking.release()

    def _at_terminal(self, question: Question, woken: int, until: float) -> Answer:
        try:
            terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return Answer("no", "there is no terminal to ask at", asked=False)
        try:
            with _not_stopped():
                if os.tcgetpgrp(terminal) != os.getpgrp():
                    return Answer("no", "another job has the terminal, so nobody can be asked there", asked=False)
                with self.hold():
                    return _Prompt(terminal, woken, until, self.mark).ask(question)
        except (OSError, termios.error) as error:  # it hung up
            return Answer("no", f"the terminal cannot be used: {error.args[-1]}")
        finally:
            os.close(terminal)


class _Prompt:
    """One question on a terminal."""

    def __init__(self, terminal: int, woken: int, until: float, mark: str) -> None:
        self.terminal, self.woken, self.until, self.mark = terminal, woken, until, mark

    def ask(self, question: Question) -> Answer:
        before = termios.tcgetattr(self.terminal)
        try:
            self._set(before, line=False)
            self._write(FRESH)
            self._show(question, whole=False)
            for _ in range(MOST_TRIES):
                self._think()
                self._set(before, line=True, when=termios.TCSAFLUSH)
                self._say(f"{_offered(question)} [no]: ", end="")
                line = self._line()
                self._set(before, line=False)
                if isinstance(line, Answer):
                    self._say("", f"ringfence: {line.why}; this is a no.")
                    return line
                word = line.strip().lower()
                if word in ("", "n", "no"):
                    return Answer("no")
                if word == "all":
                    self._show(question, whole=True)
                elif word in question.choices:
                    return Answer(word)
                else:
                    self._say("ringfence: that is no answer that is offered; type the whole word.")
            return Answer("no", f"{MOST_TRIES} lines were no answer")
        finally:
            termios.tcsetattr(self.terminal, termios.TCSAFLUSH, before)

    def _set(self, before: list[Any], *, line: bool, when: int = termios.TCSADRAIN) -> None:
        """How the terminal takes input. line: as a line that is edited and shown; Ctrl-C ends it, and signals nobody."""
        attributes = [*before[:6], list(before[6])]
        attributes[0] |= termios.ICRNL | termios.BRKINT
        attributes[0] &= ~(termios.INLCR | termios.IGNCR | termios.ISTRIP)
        attributes[1] |= termios.OPOST | termios.ONLCR
        attributes[3] &= ~(termios.ISIG | termios.ECHO | termios.ICANON)
        if line:
            attributes[3] |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ECHOCTL
            attributes[6][termios.VEOL] = b"\x03"
        else:
            attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.terminal, when, attributes)

    def _think(self) -> None:
        """Until a person may have read it; what came until then was not typed for it."""
        end = time.monotonic() + THINK_SECONDS
        while (left := end - time.monotonic()) > 0 and not _readable(self.woken, left):
            pass
        termios.tcflush(self.terminal, termios.TCIFLUSH)

    def _line(self) -> str | Answer:
        """What was typed, '?' for a line that no person types; or the refusal that came instead."""
        poll = select.poll()
        poll.register(self.terminal, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        ready = dict(poll.poll(max(0.0, self.until - time.monotonic()) * 1000))
        if self.woken in ready:
            return Answer("no", "it is not asked any more")
        if not ready:
            return Answer("no", "no answer came in time")
        typed = os.read(self.terminal, 4096)
        if not typed or typed.endswith((b"\x03", b"\x04")):
            return Answer("no", "it was broken off")
        text = typed.rstrip(b"\r\n")
        return text.decode("ascii") if all(0x20 <= byte < 0x7F for byte in text) else "?"

    def _show(self, question: Question, *, whole: bool) -> None:
        columns = os.get_terminal_size(self.terminal).columns or 80
        title = f"---- ringfence asks, mark {self.mark} "
        self._say(title.ljust(min(columns, 100) - 1, "-"), _said(question))
        notes: list[str] = []
        for label, text in _parts(question):
            self._say(*([label] if label else []))
            found = spelled(text, columns, whole=whole)
            self._say(*found.rows)
            notes += found.notes
        refused = question.kind == "escalation"
        if refused:
            self._say(*_labelled("it was refused:", ", ".join(map(str, question.acts)) or "something", columns))
        if question.rule:
            self._say(*_labelled("by rule:" if refused else "asked by rule:", question.rule, columns))
        if question.grant:
            self._say(*_labelled("a yes allows, and nothing else:", question.grant, columns))
        if question.wish:
            self._say("Only the program says that this was refused; nothing else saw it. It is the program's wish.")
        self._say(*dict.fromkeys(notes))
        left = max(0.0, self.until - time.monotonic())
        self._say(f"---- mark {self.mark}; no answer within {left:.0f} s is a no ".ljust(min(columns, 100) - 1, "-"))

    def _say(self, *lines: str, end: str = "\n") -> None:
        self._write(("\n".join(lines) + end).encode("utf-8", "backslashreplace") if lines else b"")

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.terminal, data) :]


def _said(question: Question) -> str:
    if question.kind == "command":
        return "May this be started in the box?"
    if question.kind == "host":
        return "May the box reach this host?"
    return "This was refused something. May it run again, FROM THE START, with one more right?"


def _parts(question: Question) -> Iterator[tuple[str, str]]:
    """What is asked, the acts of a line where they are not the line itself, and what it is started with."""
    yield "", question.what
    if len(question.acts) > 1 and question.kind == "command":
        yield "which is, as far as it can be read:", "\n".join(str(act) for act in question.acts)
    for text in question.around:
        yield "started with:", text


def _labelled(label: str, text: str, columns: int) -> tuple[str, ...]:
    """A text of one row behind its label, another one below it."""
    rows = spelled(text, columns).rows
    row = f"{label} {rows[0].removeprefix(LINE)}"
    return (row,) if len(rows) == 1 and len(row) <= columns else (label, *rows)


def _offered(question: Question) -> str:
    return ", ".join(choice for choice in question.choices if choice != "no") + " or no"


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


@contextmanager
def _not_stopped() -> Iterator[None]:
    """In the background a terminal is refused by an error, and this process is not stopped: termios(3), SIGTTIN and SIGTTOU."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _drawn() -> str:
    """Three syllables and two digits at random, which a person can tell from others."""
    drawn = os.urandom(8)
    letters = "".join("bdfgklmnprstvz"[drawn[at] % 14] + "aeiou"[drawn[at + 1] % 5] for at in (0, 2, 4))
    return f"{letters}-{drawn[6] % 90 + 10}"
