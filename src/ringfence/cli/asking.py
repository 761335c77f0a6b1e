"""Who is asked at the command line: the person at its terminal. Loaded where the config says that somebody may be."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringfence.cli.relay import Held, write_all
from ringfence.cli.shown import shown
from ringfence.cli.terminal import restored_whatever_happens
from ringfence.permission.questions import NOT_AGAIN, TWICE
from ringfence.permission.terminal import TERMINAL, CliApprover

if TYPE_CHECKING:
    from ringfence.outcome import Result


@contextmanager
def approver() -> Iterator[CliApprover]:
    """Who is asked. The mark of its questions is shown first, and its terminal is left as it was, whatever ends."""
    made = CliApprover(hold=Held())
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is none: what would be asked is refused, and says so
        yield made
        return
    try:
        line = f"ringfence: its questions show the mark {made.mark}; one without it is not from ringfence\r\n"
        write_all(terminal, line.encode())
        with restored_whatever_happens(terminal, termios.tcgetattr(terminal)):
            yield made
    finally:
        os.close(terminal)


def held(approver: CliApprover, *sinks: Callable[[bytes], None]) -> tuple[Callable[[bytes], None], ...]:
    """Sinks that wait while a question has the terminal."""

    def waiting(sink: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def pass_on(data: bytes) -> None:
            with approver.hold():
                sink(data)

        return pass_on

    return tuple(waiting(sink) for sink in sinks)


def tell(result: Result) -> None:
    """On standard error, what a result says of a second run."""
    for note in result.notes:
        if note.startswith((NOT_AGAIN, TWICE)):
            print(f"ringfence: {shown(note)}", file=sys.stderr)
