"""What the caller is told of one box: each decision before its client can see it, in packets that nothing in the box can write.

Never waits. Where the caller reads too slowly, equal decisions are added up, and past a bound only counted: what is told late is
told with the time it was made at, and what is not told at all is told as a number.
"""

from __future__ import annotations

import _socket
import time
from collections.abc import Callable

from ringfence.guest import wire
from ringfence.policy.reach import Asked, Verdict

MOST_WAITING = 512
"""Decisions that wait for the caller to read, not counting those that equal one that waits."""
MOST_TEXT = 300
"""Bytes of a field: what reads it takes no more."""


class Records:
    """The writing end of a box's records. blocked: called once when something waits, to have flush() called when it can go on."""

    def __init__(self, socket: _socket.socket, blocked: Callable[[], None]) -> None:
        self.socket, self._blocked = socket, blocked
        socket.setblocking(False)
        self._waiting: dict[tuple[object, ...], dict[str, object]] = {}
        self._spent = 0

    def decision(self, asked: Asked, verdict: Verdict, *, source_port: int = 0, address: str = "") -> None:
        """A connection, a request or a look-up that was let out or refused. address: what is dialled, where something is."""
        self.tell(str(asked.host), asked.port, asked.scheme, asked.via, verdict, source_port, address)

    def tell(self, host: str, port: int, scheme: str, via: str, verdict: Verdict, source_port: int = 0, address: str = "") -> None:
        """The same of something that is no connection to a host yet: what a client sent that has no single reading."""
        record: dict[str, object] = {
            "op": "decision",
            "allowed": int(verdict.allowed),
            "host": _cut(host),
            "port": port,
            "scheme": scheme,
            "via": via,
            "rule": _cut(verdict.rule),
            "remedy": _cut(verdict.remedy or ""),
            "why": _cut(verdict.why),
            "source_port": source_port,
            "address": address,
            "at_ns": time.monotonic_ns(),
            "count": 1,
        }
        if not self._waiting and not self._spent and self.send(record):
            return
        if not self._waiting and not self._spent:
            self._blocked()
        key = (verdict.allowed, host, port, scheme, via, verdict.rule)
        if key in self._waiting:
            self._waiting[key]["count"] += 1  # type: ignore[operator]
        elif len(self._waiting) < MOST_WAITING:
            self._waiting[key] = record
        else:
            self._spent += 1

    def send(self, message: dict[str, object]) -> bool:
        """One message now; False where it found no room, or nobody reads any more."""
        try:
            wire.send(self.socket, message)
        except OSError:
            return False
        return True

    def flush(self) -> bool:
        """Send what waits. True when nothing does any more."""
        for key in list(self._waiting):
            if not self.send(self._waiting[key]):
                return False
            del self._waiting[key]
        if self._spent:
            if not self.send({"op": "spent", "count": self._spent, "at_ns": time.monotonic_ns()}):
                return False
            self._spent = 0
        return True


def _cut(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")[:MOST_TEXT]
