"""At a terminal: what a person types, sees and gets back, in a real terminal (tmux) and over a bare one (pty)."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.screen import SECONDS, Terminal

RUN = f"{sys.executable} -m ringfence run --"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    try:
        yield made
    finally:
        made.close()


def bare(folder: Path, *command: str, typed: bytes = b"") -> tuple[bytes, int]:
    """What a command line wrote to a terminal, byte for byte, and its exit status."""
    pid, outer = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-m", "ringfence", "run", "--", *command])
    if typed:
        os.write(outer, typed)
    shown = b""
    try:
        while chunk := os.read(outer, 65536):
            shown += chunk
    except OSError:
        pass  # the other side is closed: the end of a terminal
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(outer)
    return shown, status


@pytest.mark.live("namespaces")
def test_a_command_has_a_terminal_of_its_own_with_the_callers_size(terminal: Terminal) -> None:
    terminal.type(f"{RUN} sh -c 'tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all three'\n")
    terminal.shows("\nall three")
    assert "/dev/pts/0" in terminal.screen() and "24 80" in terminal.screen()


@pytest.mark.live("namespaces")
def test_a_new_size_reaches_the_command(terminal: Terminal) -> None:
    terminal.type(f"{RUN} bash -c 'trap \"stty size; exit\" WINCH; echo waiting; while :; do sleep 0.1; done'\n")
    terminal.shows("\nwaiting")
    terminal.tmux("resize-window", "-t", "t", "-x", "70", "-y", "20")
    terminal.shows("20 70")


@pytest.mark.live("namespaces")
def test_control_c_ends_the_command_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    terminal.type(f"stty -a > before; {RUN} sleep 300; echo status $?; stty -a > after; cmp before after && echo same\n")
    time_of_start(terminal, "sleep 300")
    terminal.key("C-c")
    terminal.shows("status 130")
    terminal.shows("\nsame")


@pytest.mark.live("namespaces")
def test_control_z_stops_the_job_and_fg_lets_it_go_on(terminal: Terminal) -> None:
    terminal.type(f"{RUN} sh -c 'echo begun; sleep 2; echo ended'\n")
    terminal.shows("\nbegun")
    terminal.key("C-z")
    terminal.shows("Stopped")
    terminal.type("echo in the shell\n")
    terminal.shows("\nin the shell")
    terminal.type("fg\n")
    terminal.shows("ended\nready>")  # the echo of ^Z may come before it on its line


@pytest.mark.live("namespaces")
def test_vim_opens_writes_and_quits(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type(f"{RUN} vim -u NONE note; echo left\n")
    terminal.shows("note")
    terminal.until(lambda: "\n~" in terminal.screen())
    terminal.type("ihello")
    terminal.key("Escape")
    terminal.type(":wq\n")
    terminal.shows("\nleft")
    assert (tmp_path / "note").read_text() == "hello\n"
    assert "\n~" not in terminal.screen()  # the screen is the shell's again


@pytest.mark.live("namespaces")
def test_tmux_runs_inside(terminal: Terminal) -> None:
    terminal.type(f"{RUN} env -u TMUX tmux -f /dev/null new-session 'echo in tmux; read x'\n")
    terminal.until(lambda: terminal.screen().startswith("in tmux"))
    terminal.key("Enter")
    terminal.shows("[exited]")


@pytest.mark.live("namespaces")
def test_colours_pass_and_what_acts_on_the_terminal_does_not(tmp_path: Path) -> None:
    text = r"\033]52;c;ZXZpbA==\a\033]0;title\a\033P1;2q\033\\\033[2J\033[3A\033[31mred\033[0m OK\r\n"
    outside = subprocess.run(["printf", text], capture_output=True, check=True).stdout
    shown, status = bare(tmp_path, "printf", text)
    assert status == 0
    assert b"\x1b[31mred\x1b[0m OK" in shown
    for acts in (b"\x1b]52", b"\x1b]0;", b"\x1bP", b"\x1b[2J", b"\x1b[3A"):
        assert acts in outside and acts not in shown


@pytest.mark.live("namespaces")
def test_pipes_stay_pipes(tmp_path: Path) -> None:
    line = f"{RUN} sh -c 'test -t 1 || echo no terminal; printf \"\\033]0;t\\a\"' | cat -v"
    pid, outer = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv("/bin/sh", ["sh", "-c", line])
    shown = b""
    try:
        while chunk := os.read(outer, 4096):
            shown += chunk
    except OSError:
        pass
    os.close(outer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"no terminal" in shown and b"^[]0;t^G" in shown  # bytes for a program are bytes


@pytest.mark.live("namespaces")
def test_signals_and_exit_statuses_are_as_a_shell_shows_them(tmp_path: Path) -> None:
    assert bare(tmp_path, "sh", "-c", "exit 7")[1] == 7
    assert bare(tmp_path, "sh", "-c", "kill -TERM $$")[1] == 128 + signal.SIGTERM
    assert bare(tmp_path, "sh", "-c", "kill -SEGV $$")[1] == 128 + signal.SIGSEGV
    assert bare(tmp_path, "no-such-program")[1] == 127


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_terminal_is_set_back_when_we_are_killed(tmp_path: Path, number: signal.Signals) -> None:
    outer, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    pid = os.fork()
    if pid == 0:
        os.login_tty(inner) if hasattr(os, "login_tty") else _login(inner)
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "ringfence", "run", "--", "sh", "-c", "stty raw; echo begun; sleep 100"])
    shown = b""
    while b"begun" not in shown:
        shown += os.read(outer, 4096)
    assert termios.tcgetattr(inner) != before
    os.kill(pid, number)
    os.waitpid(pid, 0)
    limit = time.monotonic() + SECONDS
    while termios.tcgetattr(inner) != before:
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.close(outer)
    os.close(inner)


def _login(inner: int) -> None:
    os.setsid()
    for at in range(3):
        os.dup2(inner, at)
    os.close(os.open(os.ttyname(0), os.O_RDWR))


@pytest.mark.live("namespaces")
def test_a_box_cannot_type_into_the_callers_terminal(terminal: Terminal) -> None:
    terminal.type(
        f"{RUN} python3 -c 'import fcntl,os; [fcntl.ioctl(0, 0x5412, bytes([c])) for c in b\"echo typed\\n\"]'; echo over\n"
    )
    terminal.shows("\nover")
    assert "\ntyped" not in terminal.screen()


def time_of_start(terminal: Terminal, command: str) -> None:
    """Wait until the command runs: its name is among the processes."""

    def runs() -> bool:
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return command in listed

    terminal.until(runs, f"{command} never ran")
