"""The seam to what records boxes and runs, beside the hooks: called in the caller's thread, before the caller has its result.

No room below knows of it. What a recorder raises becomes a note of the result, or the error where it is `required`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ringfence.outcome import Denial, Enforcement, Output, Result
from ringfence.values import field, frozen

NOT_RECORDED = "This run is not in the trace:"
"""How the note of a result begins that could not be recorded; it is the last one."""


@frozen(kw_only=True)
class BoxStarted:
    """A box was made. config, policy, plan and limits as they are, with values of variables in them; seconds: what making took."""

    box: str | None
    tier: str
    policy_hash: str
    config: object
    variables: Mapping[str, str]
    plan: object
    enforcement: Enforcement
    workdir: str
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@frozen(kw_only=True)
class RunStarted:
    """A run was sent to its box. box_row: what box_started returned. kind: argv, command, code or spawn. input: None for none."""

    box_row: int
    kind: str
    argv: tuple[str, ...]
    text: str = ""
    language: str = ""
    input: bytes | None = None
    cwd: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None


@frozen(kw_only=True)
class RunEnded:
    """A run is over. result: None where ringfence failed or the caller gave up; error is then the code, message what was said.

    output: what went by on the streams of a command that the caller reads itself, as far as it was seen. enforcement: what held
    the run, where that is not what held the box at its start. unsaid: its beginning, where a recorder with a `patience` was not
    told of it yet; begun is 0 then.
    """

    box_row: int
    begun: int
    result: Result | None
    error: str = ""
    message: str = ""
    seconds: float = 0.0
    output: tuple[Output, Output] | None = None
    enforcement: Enforcement | None = None
    unsaid: RunStarted | None = None


@frozen(kw_only=True)
class QuestionAsked:
    """Somebody was asked, and answered or did not. box_row: the box; begun: the run that it was about, 0 for none yet."""

    box_row: int
    begun: int = 0
    kind: str = ""
    what: str = ""
    rule: str = ""
    grant: str = ""
    choice: str = ""
    why: str = ""
    seconds: float = 0.0


@frozen(kw_only=True)
class BoxEnded:
    """A box is gone. denials: what was observed after its last result."""

    box_row: int
    denials: tuple[Denial, ...] = ()


class Recorder(Protocol):
    """What is told of boxes and runs, each before the call that it is about returns. Methods are called from any thread."""

    @property
    def required(self) -> bool:
        """Whether what cannot be recorded is not run: then the error is raised instead of a note."""

    def box_started(self, made: BoxStarted) -> int:
        """A number for the box, which what belongs to it names."""

    def run_started(self, begun: RunStarted) -> int:
        """A number for the run."""

    def run_ended(self, ended: RunEnded) -> None: ...

    def asked(self, asked: QuestionAsked) -> None: ...

    def box_ended(self, ended: BoxEnded) -> None: ...
