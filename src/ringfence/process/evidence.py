"""What the warden tells of one box: records that nothing in the box can write, matched to its runs."""

from __future__ import annotations

import _socket
import os
import threading
import time
from typing import get_args

from ringfence.errors import ProtocolError
from ringfence.guest import wire
from ringfence.outcome import CapKind

MOST = 256
"""Records that are kept until a run asks for them; more push the oldest out."""
LEFT = "by a process that an earlier run left"
CAPS: dict[str, CapKind] = {name: name for name in get_args(CapKind)}


class Cap:
    """A cap that was met. limit and observed: seconds, bytes or a count. run and pid as the box counts processes: the first of
    the run (0: unknown), the one that was killed (0: none). at: nanoseconds of the monotonic clock."""

    __slots__ = ("at", "by", "ends_box", "ends_run", "kind", "limit", "observed", "pid", "run", "told")

    def __init__(self, at: int, fields: dict[str, object]) -> None:
        self.at = at
        kind = CAPS.get(_text(fields, "cap"))
        if kind is None:
            raise ProtocolError("the warden sent a cap that is not known.")
        self.kind: CapKind = kind
        self.limit: float = _number(fields, "limit")
        self.observed: float = _number(fields, "observed")
        if kind == "cpu":  # which is told in microseconds
            self.limit, self.observed = self.limit / 1e6, self.observed / 1e6
        self.by = _text(fields, "by")
        self.pid, self.run = _number(fields, "pid"), _number(fields, "run")
        ends = _number(fields, "ends")
        self.ends_run, self.ends_box = bool(ends & 1), bool(ends & 2)
        self.told = False


class Call:
    """A system call that the filter refused. first, second: what it was for, by two of its arguments; run: the first process of the
    run, or the leader of another session, as the box counts them (0: unknown); count: how often it was made so by then."""

    __slots__ = ("at", "count", "first", "number", "run", "second")

    def __init__(self, at: int, fields: dict[str, object]) -> None:
        self.at = at
        self.number, self.first, self.second = (_number(fields, name) for name in ("syscall", "first", "second"))
        self.run, self.count = _number(fields, "run"), _number(fields, "count")


class Counter:
    """A count of the kernel's that only grows: of forks that it refused (pids.events), of what it killed at the cap on memory
    (memory.events; Documentation/admin-guide/cgroup-v2.rst)."""

    def __init__(self, kind: str, events: int, name: str, limit: int, by: str) -> None:
        self._events, self._name, self.by = events, name.encode() + b" ", by
        self.fields: dict[str, object] = {"cap": kind.encode(), "limit": limit, "observed": limit, "by": by.encode()}
        self.fields |= {"pid": 0, "run": 0, "ends": 0}
        self._seen = self._read()

    def grown(self) -> bool:
        """Whether it counts more than when it was asked last."""
        before, self._seen = self._seen, self._read()
        return self._seen > before

    def _read(self) -> int:
        for line in os.pread(self._events, 256, 0).splitlines():
            if line.startswith(self._name):
                return int(line[len(self._name) :])
        return 0


class Evidence:
    """The reading end of one box's evidence."""

    def __init__(self, socket: _socket.socket) -> None:
        self.socket = socket
        socket.setblocking(False)
        wire.refuse_descriptors(socket)
        self.caps: list[Cap] = []
        self.calls: list[Call] = []
        self.unobserved_since = 0  # from then on refused calls are not told any more; 0: they are
        self.failed = ""  # why the warden has ended the box without a cap
        self._guard = threading.Lock()
        self.dropped = 0  # records that found no room: what is known is not all
        self._counters: list[Counter] = []
        self.lost: set[str] = set()  # controllers whose groups hold the box no more, "v2" for all of version 2

    def count(self, counter: Counter) -> None:
        """What counter counts from now on is evidence too."""
        self._counters.append(counter)

    def read(self) -> None:
        """Take what has come, without waiting."""
        with self._guard:
            self._read()

    def _read(self) -> None:
        for counter in list(self._counters):
            try:
                if counter.grown():
                    self.caps.append(Cap(time.monotonic_ns(), counter.fields))
            except OSError:
                self._counters.remove(counter)  # its group is gone: what nobody counts any more is not told
                self.lost.add(counter.by.split()[-1])
        while True:
            try:
                packet, _ = wire.receive(self.socket, 0)
            except OSError:
                return
            if not packet:
                return
            self._take(wire.decode(packet))
            del self.caps[:-MOST], self.calls[:-MOST]

    def _take(self, fields: object) -> None:
        if not isinstance(fields, dict):
            raise ProtocolError("the warden sent something that is no record.")
        at = _number(fields, "at")
        self.dropped += _number(fields, "dropped") if "dropped" in fields else 0
        if "cap" in fields:
            self.caps.append(Cap(at, fields))
        elif "syscall" in fields:
            self.calls.append(Call(at, fields))
        elif "unobserved" in fields:
            self.unobserved_since = at
        elif "lost" in fields:
            self.lost |= set(_text(fields, "lost").split(","))
        elif "failed" in fields:
            self.failed = _text(fields, "failed")

    def of_run(self, pids: set[int], since: int, alone: bool) -> list[Cap]:
        """Take the records of the run whose first process had one of pids and which began at since; it has ended.

        alone: no other run of the box was under way meanwhile, so that what names no run of the caller's is its own. What names
        no run at all stays, and is shown to each run that it fell into.
        """
        with self._guard:
            self._read()
            if not self.caps:
                return []
            mine = [cap for cap in self.caps if cap.at >= since and (alone or cap.run in pids or not cap.run)]
            for cap in mine:
                cap.told = True
            self.caps = [cap for cap in self.caps if cap not in mine or (not cap.run and not alone)]
            return mine

    def caps_of_none(self) -> list[Cap]:
        """Take the records that no run was told of, where none is under way: of what runs have left behind."""
        with self._guard:
            self._read()
            taken = [cap for cap in self.caps if not cap.told and not cap.ends_box]
            self.caps = [cap for cap in self.caps if cap not in taken]
            return taken

    def calls_of_run(self, pids: set[int], since: int, alone: bool) -> list[tuple[Call, str]]:
        """Take the refused calls of a run that has ended, as of_run() does its caps, each with whose it is where not the run's own.

        A number below those of a run is that of a session which was there before it.
        """
        mine: list[tuple[Call, str]] = []
        kept: list[Call] = []
        for call in self.calls:
            if call.run in pids:
                mine.append((call, ""))
            elif alone and call.at >= since:
                mine.append((call, LEFT if call.run and call.run < min(pids, default=call.run + 1) else ""))
            else:
                kept.append(call)
                if not call.run and call.at >= since:
                    mine.append((call, "by a process of a run that is not known"))
        self.calls = kept
        return mine

    def calls_of_none(self, since: int) -> list[tuple[Call, str]]:
        """Take the refused calls before since, where no run is under way that began before it."""
        taken = [(call, LEFT) for call in self.calls if call.at < since and call.run]
        self.calls = [call for call in self.calls if call.at >= since]
        return taken

    def take_dropped(self) -> int:
        """How many records found no room, since it was last asked."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    @property
    def ending(self) -> Cap | None:
        """The cap for which all of the box was ended."""
        return next((cap for cap in self.caps if cap.ends_box), None)

    def close(self) -> None:
        self.read()
        self._counters = []  # their descriptors are closed with the box, and may be other files' then
        self.socket.close()


def _number(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ProtocolError(f"the warden sent a {name} that is out of bounds.")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, bytes) or len(value) > 300:
        raise ProtocolError(f"the warden sent a {name} that is out of bounds.")
    return os.fsdecode(value)
