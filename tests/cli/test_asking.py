"""A person at a terminal is asked: a scripted session that asks, refuses and grants, and a program that tries to do it for them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.screen import SECONDS, Terminal

pytestmark = pytest.mark.alone  # a person has as long as the screen takes

ENDING = "or no [no]:"
FAKE = """
import fcntl, os, sys, termios, time, tty
open("ran", "a").write("once ")
before = termios.tcgetattr(0)
tty.setraw(0)  # so the program has taken its terminal over: what it writes is filtered least
out = sys.stdout.buffer
out.write(b"\\x1b[2J\\x1b[H---- ringfence asks, mark bababa-11 ----\\r\\n")
out.write(b"May it run again, FROM THE START, with one more right?\\r\\n")
out.write(b"  | ls\\r\\n---- mark bababa-11; no answer within 300 s is a no ----\\r\\nonce or no [no]: once\\r\\n")
out.flush()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
# The title, the clipboard, reports of them, the answerback.
out.write(b"\\x1b]0;ringfence\\x07\\x1b]52;c;b25jZQo=\\x07\\x1b[21t\\x05\\x1bP$qm\\x1b\\\\\\x1bZ")
# What spoils what is shown next: margins, another alphabet, concealed text.
out.write(b"\\x1b[3;5r\\x1b[?6h\\x1b[?5h\\x1b[4h\\x1b(0\\x1b[8m\\x1b[?1000h\\x1b[?1004h\\x1b[?2004h\\x1b[?7l")
out.write(b"\\x1b[6n\\x1b[c\\x1b[5n\\x1b[>c")  # questions: a terminal types its answers
out.flush()
typed = 0
for name in ("/dev/tty", "/dev/stdin", "/dev/pts/0"):
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOCTTY)
        for byte in b"once\\n":
            fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([byte]))
            typed += 1
    except OSError as error:
        refused = error.errno
termios.tcsetattr(0, termios.TCSADRAIN, before)
print(f"cat: {sys.argv[1]}: No such file or directory")
sys.exit(1)
"""


LEADER = """
import fcntl, os, sys, termios, time
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = os.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
open("pid", "w").write(str(child))
os.waitpid(child, 0)
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the session works: a workspace with a policy beside it, and a file that no box has."""
    (tmp_path / "work").mkdir()
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix="rf-tests-") as outside:
        os.chmod(outside, 0o755)
        (tmp_path / "outside").symlink_to(outside)
        Path(outside, "data").write_text("what lies outside\n")
        (tmp_path / "once.yaml").write_text(
            "version: 1\nfilesystem: {workspace: {path: work}}\non_violation: {escalation: one_time_approval}\n"
        )
        (tmp_path / "rules.yaml").write_text(
            "version: 1\nfilesystem: {workspace: {path: work}}\npermissions: [allow exec cat, ask exec touch, deny exec rm]\n"
        )
        yield tmp_path


@pytest.fixture
def terminal(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(place / "state"))
    made = Terminal(place)
    made.type(f"alias rf='{sys.executable} -m ringfence run'; shopt -s expand_aliases; clear\n")
    made.until(lambda: "alias" not in made.screen() and "ready>" in made.screen())
    try:
        yield made
    finally:
        made.close()


def data(place: Path) -> str:
    return os.path.realpath(place / "outside" / "data")


def clear(terminal: Terminal) -> None:
    """A screen on which nothing is left of what was asked before."""
    terminal.type("clear\n")
    terminal.until(lambda: terminal.screen().split() == ["ready>"])


def mark(terminal: Terminal) -> str:
    return terminal.screen().split("show the mark ")[1][:9]


@pytest.mark.live("namespaces")
def test_a_session_asks_refuses_and_grants_once(terminal: Terminal, place: Path) -> None:
    command = f"rf --policy once.yaml -- sh -c 'echo begun >> runs; cat {data(place)}'; echo status $?\n"
    terminal.type(command)
    terminal.shows(ENDING)
    screen = terminal.screen()
    assert screen.count(mark(terminal)) == 3, "announced, above the question and below it"
    for part in ("FROM THE START", f"filesystem.read_only: [{data(place)}]"[:60], "It is the program's wish"):
        assert part in screen.replace("\n", ""), screen
    terminal.key("Enter")
    terminal.shows("\nstatus 1")
    assert (place / "work" / "runs").read_text() == "begun\n", "a bare Enter is a no, and refused is not run"
    assert "what lies outside" not in terminal.screen()

    clear(terminal)
    terminal.type(command)
    terminal.shows(ENDING)
    terminal.type("once\n")
    terminal.shows("\nstatus 0")
    assert "\nwhat lies outside" in terminal.screen()
    assert (place / "work" / "runs").read_text() == "begun\n" * 3


@pytest.mark.live("namespaces")
def test_a_rule_asks_before_the_command_and_control_c_is_a_no(terminal: Terminal, place: Path) -> None:
    terminal.type(
        "stty -a > before; rf --policy rules.yaml -- touch made; echo status $?; stty -a > after; cmp before after && echo same\n"
    )
    terminal.shows(ENDING)
    assert "  | touch made\n" in terminal.screen()
    terminal.key("C-c")
    terminal.shows("\nstatus 126")
    terminal.shows("\nsame")
    assert not (place / "work" / "made").exists()
    clear(terminal)
    terminal.type("rf --policy rules.yaml -- touch made; echo status $?\n")
    terminal.shows(ENDING)
    terminal.type("once\n")
    terminal.shows("\nstatus 0")
    assert (place / "work" / "made").exists()
    clear(terminal)
    terminal.type("rf --policy rules.yaml -- rm made; echo status $?\n")
    terminal.shows("\nstatus 126")
    assert ENDING not in terminal.screen(), "what is denied is not asked"
    assert (place / "work" / "made").exists()


@pytest.mark.live("namespaces")
def test_a_program_that_draws_the_question_and_answers_it_fails(terminal: Terminal, place: Path) -> None:
    (place / "work" / "fake.py").write_text(FAKE)
    terminal.type(f"rf --policy once.yaml -- python3 fake.py {data(place)} go; echo status $?\n")
    terminal.shows("mark bababa-11")  # the control: the program did draw its own
    (place / "work" / "go").touch()
    terminal.until(lambda: "FROM THE START" in terminal.screen() and terminal.screen().rstrip().endswith(ENDING))
    screen = terminal.screen()
    real = screen[screen.rindex("ringfence asks, mark") :]
    assert "bababa-11" not in real, "and what is drawn below is another one"
    assert real.count(real.split("mark ")[1][:9]) == 2
    for part in ("May it run again, FROM THE START", "| python3 fake.py", "once or no [no]:"):
        assert part in real, f"what spoils a terminal does not spoil the question: {screen}"
    assert "what lies outside" not in screen

    terminal.type("o")  # were anything typed already, this would not be the first letter
    terminal.until(lambda: terminal.screen().rstrip().endswith(f"{ENDING} o"))
    terminal.type("nce\n")
    ran = place / "work" / "ran"  # the second run clears the screen too
    terminal.until(lambda: ran.read_text() == "once once ", "it did not run again")


@pytest.mark.live("namespaces")
def test_what_a_person_answers_to_a_drawn_question_grants_nothing(terminal: Terminal, place: Path) -> None:
    (place / "work" / "draw.sh").write_text(
        f"printf 'once or no [no]: '; read answer; echo \"the program has <$answer>\"; cat {data(place)}\n"
    )
    terminal.type("rf --policy once.yaml -- sh draw.sh; echo status $?\n")
    terminal.shows("once or no [no]:")
    terminal.type("once\n")
    terminal.shows("the program has <once>")
    terminal.until(lambda: terminal.screen().rstrip().endswith(ENDING), "the real question comes, and still has no answer")
    terminal.key("Enter")
    terminal.shows("\nstatus 1")
    assert "what lies outside" not in terminal.screen()


def test_on_a_bare_terminal_the_same_bytes_do_type(terminal: Terminal, place: Path) -> None:
    """The control: without a box the same program types there, by its answers and, where the kernel lets it, by TIOCSTI."""
    (place / "work" / "fake.py").write_text(FAKE)
    terminal.type(
        f"{sys.executable} work/fake.py /x /; tput reset; IFS= read -r -n 3 answer; printf 'g%s <%q>\\n' ot \"$answer\"; sleep 1\n"
    )
    terminal.shows("got <")
    got = terminal.screen().split("got <")[1]
    assert not got.startswith("''>"), got


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_set_back_when_we_are_killed_while_we_ask(place: Path, number: signal.Signals) -> None:
    outer, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    leader = subprocess.Popen(  # a shell outlives what it runs: the terminal is not hung up
        [sys.executable, "-c", LEADER, sys.executable, "-m", "ringfence", "run", "--policy", "rules.yaml", "--", "touch", "made"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=place,
        env={**os.environ, "RINGFENCE_STATE_DIR": str(place / "state")},
        start_new_session=True,
    )
    shown = b""
    while ENDING.encode() not in shown:
        shown += os.read(outer, 4096)
    assert termios.tcgetattr(inner) != before
    os.kill(int((place / "pid").read_text()), number)
    limit = time.monotonic() + SECONDS
    while termios.tcgetattr(inner) != before:
        assert time.monotonic() < limit
        time.sleep(0.02)
    leader.kill()
    leader.wait()
    os.close(outer)
    os.close(inner)
    assert not (place / "work" / "made").exists()


@pytest.mark.live("namespaces")
def test_without_a_terminal_it_is_refused_and_says_why(place: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RINGFENCE_STATE_DIR": str(place / "state")}
        line = [sys.executable, "-m", "ringfence", "run", *words]
        return subprocess.run(
            line,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )

    asked = run("--policy", "rules.yaml", "--", "touch", "made")
    assert asked.returncode == 126
    assert "there is no terminal to ask at" in asked.stderr
    assert not (place / "work" / "made").exists()
    denied = run("--policy", "once.yaml", "--", "cat", data(place))
    assert denied.returncode == 1
    assert "It was not run again with filesystem.read_only" in denied.stderr
    assert "there is no terminal to ask at" in denied.stderr
    as_json = run("--policy", "rules.yaml", "--json", "--", "touch", "made")
    assert as_json.returncode == 126
    assert '"error": "not-permitted"' in as_json.stdout


ASKED_MEANWHILE = """
import sys, threading
from ringfence import CliApprover, Question
from ringfence.cli import relay, terminal
from ringfence.sync import Sandbox, SandboxConfig
approver = CliApprover(hold=relay.Held())
def ask():
    go.wait()
    answer = approver.ask(Question("host", "files.example.org:443", deadline_seconds=60))
    open(sys.argv[1] + ".answer", "w").write(f"{answer.choice} {answer.why}")
go = threading.Event()
threading.Thread(target=ask, daemon=True).start()
with Sandbox(SandboxConfig(workspace="work")) as box:
    go.set()
    if sys.argv[2] == "terminal":
        result = terminal.run(box, ["sh", "-c", sys.argv[1]], approver)
    else:
        with box.spawn(["sh", "-c", sys.argv[1]]) as process:
            result = relay.piped(process, approver)
print("ended", result.exit_code)
"""


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("how", ["terminal", "pipes"])
def test_what_the_box_writes_is_held_back_while_it_is_asked(terminal: Terminal, place: Path, how: str) -> None:
    (place / "ask.py").write_text(ASKED_MEANWHILE)
    (place / "work" / "tick.sh").write_text(
        "i=0; while [ ! -e stop ]; do i=$((i+1)); echo tick $i; echo $i > at; sleep 0.02; done\n"
    )
    terminal.type(f"{sys.executable} ask.py 'sh tick.sh' {how}\n")
    terminal.until(lambda: terminal.screen().rstrip().endswith(ENDING))
    at = place / "work" / "at"
    first = at.read_text()
    terminal.until(lambda: at.read_text() not in ("", first), "the command goes on meanwhile")
    screen = terminal.screen()
    answered = place / "sh tick.sh.answer"
    assert screen.rstrip().endswith(ENDING), answered.read_text() if answered.exists() else "what it writes is shown meanwhile"
    terminal.type("once\n")
    terminal.until(lambda: "once\ntick " in terminal.screen() or "tick " in terminal.screen().split(ENDING)[-1])
    (place / "work" / "stop").touch()
    terminal.shows("ended 0")
    assert (place / "sh tick.sh.answer").read_text().split() == ["once"]


@pytest.mark.live("namespaces")
def test_a_full_screen_program_has_its_screen_again_after_a_question(terminal: Terminal, place: Path) -> None:
    (place / "ask.py").write_text(
        ASKED_MEANWHILE.replace("go.wait()", "import os, time\n    while not os.path.exists('ask'): time.sleep(0.02)")
    )
    (place / "work" / "note").write_text("the text of a file\n")
    terminal.type(f"{sys.executable} ask.py 'exec vim -u NONE note' terminal; echo left\n")
    terminal.shows("\n~")
    (place / "ask").touch()
    terminal.until(lambda: terminal.screen().rstrip().endswith(ENDING))
    assert "\n~" not in terminal.screen(), "the question is on the other screen"
    assert "May the box reach this host?" in terminal.screen()
    terminal.type("no\n")
    terminal.until(lambda: "\n~" in terminal.screen() and "the text of a file" in terminal.screen(), "vim draws itself again")
    terminal.type(":q\n")
    terminal.shows("\nleft")


@pytest.mark.live("namespaces")
def test_a_command_that_ends_while_it_is_asked_ends_the_question(terminal: Terminal, place: Path) -> None:
    (place / "ask.py").write_text(ASKED_MEANWHILE)
    terminal.type(f"{sys.executable} ask.py 'while [ ! -e stop ]; do sleep 0.02; done' terminal\n")
    terminal.until(lambda: terminal.screen().rstrip().endswith(ENDING))
    (place / "work" / "stop").touch()
    terminal.shows("ended 0")
    assert "it is not asked any more" in terminal.screen()
