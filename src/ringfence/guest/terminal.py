"""A command at a terminal of its own, made inside the box, where its name exists.

Between the guest and the command stands a keeper: leader of the session, owner of the terminal, parent of the command, which
is a job of that session as it would be under a shell. Without it the kernel drops the stop of Ctrl-Z, since a process group
whose parent is of another session counts as orphaned (setpgid(2)). The keeper stops when its command does, and ends as it ends.
"""

import fcntl
import os
import resource
import signal
import sys

from ringfence.guest import kernel

TIOCSWINSZ, TIOCSCTTY, TIOCGPTN, TIOCSPTLCK = 0x5414, 0x540E, 0x80045430, 0x40045431  # asm-generic/ioctls.h

TCGETS, TCSETS, TERMIOS_BYTES, IUTF8 = 0x5401, 0x5402, 36, 0x4000  # asm-generic/termbits.h, c_iflag comes first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def set_size(terminal: int, rows: int, columns: int) -> None:
    size = b"".join(number.to_bytes(2, sys.byteorder) for number in (rows, columns, 0, 0))
    fcntl.ioctl(terminal, TIOCSWINSZ, size)


def start(rows: int, columns: int, become: "Callable[[], None]", keep: "Callable[[int], int]") -> "tuple[int, int, int]":
    """Fork a keeper with a command that becomes what `become` makes of it; the keeper, the command, the terminal's outer end.

    become() sets limits and execs; it never returns. keep(number) moves what it needs for that to number and after it, and gives
    the next. Raises the OSError of a terminal that could not be had, or of exec.
    """
    outer = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    told, tell = os.pipe()
    try:
        number = int.from_bytes(fcntl.ioctl(outer, TIOCGPTN, bytes(4)), sys.byteorder)
        fcntl.ioctl(outer, TIOCSPTLCK, bytes(4))
        modes = bytearray(fcntl.ioctl(outer, TCGETS, bytes(TERMIOS_BYTES)))
        modes[1] |= IUTF8 >> 8  # erasing takes a whole character
        fcntl.ioctl(outer, TCSETS, bytes(modes))
        set_size(outer, rows, columns)
        keeper = os.fork()
        if keeper == 0:
            try:
                _keep(f"/dev/pts/{number}", tell, become, keep)
            finally:
                os._exit(127)
    except OSError:
        os.close(outer)
        os.close(told)
        raise
    finally:
        os.close(tell)
    said = b""
    while piece := os.read(told, 64):  # ends with exec, which closes the other end
        said += piece
    os.close(told)
    command, _, failure = said.partition(b" ")
    if failure or not command:
        os.close(outer)
        os.waitpid(keeper, 0)
        error = int(failure or b"5")  # EIO: the keeper ended before it had a command
        raise OSError(error, os.strerror(error))
    return keeper, int(command), outer


def _keep(name: str, tell: int, become: "Callable[[], None]", keep: "Callable[[int], int]") -> None:
    try:
        os.setsid()
        inner = os.open(name, os.O_RDWR)
        fcntl.ioctl(inner, TIOCSCTTY, 0)
        for at in range(3):
            os.dup2(inner, at)
        os.dup2(tell, 3, inheritable=False)
        kernel.close_from(keep(4))
        wait, go = os.pipe()
        command = os.fork()
        if command == 0:
            os.close(go)
            _command(wait, become)
        try:
            os.setpgid(command, command)
            os.tcsetpgrp(0, command)
        except OSError:
            os.kill(command, signal.SIGKILL)
            raise
        os.write(3, b"%d" % command)
    except OSError as error:
        os.write(tell, b"0 %d" % (error.errno or 5))
        os._exit(127)
    kernel.close_from(0)  # and with it `go`. The terminal is the command's alone: its end is the end of what it holds
    os._exit(_outlive(command))


def _command(wait: int, become: "Callable[[], None]") -> None:
    try:
        os.read(wait, 1)  # until the terminal is its own
        become()
    except OSError as error:
        os.write(3, b" %d" % (error.errno or 5))
    finally:
        os._exit(127)


def _outlive(command: int) -> int:
    while True:
        status = os.waitpid(command, os.WUNTRACED)[1]
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)  # the guest hears of this one, and lets us go on
            os.killpg(command, signal.SIGCONT)
        elif os.WIFSIGNALED(status):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if os.WTERMSIG(status) == signal.SIGXFSZ:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the only one that may be ignored here
            os.kill(os.getpid(), os.WTERMSIG(status))
            return 128 + os.WTERMSIG(status)
        else:
            return os.WEXITSTATUS(status)
