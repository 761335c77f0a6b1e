"""CliApprover on a terminal that the test holds: what is taken for an answer, what is not, and how the terminal is left."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pytest

from ringfence import CliApprover, Question

SECONDS = 20.0
ASK = """
import sys, threading
from ringfence import CliApprover, Question
approver = CliApprover()
question = Question("command", WHAT, rule="default", deadline_seconds=DEADLINE, around=("the variable A=\\x1b[2J",))
PREPARE
answer = approver.ask(question)
sys.stdout.write(f"<<{answer.choice}: {answer.why}>>")
sys.stdout.flush()
threading.Event().wait()
"""
READY = b"or no [no]: "


class Asked:
    """A process that asks, with the terminal's other end."""

    def __init__(self, what: str = "make", deadline: float = 300.0, prepare: str = "") -> None:
        code = ASK.replace("WHAT", repr(what)).replace("DEADLINE", repr(deadline)).replace("PREPARE", prepare)
        self.shown = b""
        self.outer, inner = pty.openpty()
        termios.tcsetwinsize(inner, (24, 80))
        self.inner = inner
        self.before = termios.tcgetattr(inner)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import os, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{code}"],
            stdin=inner,
            stdout=inner,
            start_new_session=True,
        )

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, self.shown
            if select.select([self.outer], [], [], 0.05)[0]:
                self.shown += os.read(self.outer, 65536)

    def shows(self, text: bytes) -> None:
        self.until(lambda: text in self.shown)

    def type(self, data: bytes) -> None:
        os.write(self.outer, data)

    def answers(self, typed: bytes) -> str:
        self.shows(READY)
        self.type(typed)
        return self.answer()

    def answer(self) -> str:
        self.shows(b">>")
        return self.shown.split(b"<<")[1].split(b">>")[0].decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.outer)
        os.close(self.inner)


@pytest.fixture
def ask(request: pytest.FixtureRequest) -> Callable[..., Asked]:
    def made(*given: object, **more: object) -> Asked:
        asked = Asked(*given, **more)  # type: ignore[arg-type]
        request.addfinalizer(asked.close)
        return asked

    return made


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        (b"once\r", "once"),
        (b"session\n", "session"),
        (b"  ONCE \r", "once"),
        (b"onx\x7fce\r", "once"),  # edited
        (b"\r", "no"),
        (b"no\r", "no"),
        (b"\x03", "no"),
        (b"on\x03", "no"),
        (b"\x04", "no"),
    ],
)
def test_the_answer_is_a_typed_word_and_everything_else_is_no(ask: Callable[..., Asked], typed: bytes, choice: str) -> None:
    asked = ask()
    assert asked.answers(typed).split(":")[0] == choice
    asked.until(lambda: termios.tcgetattr(asked.inner) == asked.before)
    assert asked.process.poll() is None, "Ctrl-C is an answer, and ends nobody"


@pytest.mark.parametrize(
    "typed", [b"y\r", b"yes\r", b"o\r", b"always\r", b"once\x1b[A\r", b"\x1b[1;1Ronce\r", "\uff4fnce\r".encode()]
)
def test_what_is_no_word_that_is_offered_is_asked_again(ask: Callable[..., Asked], typed: bytes) -> None:
    asked = ask()
    asked.shows(READY)
    asked.type(typed)
    asked.shows(b"that is no answer that is offered")
    asked.until(lambda: asked.shown.count(READY) == 2)
    asked.type(b"\r")
    assert asked.answer() == "no: "


def test_what_was_typed_before_the_line_for_it_is_no_answer(ask: Callable[..., Asked]) -> None:
    asked = ask(prepare="sys.stdin.readline()")
    asked.type(b"go on\nonce\nonce\n")
    asked.shows(b"ringfence asks")
    asked.type(b"once\n")
    asked.shows(READY)
    assert b"<<" not in asked.shown
    asked.type(b"session\n")
    assert asked.answer() == "session: "


def test_the_question_is_whole_and_escaped_between_two_lines_with_the_mark(ask: Callable[..., Asked]) -> None:
    asked = ask(what="echo \x1b[8m\u202e\u200b" + "x" * 1000 + "\n---- ringfence asks, mark aaaaaa-11 ----")
    asked.shows(READY)
    text = asked.shown.decode()
    assert "  | echo \\e[8m\\u202e\\u200bxxx" in text
    assert sum(row.count("x") for row in text.split("\r\n") if row.startswith(("  | ", "  : "))) == 1000
    assert "3 of its characters cannot be shown" in text
    assert "started with:\r\n  | the variable A=\\e[2J\r\n" in text
    assert "\r\n  | ---- ringfence asks, mark aaaaaa-11 ----\r\n" in text, "what is asked cannot leave its gutter"
    marks = [line.split("mark ")[1][:9] for line in text.replace("\x1b[J", "").split("\r\n") if line.startswith("----")]
    assert len(marks) == 2
    assert marks[0] == marks[1]


def test_a_long_question_is_folded_and_all_shows_it(ask: Callable[..., Asked]) -> None:
    asked = ask(what="\n".join(f"line {each} of it" for each in range(1000)))
    asked.shows(READY)
    assert b"line 500 of it" not in asked.shown
    assert b"rows in the middle are folded: all shows them" in asked.shown
    asked.type(b"all\r")
    asked.until(lambda: asked.shown.count(READY) == 2)
    assert b"line 500 of it" in asked.shown
    asked.type(b"once\r")
    assert asked.answer() == "once: "


def test_a_question_has_its_deadline_and_leaves_the_terminal_as_it_was(ask: Callable[..., Asked]) -> None:
    asked = ask(deadline=1.0)
    assert asked.answer() == "no: no answer came in time"
    assert termios.tcgetattr(asked.inner) == asked.before


def test_a_question_that_is_withdrawn_leaves_the_terminal(ask: Callable[..., Asked]) -> None:
    asked = ask(prepare="threading.Timer(1.5, lambda: approver.withdraw(question)).start()")
    assert asked.answer() == "no: it is not asked any more"
    assert termios.tcgetattr(asked.inner) == asked.before


def test_one_that_was_withdrawn_before_it_began_is_not_shown_for_long(ask: Callable[..., Asked]) -> None:
    assert ask(prepare="approver.withdraw(question)").answer() == "no: it is not asked any more"


def test_a_terminal_that_a_program_has_made_raw_asks_all_the_same_and_is_raw_again(ask: Callable[..., Asked]) -> None:
    asked = ask(prepare="import tty; tty.setraw(0)")
    asked.shows(READY)
    asked.type(b"once\r")
    assert asked.answer() == "once: "
    lflag = termios.tcgetattr(asked.inner)[3]
    assert not lflag & termios.ICANON


def test_a_terminal_that_hangs_up_is_a_refusal(ask: Callable[..., Asked]) -> None:
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    outer, inner = pty.openpty()
    script = ASK.replace("WHAT", "'make'").replace("DEADLINE", "300.0").replace("PREPARE", code).split("sys.stdout.write")[0]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{script}\nos.write({tell}, answer.choice.encode())",
        ],
        stdin=inner,
        start_new_session=True,
        pass_fds=[tell],
    )
    os.close(inner)
    os.close(tell)
    shown = b""
    while READY not in shown:
        shown += os.read(outer, 65536)
    os.close(outer)
    assert os.read(told, 100) == b"no"
    assert process.wait(SECONDS) == 0
    os.close(told)


def test_without_a_terminal_it_is_refused_and_says_so() -> None:
    code = "from ringfence import *; print(CliApprover().ask(Question('command', 'make')).why)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True, check=True)
    assert done.stdout == "there is no terminal to ask at\n"


def test_in_the_background_it_is_refused_and_nothing_stops(ask: Callable[..., Asked]) -> None:
    code = (
        "import os, signal, time; os.setpgid(0, 0)\n"  # a group of its own, which the terminal does not have
        "from ringfence import *\n"
        "print(CliApprover().ask(Question('command', 'make')).why, flush=True)\n"
    )
    asked = ask(
        prepare=f"import subprocess; print(subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True))"
    )
    asked.shows(b"another job has the terminal")
    asked.shows(READY)


def test_questions_of_one_terminal_come_one_after_the_other(ask: Callable[..., Asked]) -> None:
    other = "Question('command', 'another', deadline_seconds=300.0)"
    asked = ask(prepare=f"threading.Thread(target=lambda: print('[[' + approver.ask({other}).choice + ']]', flush=True)).start()")
    asked.shows(READY)
    asked.type(b"once\r")
    asked.until(lambda: asked.shown.count(READY) == 2)
    asked.type(b"once\r")
    asked.shows(b"<<once: >>")
    asked.shows(b"[[once]]")


def test_marks_differ() -> None:
    assert len({CliApprover().mark for _ in range(50)}) > 40


def test_a_signal_that_ends_the_process_reaches_it(ask: Callable[..., Asked]) -> None:
    asked = ask()
    asked.shows(READY)
    asked.process.send_signal(signal.SIGTERM)
    assert asked.process.wait(SECONDS) == -signal.SIGTERM


def test_a_question_is_a_value() -> None:
    assert Question("command", "make") == Question("command", "make")
