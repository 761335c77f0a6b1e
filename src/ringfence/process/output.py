"""One stream of a run, kept within bounds: the first bytes, the last bytes, and how many were left out between them."""

from __future__ import annotations

import fcntl
import os
from collections import deque

from ringfence.outcome import Output

CHUNK = 1 << 16
WIDE_CHUNK = 1 << 20
WIDE_AFTER = 1 << 19
"""Bytes after which the pipe is widened: a flood is read in fewer, larger pieces (F_SETPIPE_SZ, fcntl(2))."""


class Stream:
    """Reads one non-blocking pipe and keeps at most `keep` bytes of it: `head` of its beginning (half), the rest of its end."""

    def __init__(self, descriptor: int, keep: int, head: int | None = None) -> None:
        self.descriptor = descriptor
        self.total = 0
        self.fresh: bytes = b""  # what the last read brought, for a callback
        self._head_size = (keep + 1) // 2 if head is None else head
        self._tail_size = keep - self._head_size
        self._head: list[bytes] = []
        self._head_left = self._head_size
        self._tail: deque[bytes] = deque()
        self._tail_held = 0
        self._chunk = CHUNK
        self.ended = False
        self.empty = False  # the last read found nothing, and a writer still there

    def read(self) -> bool:
        """Take what is there, one chunk; False when there was nothing."""
        try:
            data = os.read(self.descriptor, self._chunk)
        except BlockingIOError:
            self.empty = True
            return False
        self.fresh = data
        self.empty = False
        if not data:
            self.ended = True
            return False
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        before = self.total
        self.total += len(data)
        if self._head_left:
            self._head.append(data[: self._head_left])
            taken = len(self._head[-1])
            self._head_left -= taken
            data = data[taken:]
        if data and self._tail_size:
            self._tail.append(data)
            self._tail_held += len(data)
            while self._tail_held - len(self._tail[0]) >= self._tail_size:
                self._tail_held -= len(self._tail.popleft())
        if before < WIDE_AFTER <= self.total:
            self._widen()

    def _widen(self) -> None:
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, WIDE_CHUNK)
        except OSError:
            return  # past the user's pipe-user-pages-soft: the pipe stays as it is
        self._chunk = WIDE_CHUNK

    def output(self) -> Output:
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._tail_size :] if self._tail_size else b""
        return Output(head, tail, self.total - len(head) - len(tail))
