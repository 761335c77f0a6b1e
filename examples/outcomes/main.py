"""One real run for each way that a run can end: what the caller gets, and what a model is told. Prints the table of README.

.venv/bin/python examples/outcomes/main.py
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from ringfence.errors import RingfenceError
from ringfence.outcome import CapHit, Outcome, Result
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

HEADING = "| ran | the caller gets | `for_model()` says |\n|---|---|---|"
LIMITS = SandboxLimits(cpu_seconds=1, wall_seconds=30, memory_bytes=128 << 20)
COMMANDS: dict[str, float | None] = {  # each with its timeout
    "echo hello": None,
    "grep -q needle /dev/null": None,
    "echo x > /etc/zz": None,
    "unshare -U true; true": None,
    "kill -KILL $$": None,
    "sleep 60": 0.5,
    "while :; do :; done": None,
    "tail /dev/zero": None,
}


class Row(NamedTuple):
    """One run, as both see it."""

    ran: str
    caller: str
    model: str

    def __str__(self) -> str:
        cells = (f"`{self.ran}`", f"`{self.caller}`", self.model)
        return f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), '<br>') for cell in cells)} |"


def rows() -> Iterator[Row]:
    """Run everything, in one box and a last one that is killed from outside."""
    with Sandbox(SandboxConfig(limits=LIMITS)) as box:
        for command, timeout in COMMANDS.items():
            yield _row(command + (f"  # timeout={timeout}" if timeout else ""), box.execute_command(command, timeout=timeout))
        yield _row("run(['nope'])", box.run(["nope"]))
        yield _lost(box)


def _row(ran: str, result: Result) -> Row:
    denied = "".join(f", denied: {denial.kind} {denial.target} ({denial.evidence})" for denial in result.denials)
    return Row(ran, _short(result.outcome) + denied, result.for_model())


def _short(outcome: Outcome) -> str:
    if isinstance(outcome, CapHit) and outcome.observed is not None:
        outcome = CapHit(outcome.kind, outcome.limit, round(outcome.observed, 2), outcome.enforced_by)
    return repr(outcome).replace(".0,", ",")


def _lost(box: Sandbox) -> Row:
    """A box that something outside kills under its command."""
    assert box._world is not None
    first_process = box._world.box.pid  # nobody needs it but those who want to see a box die
    try:
        box.run(["sh", "-c", "echo; sleep 60"], on_stdout=lambda chunk: os.kill(first_process, signal.SIGKILL))
    except RingfenceError as error:
        return Row("sleep 60  # and the box is killed", type(error).__name__, error.for_model())
    raise AssertionError("the box lived")


if __name__ == "__main__":
    print(HEADING)
    for row in rows():
        print(row)
