"""Waiting as data. A routine yields what it waits for and is told whether that came or its time ran out.

So one routine serves a blocking caller and any event loop, and neither leaks into the other.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from ringfence.values import frozen

T = TypeVar("T")


@frozen
class Readable:
    """Wait until descriptor can be read, or until the monotonic time until (seconds) has passed."""

    descriptor: int
    until: float | None = None


class Interrupted(BaseException):
    """Thrown into a routine by its driver: the caller gives up. The routine ends what it started, then lets this out."""


Waits: TypeAlias = Generator[Readable, bool, T]


def blocking(waits: Waits[T]) -> T:
    """Drive a routine by blocking this thread."""
    try:
        wanted = next(waits)
        while True:
            try:
                came = _poll(wanted)
            except BaseException:  # a KeyboardInterrupt, or what a signal handler raised
                _interrupt(waits)
                raise
            wanted = waits.send(came)
    except StopIteration as stopped:
        return stopped.value  # type: ignore[no-any-return]


def _interrupt(waits: Waits[T]) -> None:
    try:
        wanted = waits.throw(Interrupted())
        while True:
            wanted = waits.send(_poll(wanted))
    except (StopIteration, Interrupted):
        return


def _poll(wanted: Readable) -> bool:
    poll = select.poll()
    poll.register(wanted.descriptor, select.POLLIN)
    left = None if wanted.until is None else max(0.0, wanted.until - time.monotonic()) * 1000
    return bool(poll.poll(left))
