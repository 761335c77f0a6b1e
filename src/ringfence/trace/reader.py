"""Reads a trace: boxes and runs as they were recorded, while others write. Never changes the file.

What is in it may come from a box or from somebody who changed the file: it is data to show, and what does not parse is left empty.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ringfence.errors import TraceError
from ringfence.trace import place, schema
from ringfence.values import field, frozen


@frozen
class Row:
    """One row as it is. at: seconds since the epoch. about: the row that it belongs to, 0 for none."""

    number: int
    at: float
    kind: str
    about: int
    body: Mapping[str, Any]
    out: bytes | None = None
    err: bytes | None = None
    hash: str = ""


@frozen
class RunRecord:
    """One run. ended is None while it is under way, or where what recorded it was killed. box: the row of its box, if any."""

    begun: Row
    ended: Row | None
    box: Row | None
    questions: tuple[Row, ...] = field(default=())

    @property
    def number(self) -> int:
        return self.begun.number

    @property
    def tier(self) -> str:
        """What isolated it; '' where that is not recorded."""
        of = self.ended.body.get("tier") if self.ended else None
        return str(of or (self.box.body.get("tier") if self.box else "") or "")

    @property
    def seconds(self) -> float | None:
        """How long it ran, or its call took where that is not known; None where its end is unknown."""
        usage = self.ended.body.get("usage") if self.ended else None
        ran = usage.get("wall_seconds") if isinstance(usage, dict) else None
        took = ran or (self.ended.body.get("seconds") if self.ended else None)
        return float(took) if isinstance(took, (int, float)) else None

    @property
    def denials(self) -> list[dict[str, Any]]:
        found = self.ended.body.get("denials") if self.ended else None
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    @property
    def enforcement(self) -> Mapping[str, Any]:
        """What held it, dimension by dimension, in words."""
        for row in (self.ended, self.box):
            if row and isinstance(found := row.body.get("enforcement"), dict):
                return found
        return {}


COLUMNS = "number, at, kind, about, body, out, err, hash"


class Reader:
    """A trace, opened to be read. Raises TraceError where there is none, or it is not this user's alone, or is not a trace."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not place.check(path):
            raise TraceError(f"there is no trace at {path}.", path=path, kind="access", hint="Nothing was recorded there yet.")
        try:
            self._connection = schema.retried(self._opened, schema.DEADLINE_SECONDS)
        except sqlite3.Error as error:
            raise schema.failure(error, path) from None

    def _opened(self) -> sqlite3.Connection:
        for unchanging in (False, True):
            connection = schema.connect(self.path, read_only=True, unchanging=unchanging)
            try:
                if not schema.check(connection, self.path):
                    raise TraceError(
                        f"{self.path} is empty.", path=self.path, kind="foreign", hint="Nothing was recorded there yet."
                    )
                return connection
            except BaseException as error:
                connection.close()
                # Where the folder cannot be written the log cannot be made, and where there is none nothing is missing.
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if unchanging or code not in (schema.READ_ONLY, schema.CANNOT_OPEN) or self._has_log():
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _has_log(self) -> bool:
        try:
            return os.stat(f"{self.path}-wal").st_size > 0
        except OSError:
            return False

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def unchanged(self) -> Iterator[sqlite3.Connection]:
        """The connection, and within the block the trace as it is now, whatever is written meanwhile."""
        self._all("BEGIN")
        try:
            self._all("SELECT 1 FROM rows LIMIT 1")  # from here on nothing is waited for
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")

    def rows(self, after: int = 0, most: int = -1) -> Iterator[Row]:
        """Rows in order, from the one after that number."""
        yield from map(_row, self._all(f"SELECT {COLUMNS} FROM rows WHERE number > ? ORDER BY number LIMIT ?", after, most))

    def row(self, number: int) -> Row | None:
        return next(map(_row, self._all(f"SELECT {COLUMNS} FROM rows WHERE number = ?", number)), None)

    def last(self) -> Row:
        """The last row."""
        found = self._all(f"SELECT {COLUMNS} FROM rows ORDER BY number DESC LIMIT 1")
        if not found:
            raise TraceError(f"{self.path} holds no row, and each trace has one.", path=self.path, kind="corrupt")
        return _row(found[0])

    def identity(self) -> str:
        """Which trace this is: its first row says so, and each row about a pruning."""
        query = f"SELECT {COLUMNS} FROM rows WHERE kind IN ('trace', 'pruned') ORDER BY number DESC LIMIT 1"
        return next((str(_row(each).body.get("id", "")) for each in self._all(query)), "")

    def runs(self, most: int = -1, before: int = 1 << 62) -> list[RunRecord]:
        """The last runs, the newest first; before: only those with a lower number."""
        query = f"SELECT {COLUMNS} FROM rows WHERE kind = 'run' AND number < ? ORDER BY number DESC LIMIT ?"
        return self._records([_row(each) for each in self._all(query, before, most)])

    def run(self, number: int) -> RunRecord:
        """One run by its number. Raises TraceError where there is none."""
        row = self.row(number)
        if row is None or row.kind != "run":
            raise TraceError(
                f"{number} is not a run of {self.path}.", path=self.path, kind="access", hint="`ringfence trace ls` names them."
            )
        return self._records([row])[0]

    def plan(self, digest: str) -> list[str]:
        """The lines of a plan; none where it is not there."""
        for (body,) in self._all("SELECT body FROM plans WHERE digest = ?", digest):
            lines = _parsed(body).get("plan", [])
            return [str(line) for line in lines] if isinstance(lines, list) else []
        return []

    def _records(self, begun: list[Row]) -> list[RunRecord]:
        """What belongs to these runs stands after them: read on from the first, until all have ended."""
        ends: dict[int, Row] = {}
        asked: dict[int, tuple[Row, ...]] = {row.number: () for row in begun}
        at = min(asked, default=0)
        while len(ends) < len(begun):
            query = f"SELECT {COLUMNS} FROM rows WHERE number > ? AND kind IN ('end', 'question') ORDER BY number LIMIT 500"
            found = [_row(each) for each in self._all(query, at)]
            if not found:
                break
            for row in found:
                if row.about in asked and row.kind == "end":
                    ends.setdefault(row.about, row)
                elif row.about in asked:
                    asked[row.about] += (row,)
            at = found[-1].number
        boxes = {number: self.row(number) for number in {row.about for row in begun}}
        made = {number: row for number, row in boxes.items() if row is not None and row.kind == "box"}
        return [RunRecord(row, ends.get(row.number), made.get(row.about), asked[row.number]) for row in begun]

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return schema.retried(lambda: self._connection.execute(query, values).fetchall(), schema.DEADLINE_SECONDS)
        except sqlite3.Error as error:
            raise schema.failure(error, self.path) from None


def _row(found: tuple[Any, ...]) -> Row:
    number, at, kind, about, body, out, err, hashed = found
    return Row(
        int(number),
        at / 1e9 if isinstance(at, int) else 0.0,
        str(kind),
        about if isinstance(about, int) else 0,
        _parsed(body),
        out if isinstance(out, bytes) else None,
        err if isinstance(err, bytes) else None,
        hashed.hex() if isinstance(hashed, bytes) else "",
    )


def _parsed(body: object) -> dict[str, Any]:
    try:
        found = json.loads(body) if isinstance(body, (bytes, str)) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
