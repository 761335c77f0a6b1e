"""The surface of ringfence without await: safe from any thread, and inside a running event loop (which it blocks).

from ringfence.sync import Sandbox

with Sandbox() as box:
    box.run(["true"]).raise_for_status()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from types import TracebackType
from typing import IO, TYPE_CHECKING

from ringfence import errors
from ringfence.observed import Kind, Observed
from ringfence.outcome import Change, NotStarted, Result
from ringfence.policy.config import SandboxConfig, SandboxLimits
from ringfence.process import asking
from ringfence.process.command import Command, as_bytes
from ringfence.process.handle import Handle
from ringfence.process.starting import Starts
from ringfence.process.wait import blocking
from ringfence.world.local import Callback

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringfence.hooks import HookManager
    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Approver
    from ringfence.recorder import Recorder
    from ringfence.sync_connection import Connection
    from ringfence.sync_files import Files
    from ringfence.world.processes import ProcessInfo
    from ringfence.world.trees.transfer import Transfer

__all__ = ["Process", "Sandbox", "SandboxConfig", "SandboxLimits", "run"]


class Sandbox(Observed):
    """One box, for as long as its `with` block. Methods mean what those of ringfence.Sandbox mean, and block."""

    @classmethod
    def create(
        cls,
        id: str,
        config: SandboxConfig | None = None,
        *,
        hooks: HookManager | None = None,
        permissions: PermissionManager | None = None,
        approver: Approver | None = None,
        ceiling: SandboxConfig | None = None,
        trace: Recorder | None = None,
    ) -> Sandbox:
        """Open a box that other parts of this process find by its id; see ringfence.Sandbox.create. No loop ends it."""
        from ringfence.world import named  # only boxes with a name need it

        box = cls(config, hooks=hooks, permissions=permissions, approver=approver, ceiling=ceiling, trace=trace)
        with named.making(id, box):
            box._make(id)
            box._id = id
        box._say_started()
        return box

    @classmethod
    def get(cls, id: str) -> Sandbox:
        """The open box that create() made with this id; see ringfence.Sandbox.get."""
        from ringfence.world import named  # as above

        box = named.find(id, cls)
        box._open()
        return box

    def __enter__(self) -> Sandbox:
        if self._id is not None or self._first is not None:
            self._open()
            return self
        self._make()
        self._say_started()
        return self

    def _make(self, name: str | None = None) -> None:
        self._must_be_new()
        self._world = blocking(self._opening(name))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()
        if error is None:
            self._refuse()

    def cleanup(self) -> None:
        """End everything in the box and remove what it had, as leaving the block does; see ringfence.Sandbox.cleanup."""
        self._close()
        self._refuse()

    def _close(self) -> None:
        if self._permits is not None:
            self._permits.close()
        if self._world is not None and not self._world.closed:
            blocking(self._carried_back())
            blocking(self._world.close())
            self._second_has_ended()
            blocking(self._say_ended())

    @property
    def files(self) -> Files:
        """The files of the box."""
        from ringfence.sync_files import Files  # a command alone needs none of it

        return Files(lambda: self._open().files)

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run one program with arguments; see ringfence.Sandbox.run."""
        command = asking.argv(argv, input, cwd, env, timeout)
        result = self._run("argv", command, (on_stdout, on_stderr))
        return result.raise_for_status() if check else result

    def _run(self, kind: Kind, command: Command, callbacks: tuple[Callback | None, Callback | None] = (None, None)) -> Result:
        telling = self._telling(kind, command)
        if telling is None:
            return blocking(self._carrying_out(kind, command, callbacks))
        try:
            with telling:
                result = telling.result = blocking(self._carrying_out(kind, command, callbacks))
        finally:
            blocking(telling.settled())
        return result

    def execute_command(self, command: str, *, timeout: float | None = None, stdin: str | bytes | None = None) -> Result:
        """Run one shell line; see ringfence.Sandbox.execute_command."""
        return self._run("command", asking.shell_line(command, stdin, timeout))

    def execute(
        self,
        code: str,
        language: str = "python",
        *,
        timeout: float | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run the text of a program; see ringfence.Sandbox.execute."""
        return self._run("code", asking.program(code, language, timeout), (on_stdout, on_stderr))

    def spawn(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Process:
        """Start one program and return at once, with its streams; see ringfence.Sandbox.spawn."""
        command = asking.argv(argv, None, cwd, env, timeout, terminal)
        blocking(self._permitted(command))
        return Process(self._starts(), command)

    def escalate(self, result: Result) -> Sandbox | None:
        """Ask for what a spawned process was refused; see ringfence.Sandbox.escalate."""
        found = blocking(self._escalating(result))
        if found is None:
            return None
        box = Sandbox(found[0], hooks=self.hooks, trace=self._trace)
        box._becomes_second(self, *found)
        return box

    def read_file(self, path: str | os.PathLike[str]) -> str:
        """The text of a regular file; see ringfence.Sandbox.read_file."""
        blocking(self._file_permitted("read", path))
        return blocking(self._open().files.read(path)).decode("utf-8", "replace")

    def write_file(self, path: str | os.PathLike[str], content: str | bytes) -> str:
        """Write a whole file; see ringfence.Sandbox.write_file."""
        data = as_bytes(content, "content")
        blocking(self._file_permitted("write", path))
        return blocking(self._open().files.write(path, data or b""))

    def list_files(self) -> list[str]:
        """Every file and link below the workspace; see ringfence.Sandbox.list_files."""
        return blocking(self._open().files.walk())

    def upload(
        self,
        local: str | os.PathLike[str],
        remote: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        max_bytes: int = 1 << 30,
        max_files: int = 100_000,
        timeout: float = 300,
    ) -> Transfer:
        """Copy a file or a tree of the caller's into the box; see ringfence.Sandbox.upload."""
        from ringfence.world.trees import transfer  # a command alone needs none of it

        bounds = transfer.Bounds.checked(overwrite, max_bytes, max_files, timeout)
        return blocking(transfer.upload(self._open().files, local, remote, bounds))

    def download(
        self,
        remote: str | os.PathLike[str],
        local: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        max_bytes: int = 1 << 30,
        max_files: int = 100_000,
        timeout: float = 300,
    ) -> Transfer:
        """Copy a file or a tree out of the box; see ringfence.Sandbox.download."""
        from ringfence.world.trees import transfer  # a command alone needs none of it

        bounds = transfer.Bounds.checked(overwrite, max_bytes, max_files, timeout)
        return blocking(transfer.download(self._open().files, remote, local, bounds))

    def connect(self, port: int, host: str = "127.0.0.1", wait: float = 0) -> Connection:
        """Connect to a TCP server inside the box; see ringfence.Sandbox.connect."""
        from ringfence.sync_connection import Connection  # a command alone needs none of it
        from ringfence.world.connection import open_connection

        return Connection(blocking(open_connection(self._open(), port, host, wait)))

    def changes(self) -> tuple[Change, ...]:
        """What the box has changed in its private copies of protected paths; see ringfence.Sandbox.changes."""
        return blocking(self._open().changes())

    def ps(self) -> list[ProcessInfo]:
        """Every process in the box; see ringfence.Sandbox.ps."""
        from ringfence.world.processes import processes  # as above

        return blocking(processes(self._open().files))


class _Heard(FileIO):
    """A file whose pieces are told as they are read."""

    def __init__(self, descriptor: int, heard: Callable[[bytes], None]) -> None:
        super().__init__(descriptor, "rb")
        self._heard = heard

    def read(self, size: int | None = -1, /) -> bytes:
        return self._told(super().read(-1 if size is None else size))

    def readall(self) -> bytes:
        return self._told(super().readall())

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = super().readinto(buffer)
        self._told(memoryview(buffer)[: count or 0].tobytes())
        return count

    def _told(self, data: bytes) -> bytes:
        if data:  # None: nothing is there yet, where somebody made the descriptor non-blocking
            self._heard(data)
        return data


class Process(Handle):
    """A command that runs while the caller does other things. stdin, stdout and stderr are unbuffered byte files."""

    def __init__(self, world: Starts, command: Command) -> None:
        ends: list[int] = []
        self._world, self._command = world, command
        super().__init__(world.begin(command, drained=False, ends=ends))
        for end in ends:
            os.set_blocking(end, True)
        self.stdin: IO[bytes] = os.fdopen(ends[0], "wb", buffering=0)
        watched = self._run.observer is not None
        self.stdout: IO[bytes] = _Heard(ends[1], self.passed) if watched else os.fdopen(ends[1], "rb", buffering=0)
        self.stderr: IO[bytes] = _Heard(ends[2], self.heard)
        try:
            blocking(self._until_started())
            if self._run.terminal >= 0:
                from ringfence.process.terminal import Screen  # with it comes termios

                self.stdin.close()
                self.stdout.close()
                os.set_blocking(self._run.terminal, True)
                self.stdin, self.stdout = Screen(os.dup(self._run.terminal), "wb"), Screen(os.dup(self._run.terminal), "rb")
            if self._run.over:
                result = self.wait()
                if isinstance(result.outcome, NotStarted):
                    raise errors.for_result(result)
        except BaseException:
            self.close()
            raise

    def wait(self) -> Result:
        """Wait for its end. The result has no output: that is on the streams. Raises SandboxLostError if the box died."""
        if self._result is None:
            blocking(self._run.finish())
            self._result = self._world.result(self._run, self._command)
            self._run.release()
        return self._result

    def poll(self) -> int | None:
        """returncode, after a look at whether it has ended. Does not wait; with fileno() it serves select and its like."""
        if self._result is None:
            self._run.step()
            if self._run.over:
                self.wait()
        return self.returncode

    def close(self) -> None:
        """End its whole tree if it still runs, and close its streams."""
        blocking(self._run.abort())
        self._run.release()
        self._given_up()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    config: SandboxConfig | None = None,
    input: str | bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> Result:
    """One box for one run: made, used and ended. The arguments are those of Sandbox.run."""
    with Sandbox(config) as box:
        return box.run(argv, input=input, cwd=cwd, env=env, timeout=timeout, check=check)
