"""A running command with its streams, for an event loop: what spawn() returns."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from ringfence.errors import for_result
from ringfence.outcome import NotStarted, Result
from ringfence.process.asynchronous import awaiting
from ringfence.process.command import Command
from ringfence.process.handle import Handle
from ringfence.process.run import Run

if TYPE_CHECKING:
    from ringfence.process.starting import Starts


class End:
    """One end of a pipe: what both directions have alike."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            anyio.notify_closing(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class Reading(End, ByteReceiveStream):
    """The reading end of a pipe. heard: told of each piece."""

    heard: Callable[[bytes], None] | None = None

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Some bytes, at most max_bytes. Raises anyio.EndOfStream at the end, ClosedResourceError after aclose()."""
        while True:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # as the kernel says it of a terminal whose other end is closed, pty(7)
                    raise
                data = b""
            if not data:
                raise anyio.EndOfStream
            if self.heard is not None:
                self.heard(data)
            await anyio.lowlevel.checkpoint()
            return data


class Writing(End, ByteSendStream):
    """The writing end of a pipe."""

    async def send(self, item: bytes) -> None:
        """All of item. Raises anyio.BrokenResourceError where the command reads no more."""
        left = memoryview(item)
        while left:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error
        await anyio.lowlevel.checkpoint()


class Process(Handle):
    """A command that runs while the caller does other things. Leaving its `async with` block ends it."""

    def __init__(self, world: Starts, command: Command, run: Run, ends: list[int]) -> None:
        super().__init__(run)
        self._world, self._command = world, command
        self._waiting = anyio.Lock()
        self.stdin, self.stdout, self.stderr = Writing(ends[0]), Reading(ends[1]), Reading(ends[2])
        self.stderr.heard = self.heard
        if run.observer is not None:
            self.stdout.heard = self.passed

    @classmethod
    async def start(cls, world: Starts, command: Command) -> Process:
        """Start command and wait until exec has happened. Raises the error of its result when it has not."""
        ends: list[int] = []
        run = world.begin(command, drained=False, ends=ends)
        process = cls(world, command, run, ends)
        try:
            await awaiting(process._until_started())
            if run.terminal >= 0:
                process.stdin.close()
                process.stdout.close()
                heard, process.stdin, process.stdout = (
                    process.stdout.heard,
                    Writing(os.dup(run.terminal)),
                    Reading(os.dup(run.terminal)),
                )
                process.stdout.heard = heard
            if run.over:
                result = await process.wait()
                if isinstance(result.outcome, NotStarted):
                    raise for_result(result)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await process.aclose()
            raise
        return process

    async def wait(self) -> Result:
        """Wait for its end. The result has no output: that is on the streams. Raises SandboxLostError if the box died."""
        async with self._waiting:
            if self._result is None:
                await awaiting(self._run.finish())
                self._result = self._world.result(self._run, self._command)
                self._run.release()
            return self._result

    async def aclose(self) -> None:
        """End its whole tree if it still runs, and close its streams."""
        with anyio.CancelScope(shield=True):
            await awaiting(self._run.abort())
            self._run.release()
            self._given_up()
            for stream in (self.stdin, self.stdout, self.stderr):
                stream.close()

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()
