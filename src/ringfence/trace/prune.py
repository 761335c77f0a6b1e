"""Takes the oldest rows away and leaves an anchor: the number and hash of the last of them, which the chain goes on from.

A row at the end, itself in the chain, says what was pruned; an anchor that no such row confirms is a finding of `verify`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from functools import partial

from ringfence.errors import ArgumentError, TraceError
from ringfence.trace import place, schema
from ringfence.trace.chain import row_hash
from ringfence.trace.writer import INSERT, LAST
from ringfence.values import frozen


@frozen
class Pruned:
    """rows: how many were taken away; through: the number of the last of them, 0 for none."""

    rows: int
    through: int


def prune(path: str, *, before: float | None = None, keep: int | None = None) -> Pruned:
    """Take rows away that are older than before (seconds since the epoch), or all but those of the last `keep` runs.

    Plans that no box of the rest has go too, and the room is given back. Raises TraceError, ArgumentError.
    """
    if (before is None) == (keep is None) or (keep is not None and keep < 0):
        raise ArgumentError("prune takes a time, or how many runs to keep.")
    if not place.check(path):
        raise TraceError(f"there is no trace at {path}.", path=path, kind="access", hint="Nothing was recorded there yet.")
    connection = None
    try:
        connection = schema.connect(path)
        begin = connection.execute
        if not schema.retried(partial(schema.check, connection, path), schema.DEADLINE_SECONDS):
            raise TraceError(f"{path} is empty.", path=path, kind="foreign", hint="Nothing was recorded there yet.")
        connection.execute("PRAGMA secure_delete = ON")
        schema.retried(lambda: begin("BEGIN IMMEDIATE"), schema.DEADLINE_SECONDS)
        try:
            done = _within(connection, before, keep)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        if done.rows:
            _given_back(connection)
        return done
    except sqlite3.Error as error:
        raise schema.failure(error, path) from None
    finally:
        if connection is not None:
            connection.close()


def _within(connection: sqlite3.Connection, before: float | None, keep: int | None) -> Pruned:
    last, hashed = connection.execute(LAST).fetchone()
    if before is not None:
        first_kept = connection.execute("SELECT min(number) FROM rows WHERE at >= ?", (int(before * 1e9),)).fetchone()[0]
    else:
        runs = "SELECT number FROM rows WHERE kind = 'run' ORDER BY number DESC LIMIT 1 OFFSET ?"
        found = connection.execute(runs, (max(0, keep - 1),)).fetchone() if keep else None
        first_kept = found[0] if found else last + 1 if keep == 0 else 1
    through = (last if first_kept is None else int(first_kept) - 1) or 0
    first, kind = connection.execute("SELECT number, kind FROM rows ORDER BY number LIMIT 1").fetchone()
    if through <= (first if kind == "anchor" else 0):
        return Pruned(0, 0)
    trace = _identity(connection)
    anchor = connection.execute("SELECT hash, at FROM rows WHERE number = ?", (through,)).fetchone()
    rows = connection.execute("DELETE FROM rows WHERE number <= ?", (through,)).rowcount
    connection.execute(INSERT, (through, anchor[1], "anchor", 0, b"{}", None, None, anchor[0]))
    said = {"id": trace, "through": through, "hash": anchor[0].hex(), "rows": rows}
    body = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    number, at = last + 1, time.time_ns()
    connection.execute(INSERT, (number, at, "pruned", 0, body, None, None, row_hash(hashed, number, at, "pruned", 0, body)))
    used = set()
    for (box,) in connection.execute("SELECT body FROM rows WHERE kind = 'box'"):
        used.add(json.loads(box).get("plan"))
    for (plan,) in connection.execute("SELECT digest FROM plans").fetchall():
        if plan not in used:
            connection.execute("DELETE FROM plans WHERE digest = ?", (plan,))
    return Pruned(rows, through)


def _identity(connection: sqlite3.Connection) -> str:
    """Which trace this is: its first row says so, and after that each row about a pruning."""
    found = connection.execute("SELECT body FROM rows WHERE kind IN ('trace', 'pruned') ORDER BY number DESC LIMIT 1").fetchone()
    return str(json.loads(found[0])["id"]) if found else ""


def _given_back(connection: sqlite3.Connection) -> None:
    """Give the room back to the file system. Others that write or read meanwhile are a reason to leave it for the next time."""
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        if not schema.is_busy(error):
            raise
