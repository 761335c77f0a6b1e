"""Driving a waiting routine from an event loop: on asyncio by its own reader, elsewhere through anyio's public calls.

anyio's way of waiting for a descriptor with a time bound is three times what asyncio's own calls take, for each command.
"""

from __future__ import annotations

import asyncio
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
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return await _wait_elsewhere(wanted)
    if asyncio.current_task(loop) is None:  # a guest of this loop, as trio can be
        return await _wait_elsewhere(wanted)
    came = loop.create_future()
    loop.add_reader(wanted.descriptor, _say, came, True)
    timer = None
    try:
        if wanted.until is not None:
            timer = loop.call_later(max(0.0, wanted.until - time.monotonic()), _say, came, False)
        return await came or _is_readable(wanted.descriptor)  # a loop that was busy until now finds both at once
    finally:
        loop.remove_reader(wanted.descriptor)
        if timer is not None:
            timer.cancel()


def _say(came: asyncio.Future[bool], value: bool) -> None:
    if not came.done():
        came.set_result(value)


async def _wait_elsewhere(wanted: Readable) -> bool:
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
