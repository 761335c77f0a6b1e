"""Writes rows, each in a transaction of its own: when append returns, the row is in the kernel's hands.

WAL with synchronous=NORMAL: what is committed is written to the log by write(2), so it survives the end of every process, and a
loss of power takes the last rows at most and corrupts nothing. FULL adds an fsync of the log (sqlite.org/wal.html). SQLite's own
wait for a lock sleeps for milliseconds where a writer holds it for microseconds, and is unfair: so we try again ourselves.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import ClassVar, TypeAlias, TypeVar

from ringfence.errors import TraceError
from ringfence.trace import place, schema
from ringfence.trace.chain import NOTHING, row_hash

T = TypeVar("T")

Before: TypeAlias = tuple[str, int, bytes, bytes | None]
"""Kind, what it belongs to, body and first stream of a row."""

AFTER_A_FAILURE = 0.05
"""Seconds that a record waits for the lock after one has waited in vain: not every call is to wait for a trace that is stuck."""
LAST = "SELECT number, hash FROM rows ORDER BY number DESC LIMIT 1"
INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def started(pid: int) -> int:
    """When a process began, in ticks since the start of this machine; 0 for none (proc_pid_stat(5), field 22)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def lives(pid: object, since: object) -> bool:
    """Whether the process that wrote of itself with this pid and beginning is there. Not promised after a restart."""
    return isinstance(pid, int) and bool(since) and started(pid) == since


class Writer:
    """The one connection of this process to a trace. Threads take turns; a fork has a connection of its own."""

    _open: ClassVar[dict[tuple[str, str], Writer]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()
    _of_a_parent: ClassVar[list[Writer]] = []  # kept: a fork that closed its connection could end what the parent has open

    def __init__(self, path: str, durability: str) -> None:
        self.path, self.durability = path, durability
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self.pid = os.getpid()
        self._identity = (0, 0)
        self._users = 0
        self._stuck = False
        self._full = False

    @classmethod
    def of(cls, path: str, durability: str) -> Writer:
        """The writer of this process for path; release() it."""
        key = (path, durability)
        with cls._guard:
            writer = cls._open.get(key)
            if writer is None:
                writer = cls._open[key] = cls(path, durability)
            writer._users += 1
            return writer

    def release(self) -> None:
        """One user less; the last one closes the file."""
        if self.pid != os.getpid():
            return  # it is the parent's
        with self._guard:
            self._users -= 1
            if self._users > 0:
                return
            self._open.pop((self.path, self.durability), None)
        with self._lock:
            self._let_go()

    def append(
        self,
        kind: str,
        about: int,
        body: bytes,
        out: bytes | None = None,
        err: bytes | None = None,
        *,
        plan: tuple[str, bytes] | None = None,
        before: Before | None = None,
        last: bool = False,
    ) -> int:
        """Write one row; returns its number. before: a row right before it, which this one then belongs to.

        last: with durability 'power' it and all before it are on the disk then. Raises TraceError; then nothing is written.
        """
        with self._lock:
            try:
                connection = self._ready()
                self._sync(connection, last and self.durability == "power")
                self._retried(lambda: connection.execute("BEGIN IMMEDIATE"))
                return self._insert(connection, kind, about, body, out, err, plan, before)
            except sqlite3.Error as error:
                self._stuck = schema.is_busy(error)
                if not self._stuck:
                    self._let_go()  # the next one looks at the file anew
                raise schema.failure(error, self.path) from None

    def _insert(
        self,
        connection: sqlite3.Connection,
        kind: str,
        about: int,
        body: bytes,
        out: bytes | None,
        err: bytes | None,
        plan: tuple[str, bytes] | None,
        first: Before | None,
    ) -> int:
        try:
            number, before = connection.execute(LAST).fetchone() or (0, NOTHING)
            number, at = number + 1, time.time_ns()
            if first is not None:
                before = row_hash(before, number, at, *first)
                connection.execute(INSERT, (number, at, *first, None, before))
                number, about = number + 1, number
            connection.execute(
                INSERT, (number, at, kind, about, body, out, err, row_hash(before, number, at, kind, about, body, out, err))
            )
            if plan is not None:
                connection.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", plan)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return int(number)

    def _ready(self) -> sqlite3.Connection:
        """The connection, to the file that is at the path now: one that was removed takes no record."""
        if self._connection is not None and place.identity(self.path) != self._identity:
            self._let_go()
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        place.prepare(self.path)
        identity = place.identity(self.path)
        connection = schema.connect(self.path)
        try:
            self._retried(lambda: self._set_up(connection))
        except BaseException:
            connection.close()
            raise
        self._identity, self._full = identity, False
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        is_trace = schema.check(connection, self.path)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise TraceError(
                f"the trace {self.path} cannot have a write-ahead log on its file system.",
                path=self.path,
                kind="access",
                hint="Name a place on a file system of this machine.",
            )
        connection.execute("PRAGMA synchronous = NORMAL")
        if is_trace:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not schema.check(connection, self.path):  # nobody else was first
                schema.make(connection)
                body = b'{"id":"%b","version":%d}' % (os.urandom(16).hex().encode(), schema.VERSION)
                at = time.time_ns()
                hashed = row_hash(NOTHING, 1, at, "trace", 0, body)
                connection.execute(INSERT, (1, at, "trace", 0, body, None, None, hashed))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _sync(self, connection: sqlite3.Connection, full: bool) -> None:
        if full is not self._full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full

    def _retried(self, act: Callable[[], T]) -> T:
        """act, again while another connection has the lock, for at most DEADLINE_SECONDS."""
        done = schema.retried(act, AFTER_A_FAILURE if self._stuck else schema.DEADLINE_SECONDS)
        self._stuck = False
        return done

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # what was committed is in the log

    @classmethod
    def forked(cls) -> None:
        """In a fork: what the parent has open is left alone."""
        cls._of_a_parent += cls._open.values()
        cls._open, cls._guard = {}, threading.Lock()


os.register_at_fork(after_in_child=Writer.forked)
