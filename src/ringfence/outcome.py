"""What a run was: how it ended, what it used, what was refused, what held it. Values only; nothing here acts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, TypeAlias

from ringfence import errors
from ringfence.values import field, fields, frozen, replace


@frozen
class Exited:
    """The command ran and returned code (0 to 255)."""

    code: int


@frozen
class Signaled:
    """The command ran and a signal that is not a cap of ours ended it."""

    signal: int


CapKind: TypeAlias = Literal["cpu", "wall", "memory", "idle", "processes", "open_files", "file_size", "disk", "inodes"]
"""What a cap is of. wall is the time of a call and the life of its box; enforced_by says which."""


@frozen
class CapHit:
    """A cap ended the command.

    limit and observed are in the unit of the cap (seconds, bytes or a count; observed is None where nothing counted it);
    enforced_by names the mechanism.
    """

    kind: CapKind
    limit: float
    observed: float | None
    enforced_by: str


def amount(kind: str, value: float) -> str:
    """How much a value of a cap is, to read: seconds, bytes in their largest unit, or a count."""
    if kind in ("memory", "disk", "file_size"):
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size:
                return f"{value / size:.2f}".rstrip("0").rstrip(".") + f" {name}"
        return f"{value:.0f} bytes"
    return (f"{value:.3g}" if value < 1000 else f"{value:.0f}") + (" s" if kind in ("wall", "cpu", "idle") else "")


class Reason(StrEnum):
    """Why a command was not started."""

    NOT_FOUND = "not found"
    NOT_EXECUTABLE = "not executable"
    IS_A_DIRECTORY = "is a directory"
    MISSING_INTERPRETER = "its interpreter is missing"
    BAD_FORMAT = "not in a format that this machine runs"
    TOO_LARGE = "arguments and environment larger than the kernel takes"
    BAD_CWD = "the working directory cannot be entered"
    NO_PROCESS = "no further process may be started"
    NO_RESOURCES = "the host is out of a resource"
    NO_SPACE = "the private folders of the box are full"
    REFUSED = "refused by the kernel"


@frozen
class NotStarted:
    """exec never happened, so there is no exit code. path is what was tried, errno what the kernel said."""

    reason: Reason
    path: str
    errno: int


@frozen
class Cancelled:
    """The caller gave the run up; only in records, since the awaiting call raises its loop's own cancellation."""


Outcome: TypeAlias = Exited | Signaled | CapHit | NotStarted | Cancelled


@frozen
class Denial:
    """Something the boundary refused, or that a box left for a program outside to run (kind 'planted').

    kind is read, write, exec, net, syscall, cap, planted or unprotected. evidence is 'observed' (by what the box cannot write to)
    or 'inferred' (a program said so on stderr, and the policy does close it: a program that lies can say it too). rule is the
    one that `explain` names; remedy the policy line that would allow it, keys joined by dots, None where no line does; detail
    says more about the target.
    """

    kind: str
    target: str
    rule: str
    evidence: str
    remedy: str | None = None
    detail: str = ""


REPORT_AS = "sandbox_denial"
"""What a denial is called where it is told: `on_violation.report_as` of a policy file, which knows no other; hooks; for_model."""
REFUSED = "on_planted: refuse"
"""The rule of a denial that makes its result a failure."""


class Level(StrEnum):
    """How far one dimension is enforced."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


@frozen
class Enforced:
    """One dimension: how far, by which mechanism, and what is missing where it is not full."""

    level: Level
    by: str = ""
    note: str = ""

    def __str__(self) -> str:
        return self.level + (f" by {self.by}" if self.by else "") + (f": {self.note}" if self.note else "")


NOT_ENFORCED = Enforced(Level.NONE)


@frozen
class Enforcement:
    """What held the run, dimension by dimension. Never more than what was applied."""

    filesystem: Enforced = NOT_ENFORCED
    secrets: Enforced = NOT_ENFORCED
    protected: Enforced = NOT_ENFORCED
    network: Enforced = NOT_ENFORCED
    processes: Enforced = NOT_ENFORCED
    syscalls: Enforced = NOT_ENFORCED
    ids: Enforced = NOT_ENFORCED
    environment: Enforced = NOT_ENFORCED
    descriptors: Enforced = NOT_ENFORCED
    wall: Enforced = NOT_ENFORCED
    cpu: Enforced = NOT_ENFORCED
    memory: Enforced = NOT_ENFORCED
    max_processes: Enforced = NOT_ENFORCED
    open_files: Enforced = NOT_ENFORCED
    file_size: Enforced = NOT_ENFORCED
    disk: Enforced = NOT_ENFORCED
    inodes: Enforced = NOT_ENFORCED
    cpu_share: Enforced = NOT_ENFORCED
    guaranteed: Enforced = NOT_ENFORCED
    lifetime: Enforced = NOT_ENFORCED
    idle: Enforced = NOT_ENFORCED
    output: Enforced = NOT_ENFORCED

    def without(self, paths: str) -> Enforcement:
        """The same for a run during which these paths of the workspace were not protected."""
        note = f"the protection of {paths} was off for a part of the run"
        return replace(self, filesystem=Enforced(Level.PARTIAL, self.filesystem.by, note))

    def without_groups(self, names: Iterable[str]) -> Enforcement:
        """The same where the control groups of these controllers hold nothing any more, or all of version 2 ("v2")."""
        said = {entry.name: getattr(self, entry.name).by.partition(",")[0].split() for entry in fields(self)}
        lost = [name for name, words in said.items() if words[:1] == ["cgroup"] and not set(names).isdisjoint(words)]
        none = Enforced(Level.NONE, "", "its control group was taken away from the box, or the box from it, while it lived")
        return replace(self, **dict.fromkeys(lost, none))

    def unobserved(self, note: str) -> Enforcement:
        """The same where refused system calls are refused and not told."""
        notes = [self.syscalls.note, note] if self.syscalls.note else [note]
        return replace(self, syscalls=replace(self.syscalls, note="; ".join(notes)))

    def __str__(self) -> str:
        return "\n".join(f"{entry.name}: {getattr(self, entry.name)}" for entry in fields(self))


@frozen
class Usage:
    """What the run used: seconds of wall time, CPU seconds of its first process and the children it waited for, bytes written."""

    wall_seconds: float = 0.0
    cpu_user_seconds: float = 0.0
    cpu_system_seconds: float = 0.0
    stdout_bytes: int = 0
    stderr_bytes: int = 0


@frozen
class Output:
    """A bounded stream: its head, its tail, and the number of bytes between them that were left out."""

    head: bytes = b""
    tail: bytes = b""
    omitted: int = 0

    @property
    def data(self) -> bytes:
        return self.head + self.tail

    @property
    def text(self) -> str:
        """UTF-8 with replacement characters. Where bytes were left out a line says how many; no character is cut in two."""
        if not self.omitted:
            return self.data.decode("utf-8", "replace")
        head, tail = _whole_end(self.head), _whole_start(self.tail)
        left_out = self.omitted + len(self.head) - len(head) + len(self.tail) - len(tail)
        return f"{head.decode('utf-8', 'replace')}\n[... {left_out} bytes left out ...]\n{tail.decode('utf-8', 'replace')}"


def _whole_end(data: bytes) -> bytes:
    """data without a UTF-8 sequence that its end cut short (RFC 3629: at most three continuation bytes)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if needed > back else data
    return data


def _whole_start(data: bytes) -> bytes:
    """data without the continuation bytes that it begins with; four of them are no UTF-8 and stay (RFC 3629)."""
    cut = 0
    while cut < min(4, len(data)) and data[cut] & 0xC0 == 0x80:
        cut += 1
    return data[cut:] if cut < 4 else data


@frozen
class Change:
    """What a box changed in its private copy of a protected path. The host's is as it was; path is where that lies.

    diff is text to read, with everything spelled out that a terminal would act on. offered are settings of git, (key, value),
    that may be taken over: none that git runs, none that the host's file has already.
    """

    path: str
    diff: str
    offered: tuple[tuple[str, str], ...] = ()


def lines_of(changes: Iterable[Change]) -> list[str]:
    """What to say of changes in a summary: one line for each file, and one for what may be taken over."""
    changed = tuple(changes)
    said = [f"{change.path} was changed in the box only; the host's is as it was" for change in changed]
    keys = sorted({key for change in changed for key, _ in change.offered})
    return [*said, f"may be taken over: {', '.join(keys)}"] if keys else said


@frozen
class Result:
    """One run, ended. What the command did is here as a value; what ringfence failed to do would have been raised."""

    argv: tuple[str, ...]
    outcome: Outcome
    output: Output
    errors: Output
    usage: Usage
    enforcement: Enforcement
    backend: str
    policy_hash: str
    files_created: tuple[str, ...] | None = None
    """Files new in the workspace, relative to it; None where it is too large to be watched (see list_files)."""
    denials: tuple[Denial, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def stdout(self) -> str:
        return self.output.text

    @property
    def stderr(self) -> str:
        return self.errors.text

    @property
    def stdout_bytes(self) -> bytes:
        return self.output.data

    @property
    def stderr_bytes(self) -> bytes:
        return self.errors.data

    @property
    def truncated(self) -> bool:
        """Whether bytes of either stream were left out; output.omitted and errors.omitted say how many."""
        return bool(self.output.omitted or self.errors.omitted)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None unless the command exited."""
        return self.outcome.code if isinstance(self.outcome, Exited) else None

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, or None."""
        return self.outcome.signal if isinstance(self.outcome, Signaled) else None

    @property
    def timed_out(self) -> bool:
        return isinstance(self.outcome, CapHit) and self.outcome.kind == "wall"

    @property
    def memory_exceeded(self) -> bool:
        """Whether the memory cap was met: it ended the command, or one of its processes was killed and the command went on."""
        if isinstance(self.outcome, CapHit) and self.outcome.kind == "memory":
            return True
        return any((denial.kind, denial.target) == ("cap", "memory") for denial in self.denials)

    @property
    def execution_time_ms(self) -> float:
        return self.usage.wall_seconds * 1000

    @property
    def refused(self) -> tuple[Denial, ...]:
        """What was planted, where the policy says `on_planted: refuse`: then no result with it is ok."""
        return tuple(denial for denial in self.denials if denial.rule == REFUSED)

    @property
    def ok(self) -> bool:
        """Whether the command ran and returned 0, and planted nothing that the policy refuses."""
        return self.outcome == Exited(0) and not self.refused

    def for_model(self) -> str:
        """What to tell a model of this run, beside its output: a line for how it ended, for each denial, for output that was cut.

        Each line is `[kind] what happened, why, what can be done`; text from inside is escaped and bounded, and ends no line.
        """
        from ringfence import for_model  # words, for those who ask

        return for_model.of_result(self)

    def raise_for_status(self) -> Result:
        """This result if it is ok; else PlantedError, CommandFailedError, CapExceededError, CommandNotFoundError or
        CommandNotStartedError."""
        if self.ok:
            return self
        raise errors.for_result(self)
