"""The trace: a durable record of every box and every run, in which nothing can be changed without being found.

    with Trace() as trace, Sandbox(trace=trace) as box:      # ringfence.sync
        box.run(["pytest", "-q"])

*Row*: one event, written once. *Chain*: each row has the hash of the one before in its own (ringfence.trace.chain). *Head*:
number and hash of the last row; kept elsewhere, it shows whether rows were taken off the end or the whole was made anew. *Anchor*:
what is left of rows that were pruned. *Plan*: the plan of a box, kept once for all boxes that have it.

What is promised. When a call that was recorded returns, its row survives kill -9 of every process of ours (`durability="process"`);
with "power" also a loss of power, as far as the disk keeps what fsync wrote. No row holds a declared secret or a token of a
known shape, nor a digest of one. Not promised: that who may write the file cannot make a whole new chain, which only a head
that was kept elsewhere tells; and secrets that nobody declared and that look like nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from ringfence import state
from ringfence.errors import ArgumentError
from ringfence.recorder import BoxEnded, BoxStarted, QuestionAsked, RunEnded, RunStarted
from ringfence.trace import bodies
from ringfence.trace.secrets import Scrubber
from ringfence.trace.writer import Writer

__all__ = ["DURABILITIES", "Trace", "default_path"]

DURABILITIES = ("process", "power")


def default_path() -> str:
    """The trace of this user: trace.db in the state folder."""
    return f"{state.folder()}/trace.db"


class Trace:
    """Records boxes and runs in a file. One object serves many boxes, from any thread; `with` or close() lets go of the file.

    path: the file, in a folder of its own that only its owner may enter; None is `trace.db` in the state folder. No box of this
    process can have that folder. durability: 'process' or 'power', see ringfence.trace. required: what cannot be recorded is not
    run, and a run that ended and could not be recorded raises TraceError; else its result has a note. secrets: values that are
    never recorded. secret_variables: variables whose values are not, beside those whose names say so.

    patience: seconds that a run may take before its beginning is a row of its own; both are written at once where it ends within.
    Nothing is opened before the first box. Raises ArgumentError.
    """

    patience = 0.01

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        durability: str = "process",
        required: bool = False,
        secrets: Iterable[str | bytes] = (),
        secret_variables: Iterable[str] = (),
    ) -> None:
        if durability not in DURABILITIES:
            raise ArgumentError(f"durability is 'process' or 'power', not {durability!r}.")
        if isinstance(secrets, (str, bytes)) or isinstance(secret_variables, str):
            raise ArgumentError("secrets and secret_variables take a list of texts.")
        self.path = default_path() if path is None else os.path.abspath(os.fspath(path))
        self.durability = durability
        self._required = required
        self._scrubber = Scrubber(secrets, secret_variables)
        self._writer: Writer | None = None
        if path is not None:
            state.keep_closed(os.path.dirname(self.path))

    @property
    def required(self) -> bool:
        """Whether what cannot be recorded is not run."""
        return self._required

    def box_started(self, made: BoxStarted) -> int:
        """Record that a box was made; returns its row. As the others it is called by boxes, and raises TraceError."""
        self._scrubber.learn(made.variables)
        plan, body = bodies.of_box(made, self._scrubber)
        return self._written().append("box", 0, body, plan=plan)

    def run_started(self, begun: RunStarted) -> int:
        """Record that a run has begun; returns its row."""
        self._scrubber.learn(begun.variables)
        body, data = bodies.of_beginning(begun, self._scrubber)
        return self._written().append("run", begun.box_row, body, data)

    def run_ended(self, ended: RunEnded) -> None:
        """Record how a run ended."""
        before = None
        if ended.unsaid is not None:
            self._scrubber.learn(ended.unsaid.variables)
            before = ("run", ended.unsaid.box_row, *bodies.of_beginning(ended.unsaid, self._scrubber))
        body, out, err = bodies.of_end(ended, self._scrubber)
        self._written().append("end", ended.begun, body, out, err, before=before, last=True)

    def asked(self, asked: QuestionAsked) -> None:
        """Record a question and its answer."""
        self._written().append("question", asked.begun or asked.box_row, bodies.of_question(asked, self._scrubber), last=True)

    def box_ended(self, ended: BoxEnded) -> None:
        """Record that a box is gone."""
        self._written().append("gone", ended.box_row, bodies.of_box_end(ended, self._scrubber), last=True)

    def close(self) -> None:
        """Let go of the file. Safe to call again; what is recorded later opens it again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.release()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _written(self) -> Writer:
        if self._writer is None or self._writer.pid != os.getpid():
            self._writer = Writer.of(self.path, self.durability)
        return self._writer
