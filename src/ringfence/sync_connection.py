"""A connection to a server inside a box without await: what `ringfence.sync.Sandbox.connect` returns."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING

from ringfence.errors import ConnectError
from ringfence.process.wait import blocking

if TYPE_CHECKING:
    from ringfence.world import connection


class Connection:
    """A stream of bytes to a server inside a box and back, for one thread that reads and one that writes.

    It lives until it is closed, or the box ends. Every method blocks for as long as the server lets it.
    """

    def __init__(self, opened: connection.Connection) -> None:
        self._opened = opened
        os.set_blocking(opened.stdin, True)
        os.set_blocking(opened.stdout, True)
        self._stdin = os.fdopen(opened.stdin, "wb", buffering=0)
        self._stdout = os.fdopen(opened.stdout, "rb", buffering=0)

    def read(self, size: int = 65536) -> bytes:
        """Some bytes, at most size; b"" when the server has ended. Raises ConnectError when it broke off."""
        data = self._stdout.read(size)
        if not data:
            self._opened.end_of_input()
        return data

    def write(self, data: bytes) -> None:
        """All of data. Raises ConnectError when the server takes no more."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._stdin.write(left) :]
        except BrokenPipeError:
            raise ConnectError(f"the server on port {self._opened.port} takes no more.") from None

    def send_eof(self) -> None:
        """Say that no more is sent; what the server still sends can be read."""
        self._stdin.close()

    def close(self) -> None:
        """End it at once: what the server has not read yet is not delivered. Safe to call again."""
        self._stdin.close()
        self._stdout.close()
        blocking(self._opened.close())

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
