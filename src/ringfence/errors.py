"""Every exception of ringfence: a code, an exit status for the command line, fields, and what to do next.

What a command did is a value (outcome.Result); these are what ringfence could not do, or was asked to do and will not. Only
raise_for_status turns a result into one of them.
"""

from __future__ import annotations

from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ringfence.outcome import Denial, Result


class RingfenceError(Exception):
    """The root. str() is one or two sentences: what failed, on what, and the next step; the fields hold the parts."""

    code: ClassVar[str] = "ringfence"
    exit_status: ClassVar[int] = 125
    hint: ClassVar[str] = "Report it together with the output of the failing call."

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        self.message = message
        self.next_step = self.hint if hint is None else hint
        self.fields = fields
        Exception.__init__(self, f"{message} {self.next_step}".strip())  # the builtin cousins have initialisers of their own

    def for_model(self) -> str:
        """What to tell a model, as Result.for_model does; of what ringfence could not do: that its code was not the cause."""
        from ringfence import for_model  # words, for those who ask

        return for_model.of_error(self)


class ConfigError(RingfenceError, ValueError):
    """A value of the configuration is not acceptable."""

    code = "config"
    hint = "Correct the named value; nothing was started."


class UnenforceableError(ConfigError):
    """A limit or rule was asked for that this version or this host cannot enforce. Fields: refusals, each with its key."""

    code = "unenforceable"
    hint = "Leave it at its default, or choose a tier that can enforce it."

    def __init__(self, message: str, *, hint: str | None = None, refusals: tuple[Any, ...] = ()) -> None:
        self.refusals = refusals
        super().__init__(message, hint=hint, refusals=refusals)


class PolicyError(ConfigError):
    """A policy file cannot be read, or says what no policy can. Fields: file, line and column (from 1), key where it has one."""

    code = "policy"
    hint = "Correct the file there; nothing was started."

    def __init__(self, what: str, *, file: str, line: int = 1, column: int = 1, key: str = "", hint: str | None = None) -> None:
        self.file, self.line, self.column, self.key = file, line, column, key
        fields = {"file": file, "line": line, "column": column, "key": key}
        super().__init__(f"{file}:{line}:{column}: {what}", hint=hint, **fields)


class WideningError(ConfigError):
    """A config that is to narrow another one would open something that the other closes. Fields: keys, those of a policy file."""

    code = "widening"
    hint = "A child can only take away; change the parent, or leave the key out of the child."


class WorkspaceError(ConfigError):
    """The folder cannot be a workspace."""

    code = "workspace"
    hint = "Name an existing folder of the project, by its real path."


class ArgumentError(RingfenceError, ValueError):
    """An argument of a call is not acceptable: an argv, a timeout, a working directory, an environment."""

    code = "argument"
    hint = "Correct the argument; nothing was run."


class TierUnavailableError(RingfenceError):
    """The boundary that was asked for cannot be delivered here, so nothing was run."""

    code = "tier-unavailable"
    hint = "Nothing runs with less than what was asked for."


class NotPermittedError(RingfenceError, PermissionError):
    """A rule, or whoever was asked, says that this is not to be done, so it was not begun. Fields: act, rule, why, asked.

    asked: whether it would have been done, had somebody agreed. The same act is not asked about again in this box.
    """

    code = "not-permitted"
    exit_status = 126
    hint = "Nothing was started; it is not asked again in this box. Do without, or let the rule be changed."

    def __init__(self, message: str, *, act: str = "", rule: str = "", why: str = "", asked: bool = False) -> None:
        self.act, self.rule, self.why, self.asked = act, rule, why, asked
        super().__init__(message, hint=None, act=act, rule=rule, why=why, asked=asked)

    __str__ = RingfenceError.__str__


class AdmissionError(RingfenceError):
    """What the box was to be guaranteed is held by other boxes of this user, to the end of the wait. Fields: holders."""

    code = "admission"
    hint = "Close some of these boxes, guarantee less, or wait longer: admission_seconds."

    def __init__(self, message: str, *, hint: str | None = None, holders: tuple[Any, ...] = ()) -> None:
        self.holders = holders
        super().__init__(message, hint=hint, holders=holders)


class SandboxClosedError(RingfenceError):
    """The box is closed, or was never opened."""

    code = "closed"
    hint = "Use it inside its with block, or make a new one."


class SandboxNotFoundError(SandboxClosedError, LookupError):
    """No box with that id is open in this process."""

    code = "box-not-found"
    hint = "Make it with Sandbox.create(id=...); a box that was closed, or that belongs to another process, is not found."


class SandboxExistsError(RingfenceError):
    """A box with that id is open, or being opened, in this process."""

    code = "box-exists"
    hint = "Use it by Sandbox.get(id), close it first, or choose another id."


class WrongLoopError(RingfenceError):
    """The box belongs to another event loop."""

    code = "wrong-loop"
    hint = "Use a box in the loop that opened it, or ringfence.sync, which belongs to none."


class SandboxLostError(RingfenceError):
    """The box died under the command, so nobody knows how it ended. stdout and stderr hold the output so far."""

    code = "lost"
    hint = "Make a new box; what the lost one had in its private folders is gone."

    def __init__(self, message: str, *, stdout: bytes = b"", stderr: bytes = b"", **fields: object) -> None:
        self.stdout, self.stderr = stdout, stderr
        super().__init__(message, hint=None, **fields)


class ProtectionLostError(RingfenceError):
    """A mount that protects a path of the workspace came off and could not be put back, so nothing more is run in the box."""

    code = "protection-lost"
    hint = "Look at the path on the host: something replaced it. Then make a new box, which protects what is there."


class ProtocolError(RingfenceError):
    """The other side of the box said something that its protocol does not allow. The box is ended."""

    code = "protocol"
    hint = "The box was ended, since what it says can no longer be believed; make a new one."


class HostError(RingfenceError, OSError):
    """The host refused ringfence something that it needs: a full disk, no descriptors, no processes."""

    code = "host"
    hint = "Free the resource that is named and try again."

    def __init__(self, message: str, *, errno: int = 0, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint, **fields)
        self.errno = errno

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".strip()


class TraceError(RingfenceError):
    """The trace cannot be opened, written or read.

    Fields: path, and kind: full, locked, read-only, corrupt, foreign, newer or access.
    result is the whole result of the run that ended and could not be recorded, where the record is required.
    """

    code = "trace"
    hint = "Correct what is named, or name another place for the trace."

    def __init__(self, message: str, *, path: str = "", kind: str = "", hint: str | None = None) -> None:
        self.path, self.kind = path, kind
        self.result: Result | None = None
        super().__init__(message, hint=hint, path=path, kind=kind)


class PathError(RingfenceError):
    """A path of a file call: the root of what can be wrong with it."""

    code = "path"
    hint = "Name a file of the workspace."


class OutsideError(PathError, PermissionError):
    """The path leads out of what the box may read or write."""

    code = "path-outside"

    __str__ = RingfenceError.__str__


class PathNotFoundError(PathError, FileNotFoundError):
    """Nothing is at the path."""

    code = "path-not-found"

    __str__ = RingfenceError.__str__


class PathExistsError(PathError, FileExistsError):
    """Something is at the path already, and the call does not replace it."""

    code = "path-exists"
    hint = "Choose another name, or let the call replace what is there where it can."

    __str__ = RingfenceError.__str__


class FolderNotEmptyError(PathError, OSError):
    """The folder holds something, so it is neither removed nor replaced."""

    code = "folder-not-empty"
    hint = "Remove what it holds first, or name recursive=True."

    __str__ = RingfenceError.__str__


class NotAFolderError(PathError, NotADirectoryError):
    """The path is not a folder, and only folders are listed."""

    code = "not-a-folder"
    hint = "Name a folder of the box."

    __str__ = RingfenceError.__str__


class NotAFileError(PathError, ValueError):
    """The path is a folder, a device, a FIFO or a socket; only regular files are read and written."""

    code = "not-a-file"


class FileTooLargeError(PathError, ValueError):
    """The file, or the listing, is larger than one call returns."""

    code = "file-too-large"
    hint = "Read a part of it with a command such as head."


class FileTimeError(PathError, TimeoutError):
    """Work on the file was ended because it took too long: its file system hangs, or the tree is very large."""

    code = "file-time"
    hint = "Name a smaller tree, or use a command, which has a deadline of its own."

    __str__ = RingfenceError.__str__


class FileRefusedError(PathError, OSError):
    """The box's own system refused the file: permission, a read-only place, a full disk."""

    code = "file-refused"
    hint = "Check the mode of the workspace and the free space."

    def __init__(self, message: str, *, errno: int = 0, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint, **fields)
        self.errno = errno

    __str__ = RingfenceError.__str__


class ConnectError(RingfenceError, ConnectionError):
    """No connection to a server in the box could be made, or it broke."""

    code = "connect"
    hint = "Check in the box what listens on the port, and on which address."

    __str__ = RingfenceError.__str__


class ConnectRefusedError(ConnectError, ConnectionRefusedError):
    """Nothing listens on the port in the box."""

    code = "connect-refused"
    hint = "Start a server in the box first; wait gives it time to begin to listen."

    __str__ = RingfenceError.__str__


class CommandError(RingfenceError):
    """Only from raise_for_status: the command ran, or was tried, and did not return 0. result is the whole result."""

    code = "command"
    exit_status = 1
    hint = "Look at the result's stdout and stderr."

    def __init__(self, message: str, result: Result, **fields: object) -> None:
        self.result = result
        RingfenceError.__init__(self, message, hint=None, **fields)


class CommandFailedError(CommandError, CalledProcessError):
    """The command exited with another code than 0, or a signal ended it (returncode is then negative)."""

    code = "command-failed"

    def __init__(self, message: str, result: Result) -> None:
        returncode = result.exit_code if result.exit_code is not None else -(result.signal or 0)
        CalledProcessError.__init__(self, returncode, list(result.argv), result.stdout, result.stderr)
        CommandError.__init__(self, message, result)

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}"


class PlantedError(RingfenceError):
    """Something was planted for git outside to run, and the policy says `on_planted: refuse`. denials name it.

    result is the whole result of the run that it was found after, or None where it was found when the box ended.
    """

    code = "planted"
    hint = "Remove what is named, or look at its settings and hooks, before git is called there or above."

    def __init__(self, denials: tuple[Denial, ...], result: Result | None = None) -> None:
        self.denials, self.result = denials, result
        named = "; ".join(f"{denial.target} ({denial.detail})" for denial in denials[:5])
        super().__init__(f"{len(denials)} planted: {named}.", denials=denials)


class AgentError(RingfenceError):
    """A run of an agent did not complete, or cannot go on. result is what it came to, where there is one."""

    code = "agent"
    exit_status = 1
    hint = "Look at status and stop_reason of the result, and at its journal."

    def __init__(self, message: str, *, hint: str | None = None, result: Any = None) -> None:
        self.result = result
        super().__init__(message, hint=hint, result=result)


class CapExceededError(CommandError):
    """A cap ended the command."""

    code = "cap"
    exit_status = 124
    hint = "Raise the limit if the work needs it; the output so far is in the result."


class TimeExceededError(CapExceededError, TimeoutError):
    """The cap was time: the deadline of the call, its CPU seconds or the life of the box."""

    code = "cap-time"


class CommandNotStartedError(CommandError):
    """exec did not happen: not executable, no interpreter, a directory, a bad format."""

    code = "not-started"
    exit_status = 126
    hint = "Check the program's mode, its first line and its architecture."


class CommandNotFoundError(CommandNotStartedError, FileNotFoundError):
    """No program of that name is in the box."""

    code = "not-found"
    exit_status = 127
    hint = "Name a program that is on the box's PATH, or its whole path."

    __str__ = RingfenceError.__str__


def for_result(result: Result) -> CommandError | PlantedError:
    """The error that raise_for_status raises for a result that is not ok."""
    from ringfence.outcome import CapHit, Exited, NotStarted, Reason, Signaled, amount

    if result.refused:
        return PlantedError(result.refused, result)
    command = " ".join(result.argv)[:200]
    match result.outcome:
        case CapHit(kind=kind, limit=limit, enforced_by=by):
            error = TimeExceededError if kind in ("wall", "cpu", "idle") else CapExceededError
            return error(f"{command!r} reached its {kind} limit of {amount(kind, limit)} ({by}).", result)
        case NotStarted(reason=Reason.NOT_FOUND, path=path):
            return CommandNotFoundError(f"{path!r} was not found in the box.", result)
        case NotStarted(reason=reason, path=path):
            return CommandNotStartedError(f"{path!r} was not started: {reason}.", result)
        case Exited(code=code):
            return CommandFailedError(f"{command!r} exited with {code}.", result)
        case Signaled(signal=signal):
            return CommandFailedError(f"{command!r} was ended by signal {signal}.", result)
    return CommandError(f"{command!r} was cancelled.", result)
