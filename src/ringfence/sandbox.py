"""Sandbox: one box, for as long as its `async with` block. The place where policy, world and process are wired together."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from anyio import CancelScope
from anyio.lowlevel import RunVar

from ringfence import errors
from ringfence.files import Files
from ringfence.observed import Kind, Observed
from ringfence.outcome import Change, Result
from ringfence.policy.config import SandboxConfig
from ringfence.process import asking
from ringfence.process.asynchronous import awaiting
from ringfence.process.command import Command, as_bytes
from ringfence.process.streams import Process
from ringfence.world.local import Callback, LocalWorld

if TYPE_CHECKING:
    from ringfence.connection import Connection
    from ringfence.hooks import HookManager
    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Approver
    from ringfence.recorder import Recorder
    from ringfence.world.processes import ProcessInfo
    from ringfence.world.trees.transfer import Transfer


class _Loop:
    """A value that is the same within one run of an event loop and differs between two. The loop alone holds it."""


_loop: RunVar[_Loop] = RunVar("ringfence")


def _this_loop() -> _Loop:
    try:
        return _loop.get()
    except LookupError:
        token = _Loop()
        _loop.set(token)
        return token


class Sandbox(Observed):
    """One box. Opened by `async with`; everything in it ends with the block, whatever way the block is left.

        async with Sandbox(SandboxConfig(workspace=".")) as box:
            result = await box.run(["pytest", "-q"], timeout=60)

    hooks: whose handlers are told of the box, of each execute, execute_command and run, and of denials; see ringfence.hooks.
    permissions: decides each command before it is started, and each read_file and write_file, together with the rules of config.
    approver: who is asked where they say so; without one what would be asked is refused. Refused is NotPermittedError.
    ceiling: a config that no approval goes beyond, where config.escalation lets a run be tried again with one right more.
    Methods may be used from several tasks of one event loop at once. Raises TierUnavailableError, ConfigError or
    WorkspaceError on entering, before anything ran. Not promised: that a box outlives its process, or is used by two loops.
    """

    _in_loop = True

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        hooks: HookManager | None = None,
        permissions: PermissionManager | None = None,
        approver: Approver | None = None,
        ceiling: SandboxConfig | None = None,
        trace: Recorder | None = None,
    ) -> None:
        super().__init__(config, hooks=hooks, permissions=permissions, approver=approver, ceiling=ceiling, trace=trace)
        self._opened_in: weakref.ref[_Loop] | None = None

    @classmethod
    async def create(
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
        """Open a box that other parts of this process find by `Sandbox.get(id)`; it is open until it is closed.

        Close it by cleanup(), or by using it in `async with`. One that nobody closes ends with its event loop, at the latest when
        the process exits. id: up to 64 letters, digits, dots, dashes and underscores, unique among the open boxes of both
        surfaces. Raises ArgumentError, SandboxExistsError, and what entering raises. Not promised: a box that other processes find.
        """
        from ringfence.world import named  # only boxes with a name need it

        box = cls(config, hooks=hooks, permissions=permissions, approver=approver, ceiling=ceiling, trace=trace)
        with named.making(id, box, _this_loop()):
            await box._make(id)
            box._id = id
        box._say_started()
        return box

    @classmethod
    def get(cls, id: str) -> Sandbox:
        """The open box that create() made with this id. Raises SandboxNotFoundError, WrongLoopError from another loop."""
        from ringfence.world import named  # as above

        box = named.find(id, cls)
        box._open()
        return box

    async def __aenter__(self) -> Sandbox:
        if self._id is not None or self._first is not None:
            self._open()
            return self
        await self._make()
        self._say_started()
        return self

    async def _make(self, name: str | None = None) -> None:
        self._must_be_new()
        self._opened_in = weakref.ref(_this_loop())
        self._world = await awaiting(self._opening(name))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()
        if error is None:
            self._refuse()

    async def cleanup(self) -> None:
        """End everything in the box and remove what it had, as leaving the block does. Safe to call again.

        Raises PlantedError where the policy refuses what was planted and no result has told of it; the box is gone then too.
        """
        await self._close()
        self._refuse()

    async def _close(self) -> None:
        if self._permits is not None:
            self._permits.close()
        if self._world is not None and not self._world.closed:
            with CancelScope(shield=True):
                await awaiting(self._carried_back())
                await awaiting(self._world.close())
                self._second_has_ended()
                await awaiting(self._say_ended())

    @property
    def files(self) -> Files:
        """The files of the box."""
        return Files(lambda: self._open().files)

    def _open(self) -> LocalWorld:
        world = super()._open()
        if self._opened_in is None or self._opened_in() is not _this_loop():
            raise errors.WrongLoopError("the box was opened in another event loop.")
        return world

    async def run(
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
        """Run one program with arguments; returns how it ended, with its output.

        input: what it reads (nothing by default). cwd: a folder of the box, relative to the workspace. env: variables added
        for this call. timeout: seconds; shortens limits.wall_seconds, never lengthens it. check: raise_for_status().
        on_stdout, on_stderr: called with each piece of output as it comes. A program that leaves processes behind does
        not hold the call; they live on until the box ends, or until the deadline of the call that started them.

        Raises ArgumentError, OutsideError, SandboxClosedError, NotPermittedError before anything runs, SandboxLostError if the
        box dies.
        """
        command = asking.argv(argv, input, cwd, env, timeout)
        result = await self._run("argv", command, (on_stdout, on_stderr))
        return result.raise_for_status() if check else result

    async def _run(self, kind: Kind, command: Command, callbacks: tuple[Callback | None, Callback | None] = (None, None)) -> Result:
        telling = self._telling(kind, command)
        if telling is None:
            return await awaiting(self._carrying_out(kind, command, callbacks))
        try:
            with telling:
                result = telling.result = await awaiting(self._carrying_out(kind, command, callbacks))
        finally:
            with CancelScope(shield=True):  # what handlers take of the caller's time changes no result
                await awaiting(telling.settled())
        return result

    async def execute_command(self, command: str, *, timeout: float | None = None, stdin: str | bytes | None = None) -> Result:
        """Run one shell line, by bash where the box has it, else by sh. As run() otherwise."""
        return await self._run("command", asking.shell_line(command, stdin, timeout))

    async def execute(
        self,
        code: str,
        language: str = "python",
        *,
        timeout: float | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run the text of a program in a fresh interpreter; language is python, bash or node, where the box has it.

        Python programs find the packages of the workspace's virtual environment, or of the caller's interpreter, and those
        of config.preload already imported. Not promised: a fresh hash seed for each program of one box.
        """
        return await self._run("code", asking.program(code, language, timeout), (on_stdout, on_stderr))

    async def spawn(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Process:
        """Start one program and return at once, with its streams. limits.wall_seconds bounds it like every run.

        terminal: rows and columns of a terminal of its own. It reads stdin there and all that it writes comes as stdout;
        resize() changes the size, and what is typed as Ctrl-C or Ctrl-Z does there what it does at any terminal.

        Raises CommandNotFoundError or CommandNotStartedError when exec did not happen, NotPermittedError.
        """
        command = asking.argv(argv, None, cwd, env, timeout, terminal)
        await awaiting(self._permitted(command))
        return await Process.start(self._starts(), command)

    async def escalate(self, result: Result) -> Sandbox | None:
        """Ask whether what result was refused may be had; the box that is wider by it, open, or None where nothing may be asked.

        result: of a process that was spawned; run() and its like ask by themselves where config.escalation says so. The new box is
        used like any other, in a `with` block; when it ends, what it has in private folders is this one's again. Raises
        NotPermittedError where it is refused, and what making a box raises.
        """
        found = await awaiting(self._escalating(result))
        if found is None:
            return None
        box = Sandbox(found[0], hooks=self.hooks, trace=self._trace)
        box._opened_in = self._opened_in
        box._becomes_second(self, *found)
        return box

    async def read_file(self, path: str | os.PathLike[str]) -> str:
        """The text of a regular file, at most 32 MiB; bytes that are not UTF-8 become replacement characters."""
        await awaiting(self._file_permitted("read", path))
        return (await awaiting(self._open().files.read(path))).decode("utf-8", "replace")

    async def write_file(self, path: str | os.PathLike[str], content: str | bytes) -> str:
        """Write a whole file, and the folders above it; returns its absolute path."""
        data = as_bytes(content, "content")
        await awaiting(self._file_permitted("write", path))
        return await awaiting(self._open().files.write(path, data or b""))

    async def list_files(self) -> list[str]:
        """Every file and link below the workspace, relative to it, sorted; links are named and never followed."""
        return await awaiting(self._open().files.walk())

    async def upload(
        self,
        local: str | os.PathLike[str],
        remote: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        max_bytes: int = 1 << 30,
        max_files: int = 100_000,
        timeout: float = 300,
    ) -> Transfer:
        """Copy a file or a tree of the caller's into the box, to exactly that path; folders that are there are gone on with.

        Links are copied as links and not followed. FIFOs, sockets and devices are left out and named in `refused`. overwrite:
        replace files. max_bytes, max_files, timeout (seconds): bounds of the whole. What was copied before an error stays.
        Raises PathExistsError, FileTooLargeError, FileTimeError, OutsideError (also for a local path through a link that a box
        may have made), HostError where the caller's own system refuses.
        """
        from ringfence.world.trees import transfer  # a command alone needs none of it

        bounds = transfer.Bounds.checked(overwrite, max_bytes, max_files, timeout)
        return await awaiting(transfer.upload(self._open().files, local, remote, bounds))

    async def download(
        self,
        remote: str | os.PathLike[str],
        local: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        max_bytes: int = 1 << 30,
        max_files: int = 100_000,
        timeout: float = 300,
    ) -> Transfer:
        """Copy a file or a tree out of the box, to exactly that local path; bounds and errors are those of upload().

        Nothing is written through a link, and no link is made that leads out of the tree: those, and FIFOs, sockets, devices and
        what cannot be read, are named in `refused`. Permission bits are kept less the umask, set-id bits never. Not promised: a
        picture of one moment, while programs run in the box.
        """
        from ringfence.world.trees import transfer  # a command alone needs none of it

        bounds = transfer.Bounds.checked(overwrite, max_bytes, max_files, timeout)
        return await awaiting(transfer.download(self._open().files, remote, local, bounds))

    async def connect(self, port: int, host: str = "127.0.0.1", wait: float = 0) -> Connection:
        """Connect to a TCP server inside the box: one that a command started, in this call or an earlier one.

        host: a loopback address of the box, or 'localhost'. wait: seconds to go on trying while nothing listens. Raises
        ConnectRefusedError where nothing listens, ConnectError for other failures, ArgumentError.
        """
        from ringfence.connection import Connection  # a command alone needs none of it
        from ringfence.world.connection import open_connection

        return Connection(await awaiting(open_connection(self._open(), port, host, wait)))

    async def changes(self) -> tuple[Change, ...]:
        """What the box has changed in its private copies of protected paths until now, such as `.git/config`.

        The host's files are as they were. apply_changes(keys) takes over settings that are offered. Raises PathError where
        the box holds more there than is read (4 MiB).
        """
        return await awaiting(self._open().changes())

    async def ps(self) -> list[ProcessInfo]:
        """Every process in the box, sorted by pid; those of ringfence are left out."""
        from ringfence.world.processes import processes  # as above

        return await awaiting(processes(self._open().files))


async def run(
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
    async with Sandbox(config) as box:
        return await box.run(argv, input=input, cwd=cwd, env=env, timeout=timeout, check=check)
