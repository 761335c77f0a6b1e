"""The record that the command line keeps: by default, and late, so that a command starts as soon as it would without.

SQLite and the rest are imported while the command runs. Nobody has been told anything by then: what is promised is that a run
whose end was reported is recorded, and our exit is the report.
"""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

from ringfence.errors import ArgumentError
from ringfence.recorder import BoxEnded, BoxStarted, QuestionAsked, Recorder, RunEnded, RunStarted
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig
    from ringfence.trace import Trace


def recorded(given: argparse.Namespace, config: SandboxConfig) -> tuple[SandboxConfig, Recorder | None]:
    """The config and the recorder of a box. A policy that requires a record has its own, made before the box is used."""
    if config.trace == "required":
        if given.no_trace:
            raise ArgumentError("--no-trace: the policy requires that runs are recorded.", hint="Leave the option out.")
        return config, None
    if given.no_trace:
        return replace(config, trace="none"), None
    return config, Late(config.trace_durability)


class Late:
    """A trace that is opened at the first run. The box is recorded then, before the run."""

    required = False

    def __init__(self, durability: str) -> None:
        self.durability = durability
        self._trace: Trace | None = None
        self._made: BoxStarted | None = None
        self._box = 0
        self._lock = threading.Lock()  # a question about a host is told of by a thread of its own

    def box_started(self, made: BoxStarted) -> int:
        self._made = made
        return 0

    def run_started(self, begun: RunStarted) -> int:
        trace = self._opened()
        return trace.run_started(replace(begun, box_row=self._box))

    def run_ended(self, ended: RunEnded) -> None:
        self._opened().run_ended(replace(ended, box_row=self._box))

    def asked(self, asked: QuestionAsked) -> None:
        trace = self._opened()
        trace.asked(replace(asked, box_row=self._box))

    def box_ended(self, ended: BoxEnded) -> None:
        try:
            trace = self._opened()
            trace.box_ended(replace(ended, box_row=self._box))
        finally:
            if self._trace is not None:
                self._trace.close()

    def _opened(self) -> Trace:
        with self._lock:
            if self._trace is None:
                from ringfence.trace import Trace

                self._trace = Trace(durability=self.durability)
            if not self._box and self._made is not None:
                self._box = self._trace.box_started(self._made)
            return self._trace
