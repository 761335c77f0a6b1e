"""The journal of a run: what was begun and what has ended, written before and after, so that a crash does nothing twice.

A file of JSON lines for each run, in the state folder, which no box ever has. Each line is one write(2): what was written when the
process is killed is in the file. Not promised: that it survives a loss of power. It holds the whole conversation as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from ringfence import state
from ringfence.errors import AgentError, ArgumentError, HostError
from ringfence.trace import place

KEPT_SECONDS = 30 * 86_400.0
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{12}")


def new_run_id() -> str:
    """When it began (UTC), and what no other one has."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(6).hex()}"


class Journal:
    """The record of one run, held by one process at a time. Closing it gives it back."""

    def __init__(self, run_id: str, descriptor: int | None) -> None:
        self.run_id = run_id
        self.start: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] | None = None
        self._descriptor = descriptor
        self._responses: dict[int, Any] = {}
        self._begun: set[tuple[int, int]] = set()
        self._answers: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._resumed: set[int] = set()

    @classmethod
    def none(cls, start: Mapping[str, Any]) -> Journal:
        """One that is kept nowhere."""
        made = cls(new_run_id(), None)
        made.start = start
        return made

    @classmethod
    def begin(cls, folder: str | None, start: Mapping[str, Any]) -> Journal:
        """A new one. Raises TraceError for a folder that is not its owner's alone, HostError."""
        run_id = new_run_id()
        path = _path(folder, run_id)
        place.prepare(path)
        _remove_old(os.path.dirname(path))
        made = cls(run_id, _opened(path, run_id))
        made._write({"kind": "start", **start})
        return made

    @classmethod
    def reopen(cls, folder: str | None, run_id: str) -> Journal:
        """That of an earlier run. A last line that was cut is as if it were not written.

        Raises ArgumentError where there is none, AgentError where another process has it or it cannot be read, TraceError.
        """
        if not RUN_ID.fullmatch(run_id):
            raise ArgumentError(f"{run_id!r} is not the id of a run.")
        path = _path(folder, run_id)
        if not place.check(path):
            raise ArgumentError(f"there is no run {run_id} in {os.path.dirname(path)}.")
        made = cls(run_id, _opened(path, run_id))
        try:
            made._read(path)
        except BaseException:
            made.close()
            raise
        return made

    def response(self, turn: int) -> Any:
        """The answer of the model in that turn, as it was written; None for one that is not there."""
        return self._responses.get(turn)

    def answer(self, turn: int, index: int) -> Mapping[str, Any] | None:
        """What a call of that turn gave: text, ok, error. None where it has not ended."""
        return self._answers.get((turn, index))

    def unknown(self, turn: int, index: int) -> bool:
        """Whether a call of that turn was begun, and its end is not written."""
        return (turn, index) in self._begun and (turn, index) not in self._answers

    def was_resumed(self, turn: int) -> bool:
        """Whether the run went on in another process before that turn."""
        return turn in self._resumed

    def say_resumed(self, turn: int) -> None:
        self._write({"kind": "resumed", "turn": turn})

    def say_response(self, turn: int, message: Any) -> None:
        self._write({"kind": "response", "turn": turn, "message": message})

    def say_begun(self, turn: int, index: int, name: str, arguments: Mapping[str, Any] | str) -> None:
        self._write({"kind": "call", "turn": turn, "index": index, "name": name, "arguments": arguments})

    def say_answer(self, turn: int, index: int, text: str, ok: bool, error: str) -> None:
        self._write({"kind": "answer", "turn": turn, "index": index, "text": text, "ok": ok, "error": error})

    def say_end(self, end: Mapping[str, Any]) -> None:
        self._write({"kind": "end", **end})

    def close(self) -> None:
        """Let another process have it. Safe to call again."""
        held, self._descriptor = self._descriptor, None
        if held is not None:
            os.close(held)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._take(record)
        if self._descriptor is None:
            return
        line = json.dumps(record, default=repr).encode() + b"\n"  # ASCII: also what no UTF-8 has, as half of a pair
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise HostError(f"the journal of run {self.run_id} cannot be written: {error.strerror}.", hint=NOTHING_BEGUN) from None
        if written != len(line):
            raise HostError(f"the journal of run {self.run_id} cannot be written: the disk is full.", hint=NOTHING_BEGUN)

    def _read(self, path: str) -> None:
        assert self._descriptor is not None
        data = bytearray()
        while piece := os.read(self._descriptor, 1 << 20):
            data += piece
        whole, _, cut = data.rpartition(b"\n")
        if cut:
            os.ftruncate(self._descriptor, len(data) - len(cut))
        try:
            for line in whole.splitlines() if whole else ():
                self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AgentError(f"{path} is damaged before its last line, so nobody knows what the run did.") from None
        if not self.start:
            raise AgentError(f"the run {self.run_id} was ended before its beginning was written, so nothing of it was done.")

    def _take(self, record: Mapping[str, Any]) -> None:
        kind = record["kind"]
        if kind == "start":
            self.start = record
        elif kind == "response":
            self._responses[record["turn"]] = record["message"]
        elif kind == "call":
            self._begun.add((record["turn"], record["index"]))
        elif kind == "answer":
            self._answers[record["turn"], record["index"]] = record
        elif kind == "resumed":
            self._resumed.add(record["turn"])
        elif kind == "end":
            self.end = record


NOTHING_BEGUN = "Make room; what could not be written down was not begun, and Agent.resume goes on with the run."


def _path(folder: str | None, run_id: str) -> str:
    return f"{folder or f'{state.folder()}/agent'}/{run_id}.jsonl"


def _opened(path: str, run_id: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"the journal {path} cannot be opened: {error.strerror}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AgentError(f"the run {run_id} is being carried out just now.", hint="Wait for it to end.") from None
    return descriptor


def _remove_old(folder: str) -> None:
    """Journals that nobody wrote to for a month."""
    before = time.time() - KEPT_SECONDS
    with os.scandir(folder) as found:
        for each in found:
            try:
                if RUN_ID.fullmatch(each.name.removesuffix(".jsonl")) and each.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(each.path)
            except OSError:
                pass  # another process was first
