"""A connection to a server inside a box, for an event loop: what `Sandbox.connect` returns."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from ringfence.errors import ConnectError
from ringfence.process.asynchronous import awaiting
from ringfence.process.streams import Reading, Writing

if TYPE_CHECKING:
    from ringfence.world import connection


class Connection(ByteStream):
    """A stream of bytes to a server inside a box and back; an anyio ByteStream. Leaving its `async with` block closes it.

    It lives until it is closed, or the box ends: no limit of the box bounds it. Not promised: the socket's own options and
    addresses, since the socket stays inside.
    """

    def __init__(self, opened: connection.Connection) -> None:
        self._opened = opened
        self._writing, self._reading = Writing(opened.stdin), Reading(opened.stdout)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Some bytes, at most max_bytes. Raises anyio.EndOfStream when the server has ended, BrokenResourceError if it broke."""
        try:
            return await self._reading.receive(max_bytes)
        except anyio.EndOfStream:
            try:
                self._opened.end_of_input()
            except ConnectError as error:
                raise anyio.BrokenResourceError from error
            raise

    async def send(self, item: bytes) -> None:
        """All of item. Raises anyio.BrokenResourceError when the server takes no more."""
        await self._writing.send(item)

    async def send_eof(self) -> None:
        """Say that no more is sent; what the server still sends is received. send() then raises anyio.ClosedResourceError."""
        await self._writing.aclose()

    async def aclose(self) -> None:
        """End it at once: what the server has not read yet is not delivered. Safe to call again."""
        with anyio.CancelScope(shield=True):
            self._writing.close()
            self._reading.close()
            await awaiting(self._opened.close())

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()
