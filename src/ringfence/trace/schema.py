"""The file: an SQLite database of two tables, and how one is told from other files, from newer ones and from broken ones."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from ringfence.errors import TraceError

T = TypeVar("T")

APPLICATION = 0x52464E43  # "RFNC": what file(1) and SQLite call application_id
VERSION = 1

# No index: each would be a page more to write with each row, and what belongs to a row stands soon after it.
TABLES = (
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, about INTEGER NOT NULL, "
    "body BLOB NOT NULL, out BLOB, err BLOB, hash BLOB NOT NULL)",
    "CREATE TABLE plans (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
)

BUSY, LOCKED, READ_ONLY, CANNOT_OPEN = 5, 6, 8, 14  # SQLITE_BUSY, SQLITE_LOCKED: sqlite.org/rescode.html
KINDS = {
    8: ("read-only", "cannot be written, which its file system or its mode refuses", "Mount it writable, or name another place."),
    10: ("full", "cannot be written or read: the disk fails or is full", "Look at the disk of its folder."),
    11: ("corrupt", "is corrupt", "Move it away; a new one is begun. `ringfence trace verify` names what can still be read."),
    13: ("full", "cannot grow: its disk is full", "Free some room, or `ringfence trace prune`."),
    14: ("access", "cannot be opened", "Check the folder and its mode."),
    26: ("foreign", "is not a database", "Name another place, or move the file away."),
}
"""SQLite's primary result codes (sqlite.org/rescode.html): our kind, what to say, the next step."""

DEADLINE_SECONDS = 5.0
"""How long a record waits for others that write: more than 64 writers need, and a call must not hang on a trace."""


def connect(path: str, *, read_only: bool = False, unchanging: bool = False) -> sqlite3.Connection:
    """A connection that waits for nobody: waiting is done by `retried`. Threads share it behind a lock of ours.

    unchanging: nothing can write the file, so that no log is looked for, which could not be opened there either.
    """
    from urllib.parse import quote

    mode = "ro&immutable=1" if unchanging else "ro" if read_only else "rw"
    made = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}", timeout=0, isolation_level=None, check_same_thread=False, uri=True, cached_statements=32
    )
    if read_only:
        made.execute("PRAGMA query_only = ON")
    return made


def check(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file is a trace; False for an empty one. Raises TraceError for one of another program or of a newer version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == APPLICATION:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise TraceError(
                f"{path} is a trace of version {version}; this ringfence knows {VERSION}.",
                path=path,
                kind="newer",
                hint="Use the newer ringfence, or name another place.",
            )
        return True
    if application or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise TraceError(
            f"{path} is a database of another program.", path=path, kind="foreign", hint="Name another place for the trace."
        )
    return False


def make(connection: sqlite3.Connection) -> None:
    """Make the tables, within a transaction of the caller."""
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has the lock, so that trying again helps."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (BUSY, LOCKED)


def pause(tries: int) -> None:
    """Wait a little: writers hold the lock for some tens of microseconds, so the first waits are as short."""
    from random import random

    time.sleep(min(0.00005 * 2 ** min(tries, 8), 0.005) * (0.5 + random()))


def retried(act: Callable[[], T], seconds: float) -> T:
    """act, again while another connection has the lock, for at most so many seconds. Raises what it raised last."""
    until, tries = 0.0, 0
    while True:
        try:
            return act()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise
            until = until or time.monotonic() + seconds
            if time.monotonic() > until:
                raise
        pause(tries)
        tries += 1


def failure(error: sqlite3.Error, path: str) -> TraceError:
    """The error of ours for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (BUSY, LOCKED):
        return TraceError(
            f"the trace {path} is held by another program.",
            path=path,
            kind="locked",
            hint="Find who has it open (fuser); a trace is written for microseconds at a time.",
        )
    kind, said, hint = KINDS.get(code, ("corrupt", f"cannot be used ({error})", "Look at the file, or name another place."))
    return TraceError(f"the trace {path} {said}.", path=path, kind=kind, hint=hint)
