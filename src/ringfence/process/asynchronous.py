"""Driving a waiting routine from an event loop, on asyncio and trio alike, through anyio's public calls."""

from __future__ import annotations

import select
import time
from typing import TypeVar

import anyio

from ringfence.process.wait import Interrupted, Readable, Waits

T = TypeVar("T")


async def awaiting(waits: Waits[T]) -> T:
    """Drive a routine. Cancelled, it lets the routine end what it started, shielded, and then passes the cancellation on."""
    try:
        wanted = next(waits)
        while True:
            try:
                came = await _wait(wanted)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await _interrupt(waits)
                raise
            wanted = waits.send(came)
    except StopIteration as stopped:
        return stopped.value  # type: ignore[no-any-return]


async def _interrupt(waits: Waits[T]) -> None:
    try:
        wanted = waits.throw(Interrupted())
        while True:
            wanted = waits.send(await _wait(wanted))
    except (StopIteration, Interrupted):
        return


async def _wait(wanted: Readable) -> bool:
    if wanted.until is None:
        await anyio.wait_readable(wanted.descriptor)
        return True
    with anyio.move_on_after(max(0.0, wanted.until - time.monotonic())) as scope:
        await anyio.wait_readable(wanted.descriptor)
    # A loop that was busy until now finds both at once: the time is up, and what was waited for has long been there.
    return not scope.cancelled_caught or _is_readable(wanted.descriptor)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
