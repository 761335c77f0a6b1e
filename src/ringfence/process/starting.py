"""The seam between a running command's handle and the world that started it."""

from __future__ import annotations

from typing import Protocol

from ringfence.outcome import Result
from ringfence.process.command import Command
from ringfence.process.run import Run


class Starts(Protocol):
    """A world that starts commands."""

    def begin(self, command: Command, *, drained: bool = True, ends: list[int] | None = None) -> Run: ...

    def result(self, run: Run, command: Command) -> Result: ...
