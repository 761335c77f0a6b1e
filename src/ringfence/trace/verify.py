"""Whether a trace is as it was written: every row, every plan and, where a head was kept elsewhere, its end.

What is read may have been changed by somebody who wants us to fail: nothing of it is believed, and a wrong type is a finding.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from ringfence.errors import ArgumentError
from ringfence.policy.digest import digest
from ringfence.trace.chain import NOTHING, row_hash
from ringfence.trace.reader import Reader
from ringfence.values import frozen

MOST_FAULTS = 20


@frozen
class Head:
    """The last row of a trace at some time: which trace, its number, its hash in hexadecimal digits."""

    trace: str
    row: int
    hash: str

    def __str__(self) -> str:
        return f"{self.trace}:{self.row}:{self.hash}"

    @classmethod
    def of(cls, text: str) -> Head:
        """From what str() or `trace head --json` gives. Raises ArgumentError."""
        text = text.strip()
        try:
            if text.startswith("{"):
                said = json.loads(text)
                return cls(str(said["trace"]), int(said["row"]), str(said["hash"]))
            trace, row, hashed = text.split(":")
            return cls(trace, int(row), hashed)
        except (ValueError, KeyError, TypeError):
            raise ArgumentError(
                f"{text[:100]!r} is not the head of a trace.", hint="Give what `ringfence trace head` printed."
            ) from None


@frozen
class Verdict:
    """faults: what is wrong, the first ones, in words; none: the trace is as it was written. rows: how many were looked at."""

    rows: int
    faults: tuple[str, ...]
    head: Head | None
    anchored: int = 0

    @property
    def ok(self) -> bool:
        return not self.faults


def verify(reader: Reader, against: Head | None = None) -> Verdict:
    """Look at everything. against: a head of this trace that was kept elsewhere. Raises TraceError where nothing can be read."""
    look = _Look(against)
    with reader.unchanged() as connection:
        try:
            for row in connection.execute("SELECT number, at, kind, about, body, out, err, hash FROM rows ORDER BY number"):
                look.row(row)
            plans = dict(connection.execute("SELECT digest, body FROM plans"))
            broken = [str(line[0]) for line in connection.execute("PRAGMA integrity_check(5)") if line[0] != "ok"]
        except sqlite3.DatabaseError as error:
            return look.verdict((f"the file cannot be read on: {error}",))
    return look.verdict((*(f"SQLite: {line}" for line in broken), *look.plans(plans), *look.end()))


def head(reader: Reader) -> Head:
    """The last row as it is, nothing of it verified. Raises TraceError."""
    row = reader.last()
    return Head(reader.identity(), row.number, row.hash)


class _Look:
    def __init__(self, against: Head | None) -> None:
        self._against = against
        self._faults: list[str] = []
        self._before, self._number, self._rows = NOTHING, 0, 0
        self._trace = ""
        self._anchor: tuple[int, bytes] | None = None
        self._confirmed: set[tuple[int, str]] = set()
        self._plans: dict[str, int] = {}
        self._met = False

    def row(self, row: tuple[object, ...]) -> None:
        number, at, kind, about, body, out, err, hashed = row
        self._rows += 1
        if not (
            isinstance(number, int) and isinstance(at, int) and isinstance(kind, str) and isinstance(about, int)
            and isinstance(body, bytes) and isinstance(out, (bytes, type(None))) and isinstance(err, (bytes, type(None)))
            and isinstance(hashed, bytes)
        ):  # fmt: skip
            self._faults.append(f"row {number} holds a value of another kind than was written")
            return
        if not self._number and kind == "anchor":
            self._anchor = (number, hashed)
        else:
            if number != self._number + 1:
                missing = f"row {number - 1}" if number == self._number + 2 else f"rows {self._number + 1} to {number - 1}"
                self._faults.append(f"{missing} missing before row {number}")
            if kind == "anchor":
                self._faults.append(f"row {number} is an anchor and not the first row")
            elif row_hash(self._before, number, at, kind, about, body, out, err) != hashed:
                self._faults.append(f"row {number} ({kind}) is not what was written there, or not after what stands before it")
            self._note(number, kind, body)
        if self._against and number == self._against.row:
            self._met = True
            if hashed.hex() != self._against.hash:
                self._faults.append(f"row {number} is another one than the head that was kept")
        self._before, self._number = hashed, number

    def _note(self, number: int, kind: str, body: bytes) -> None:
        try:
            said = json.loads(body)
            if kind == "trace" and number == 1:
                self._trace = str(said["id"])
            elif kind == "pruned":
                self._trace = str(said["id"])
                self._confirmed.add((int(said["through"]), str(said["hash"])))
            elif kind == "box":
                self._plans[str(said["plan"])] = number
        except (ValueError, KeyError, TypeError):
            self._faults.append(f"row {number} ({kind}) does not say what such a row says")

    def plans(self, plans: dict[object, object]) -> Iterator[str]:
        for digested, number in self._plans.items():
            if digested not in plans:
                yield f"the plan of row {number} is missing"
        for name, body in plans.items():
            if not isinstance(body, bytes) or digest(body) != name:
                yield f"plan {str(name)[:12]} is not what was written"

    def end(self) -> Iterator[str]:
        if not self._rows:
            yield "there is no row, and each trace has one"
        if self._anchor and (self._anchor[0], self._anchor[1].hex()) not in self._confirmed:
            yield f"rows up to {self._anchor[0]} are gone, and no later row says that they were pruned"
        if self._against is None:
            return
        if self._trace and self._against.trace != self._trace:
            yield "the head that was kept is of another trace: this one was begun anew"
        elif not self._met and self._against.row > self._number:
            yield f"rows {self._number + 1} to {self._against.row} are missing at the end"
        elif not self._met:
            yield f"row {self._against.row}, the head that was kept, was pruned: what came before it cannot be compared"

    def verdict(self, more: tuple[str, ...]) -> Verdict:
        faults = (*self._faults, *more)
        head = Head(self._trace, self._number, self._before.hex()) if self._rows else None
        if len(faults) > MOST_FAULTS:
            faults = (*faults[:MOST_FAULTS], f"and {len(faults) - MOST_FAULTS} more")
        return Verdict(self._rows, faults, head, self._anchor[0] if self._anchor else 0)
