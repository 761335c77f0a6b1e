"""The transport over this process's own input and output, for a client that started it."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

from ringfence.mcp.session import Session

MOST_LINE = 64 << 20
"""Bytes of one message. A longer line is answered as one that is no message."""
CUT = "a message that is longer than this server takes"


class Lines:
    """The lines of a descriptor. Unlike the SDK's own reader it can be given up while nothing comes, and bounds a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._looked = 0  # bytes of the rest in which there is no end of a line
        self._too_long = False
        # epoll takes no regular files, which are always ready: epoll_ctl(2), EPERM.
        self._file = stat.S_ISREG(os.fstat(descriptor).st_mode)

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while True:
            if (end := self._rest.find(b"\n", self._looked)) >= 0:
                line, too_long = bytes(self._rest[:end]), self._too_long
                del self._rest[: end + 1]
                self._looked, self._too_long = 0, False
                return CUT if too_long else line.decode("utf-8", "replace")
            self._looked = len(self._rest)
            if self._looked > MOST_LINE:
                self._too_long = True
                self._rest.clear()
                self._looked = 0
            if not self._file:
                await anyio.wait_readable(self._descriptor)
            data = os.read(self._descriptor, 1 << 16)
            if not data:
                raise StopAsyncIteration
            self._rest += data


async def serve(make: Callable[[], Session]) -> None:
    """Serve one client, until it closes our input, or SIGTERM or SIGINT comes. Its box ends with it."""
    session = make()
    lines: Any = Lines(0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signal, group.cancel_scope)
            # While it serves, descriptor 1 leads to stderr: nothing but messages gets to the client.
            async with stdio_server(stdin=lines) as (reading, writing):
                await serve_loop(
                    session.server,
                    reading,
                    writing,
                    lifespan_state={},
                    init_options=session.server.create_initialization_options(),
                )
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()


async def _until_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return
