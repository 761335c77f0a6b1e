"""A box of this host: made by a local confinement, driven by whoever waits. Every method that waits is a Waits routine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ringfence import errors
from ringfence.confine import host, namespaces
from ringfence.confine.plan import Prepared
from ringfence.guest import wire
from ringfence.outcome import Denial, Enforcement, Exited, Result
from ringfence.policy.config import BUILT_TIERS, SandboxConfig
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.process import box as boxes
from ringfence.process.command import Command, checked_text
from ringfence.process.run import Run
from ringfence.process.wait import Interrupted, Waits

MAX_READ = 32 << 20
"""Bytes that read_file returns at most."""
MAX_LISTING = 64 << 20
FILE_SECONDS = 30.0
"""How long one file operation may take: a network file system can hang."""
REFUSED = 3  # guest/files.py: the exit status of an operation that was refused

if TYPE_CHECKING:
    from ringfence.confine.protected.watch import Watch

Callback = Callable[[bytes], None]


class LocalWorld:
    """One live box and its policy."""

    def __init__(
        self, policy: ResolvedPolicy, prepared: Prepared, box: boxes.Box, enforcement: Enforcement, watch: Watch | None
    ) -> None:
        self.policy, self.prepared, self.box, self.enforcement, self.watch = policy, prepared, box, enforcement, watch
        self.closed = False

    @property
    def workdir(self) -> str:
        return self.prepared.plan.workdir

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders that a command may be started in."""
        named = (*self.policy.read_only, *self.policy.writable)
        environment = self.prepared.plan.environment
        return (self.workdir, *(folder.path for folder in named), environment["HOME"])

    # Commands

    def run(self, command: Command, callbacks: tuple[Callback | None, Callback | None] = (None, None)) -> Waits[Result]:
        """Run one command to its end. Raises SandboxLostError when the box dies under it."""
        run = self.begin(command)
        run.on_chunk = callbacks
        try:
            yield from run.finish()
            return self.result(run, command)
        except Interrupted:
            yield from run.abort()
            raise
        except errors.RingfenceError:
            raise
        except BaseException:  # a callback raised: nothing may go on running for a call that has failed
            yield from run.abort()
            raise
        finally:
            run.release()

    def begin(self, command: Command, *, drained: bool = True, ends: list[int] | None = None) -> Run:
        """Start one command; ends receives the outside ends of its pipes where they are not drained here."""
        self.must_be_open()
        limits = self.policy.limits
        bounds = [bound for bound in (command.timeout, limits.wall_seconds) if bound is not None]
        run = Run(self.box, limits, min(bounds, default=None))
        request = {**command.request}
        if command.cwd is not None:
            request["cwd"] = self.folder_for(command.cwd)
        if command.environment:
            request["env"] = dict(command.environment)
        pipes = run.start(request, command.data, drained=drained)
        if ends is not None:
            ends.extend(pipes)
        return run

    def result(self, run: Run, command: Command) -> Result:
        outcome = run.outcome()
        output, error_output = run.output()
        denials, notes = self.watch.after_run() if self.watch else ((), ())
        return Result(
            command.shown, outcome, output, error_output, run.usage(), self.enforcement,
            self.prepared.backend, self.policy.hash, run.created(), denials, (*self.prepared.notes, *notes),
        )  # fmt: skip

    def planted(self) -> tuple[Denial, ...]:
        if self.watch is None:
            return ()
        return tuple(self.watch.planted.reported) if self.closed else self.watch.look()

    def must_be_open(self) -> None:
        if self.closed:
            raise errors.SandboxClosedError("the box is closed.")

    # Files: done inside the box, by a fork of its guest

    def read(self, path: str, most: int = MAX_READ) -> Waits[bytes]:
        target = self.resolve_path(path)
        return (yield from self._files("read", target, {"most": most}, None, most + 1))

    def write(self, path: str, content: bytes) -> Waits[str]:
        target = self.resolve_path(path, write=True)
        yield from self._files("write", target, {}, content, 4096)
        return target

    def list_files(self) -> Waits[list[str]]:
        listing = yield from self._files("list", self.workdir, {}, None, MAX_LISTING)
        return sorted(os.fsdecode(name) for name in listing.split(b"\0") if name)

    def _files(self, do: str, path: str, more: Mapping[str, object], data: bytes | None, keep: int) -> Waits[bytes]:
        self.must_be_open()
        run = Run(self.box, self.policy.limits, FILE_SECONDS, keep=2 * keep)
        request = {"op": "files", "do": do, "path": path, **more}
        try:
            run.start(request, b"" if data is None and do == "write" else data)
            yield from run.finish()
            outcome = run.outcome()
            output, refusal = run.output()
        except Interrupted:
            yield from run.abort()
            raise
        finally:
            run.release()
        if outcome == Exited(0):
            return output.data
        if outcome == Exited(REFUSED):
            raise _refusal(refusal.data, path)
        raise errors.FileRefusedError(f"{path!r} could not be worked on: {outcome}.")

    # Paths

    def folder_for(self, cwd: str | None) -> str:
        """Where a command starts: inside the workspace or another folder of the box. Never widens anything."""
        if cwd is None:
            return self.workdir
        path = os.path.normpath(os.path.join(self.workdir, checked_text(os.fspath(cwd), "cwd")))
        if not any(_inside(path, root) for root in self.roots):
            raise errors.OutsideError(
                f"the working directory {os.fspath(cwd)!r} lies outside the box's folders.",
                hint="Start in the workspace, a folder that the config names, or the home of the box.",
            )
        return path

    def resolve_path(self, path: str | os.PathLike[str], *, write: bool = False) -> str:
        """The absolute path of a file of the box. Raises OutsideError where it may not be read, or with write not written."""
        given = checked_text(os.fspath(path), "path")
        plain = os.path.normpath(os.path.join(self.workdir, given))
        environment = self.prepared.plan.environment
        # A link of the host's workspace is followed here too, so that the answer is safe to open outside; there the private
        # folders' names lead to folders of the host.
        follow = self.policy.workspace is not None and _inside(plain, self.workdir)
        may_write = {} if follow else {environment["HOME"]: True, environment["TMPDIR"]: True}
        may_write |= {folder.path: False for folder in self.policy.read_only}
        may_write |= {folder.path: True for folder in self.policy.writable}
        may_write[self.workdir] = self.policy.mode != "read-only"
        for candidate in (plain, os.path.realpath(plain) if follow else plain):
            root = max((root for root in may_write if _inside(candidate, root)), key=len, default=None)
            if root is None or (write and not may_write[root]):
                verb = "written" if write else "read"
                raise errors.OutsideError(f"{given!r} lies outside what may be {verb} in the box.")
        return plain

    def close(self) -> Waits[None]:
        """End everything in the box and give back what it had. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        try:
            yield from self.box.close()
        finally:
            self.prepared.release()
            if self.watch:
                self.watch.end()


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _refusal(said: bytes, path: str) -> errors.PathError:
    """The error for a file operation that was refused; what the box says of it is checked like all it says."""
    try:
        fields = wire.decode(said)
    except wire.WireError:
        fields = {}
    number = fields.get("errno") if isinstance(fields, dict) else None
    what = fields.get("what") if isinstance(fields, dict) else None
    if what == b"not-regular":
        return errors.NotAFileError(f"{path!r} is not a regular file.")
    if not isinstance(number, int) or not 0 < number < 4096:
        return errors.FileRefusedError(f"{path!r} could not be worked on.")
    reason = os.strerror(number)
    match number:
        case 2 | 20:  # ENOENT, ENOTDIR
            return errors.PathNotFoundError(f"{path!r} is not there: {reason}.")
        case 21 | 6:  # EISDIR, ENXIO: a folder, or a FIFO or socket that nobody holds open
            return errors.NotAFileError(f"{path!r} is not a regular file: {reason}.")
        case 27 | 7:  # EFBIG, E2BIG
            return errors.FileTooLargeError(f"{path!r} is larger than one call returns.")
    return errors.FileRefusedError(f"{path!r} was refused: {reason}.", errno=number)


def open_world(config: SandboxConfig) -> Waits[LocalWorld]:
    """Make the box that config asks for. Raises TierUnavailableError, ConfigError or WorkspaceError; then nothing is left."""
    if config.tier not in BUILT_TIERS:
        raise errors.TierUnavailableError(
            f"tier {config.tier!r} is known but not built in this version.",
            hint=f"Built are {', '.join(BUILT_TIERS)}; nothing runs with less than what was asked for.",
        )
    policy = resolve(config, home=os.path.expanduser("~"))
    making = boxes.Making()
    watch: Watch | None = None
    try:
        if config.tier == "process":
            from ringfence.confine import process as floor  # what it imports is a tenth of a cold start without it

            prepared = floor.prepare(policy, making.begin)
        else:
            prepared = namespaces.prepare(policy, boxes.make_userns, making.begin)
    except BaseException:
        making.abandon()
        raise
    try:
        making.send(prepared.plan, prepared.trees)
        enforcement = prepared.enforcement()
        watch = _watch_for(policy)
        box = yield from making.complete(host.why_no_namespaces)
    except BaseException:
        making.abandon()
        prepared.release()
        if watch:
            watch.close()
        raise
    return LocalWorld(policy, prepared, box, enforcement, watch)


def _watch_for(policy: ResolvedPolicy) -> Watch | None:
    if policy.workspace is None and not policy.writable:
        return None
    from ringfence.confine.protected.watch import watch_for  # a box without a folder of the host needs none of it

    return watch_for(policy)


class Opened:
    """What a surface has of the box that it opens and closes, alike on both. One that belongs to a loop checks that in `_open`."""

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config if config is not None else SandboxConfig()
        if not isinstance(self.config, SandboxConfig):
            raise TypeError(f"Sandbox takes a SandboxConfig, not {type(config).__name__}.")
        self._world: LocalWorld | None = None

    def _must_be_new(self) -> None:
        if self._world is not None:
            raise errors.SandboxClosedError("this Sandbox was opened before; a box is opened once.")

    def _open(self) -> LocalWorld:
        if self._world is None:
            raise errors.SandboxClosedError("the box is not open.")
        self._world.must_be_open()
        return self._world

    @property
    def workdir(self) -> str:
        """The workspace, as a path inside the box; the same path outside where it is a folder of the host."""
        return self._open().workdir

    @property
    def backend(self) -> str:
        """The mechanism that holds this box."""
        return self._open().prepared.backend

    @property
    def enforcement(self) -> Enforcement:
        """What holds every run of this box, dimension by dimension."""
        return self._open().enforcement

    def planted(self) -> tuple[Denial, ...]:
        """What was planted in the folders that the box may write, since it was opened, for git outside to run.

        Denials of kind 'planted': nested repositories, bare repositories, gitlinks. Looks at all of these folders while the
        box is open; after its end it is what the last look of cleanup() knew. Not promised: who made it, the box or another
        program of the host; and what was there and gone again between two looks.
        """
        if self._world is None:
            raise errors.SandboxClosedError("the box is not open.")
        return self._world.planted()

    def resolve_path(self, path: str | os.PathLike[str], *, write: bool = False) -> str:
        """The absolute path of a file that the box may read, or with write may write. Raises OutsideError for others."""
        return self._open().resolve_path(path, write=write)
