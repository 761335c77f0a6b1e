"""Who is asked at the command line: the person at its terminal, where the config says that somebody is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.outcome import Result
    from ringfence.permission.terminal import CliApprover
    from ringfence.policy.config import SandboxConfig


def asks(config: SandboxConfig) -> bool:
    """Whether a box of this config may have something to ask."""
    return bool(config.permissions or config.escalation != "none" or config.on_unknown_domain == "ask")


@contextmanager
def approver(config: SandboxConfig) -> Iterator[CliApprover | None]:
    """Who is asked, None where nobody is to be. The mark of its questions is shown first, and its terminal is left as it was."""
    if not asks(config):
        yield None
        return
    from ringfence.cli.relay import Held
    from ringfence.permission.terminal import TERMINAL, CliApprover  # a command line that asks nothing loads none of it

    made = CliApprover(hold=Held())
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is none: what would be asked is refused, and says so
        yield made
        return
    try:
        import termios

        from ringfence.cli.relay import write_all
        from ringfence.cli.terminal import restored_whatever_happens

        write_all(
            terminal, f"ringfence: its questions show the mark {made.mark}; one without it is not from ringfence\r\n".encode()
        )
        with restored_whatever_happens(terminal, termios.tcgetattr(terminal)):
            yield made
    finally:
        os.close(terminal)


def held(approver: CliApprover | None, *sinks: Callable[[bytes], None]) -> tuple[Callable[[bytes], None], ...]:
    """Sinks that wait while a question has the terminal."""
    if approver is None:
        return sinks
    hold = approver.hold

    def waiting(sink: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def pass_on(data: bytes) -> None:
            with hold():
                sink(data)

        return pass_on

    return tuple(waiting(sink) for sink in sinks)


def tell(result: Result) -> None:
    """On standard error, what a result says of a second run."""
    import sys

    from ringfence.cli.shown import shown
    from ringfence.permission.questions import NOT_AGAIN, TWICE

    for note in result.notes:
        if note.startswith((NOT_AGAIN, TWICE)):
            print(f"ringfence: {shown(note)}", file=sys.stderr)
