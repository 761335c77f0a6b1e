"""What happens in boxes, as data: the events, what each carries, and what a handler is given. See ringfence.hooks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypedDict

from ringfence.outcome import Denial, Outcome

MOST_TEXT = 4096
"""Characters of what was run that an event carries."""
MOST_DENIALS = 100
"""Denials of one run that are events of their own; SANDBOX_EXEC has them all."""


class HookEvent(StrEnum):
    """What a handler can be told of. The order for one box: its start, for each run its denials and then the run, its end.

    Questions come when they have their answer.
    """

    SANDBOX_START = "sandbox_start"
    SANDBOX_DENIAL = "sandbox_denial"
    SANDBOX_EXEC = "sandbox_exec"
    SANDBOX_QUESTION = "sandbox_question"
    SANDBOX_END = "sandbox_end"


class SandboxStartData(TypedDict):
    """A box was made. box is its id, where it has one; tier the mechanism that holds it."""

    box: str | None
    tier: str
    policy_hash: str


class SandboxDenialData(TypedDict):
    """The boundary refused something during a run; at most the first hundred of it."""

    box: str | None
    denial: Denial


class SandboxExecData(TypedDict):
    """One execute (kind 'code'), execute_command ('command') or run ('argv') is over, however it ended.

    exit_code: None unless the command exited. outcome: None where nobody knows, since ringfence failed; error is then the code
    of the exception that the call raises. language: that of a program, else ''. text: the program, the shell line or the argv
    quoted for a shell, its first 4096 characters; text_omitted is how many more there were.
    """

    box: str | None
    kind: Literal["code", "command", "argv"]
    tier: str
    exit_code: int | None
    timed_out: bool
    execution_time_ms: float
    outcome: Outcome | None
    denials: tuple[Denial, ...]
    error: str | None
    language: str
    text: str
    text_omitted: int


class SandboxQuestionData(TypedDict):
    """Somebody was asked, and this came back after so many seconds; a refusal too, of an approver or for a bound.

    question and answer are those of ringfence.permission.questions. An async handler is called in a thread, under asyncio.
    """

    box: str | None
    question: Any
    answer: Any
    seconds: float


class SandboxEndData(TypedDict):
    """A box is gone. denials: what was observed after its last result."""

    box: str | None
    tier: str
    denials: tuple[Denial, ...]


@dataclass(slots=True)
class HookContext:
    """What a handler is given, a copy for each. data: the typed dict of the event. timestamp: seconds since the epoch.

    agent is whatever the one who emits has to say; boxes say nothing.
    """

    event: HookEvent
    agent: Any = None
    data: dict[str, Any] = field(default_factory=dict)
    timestamp: float = field(default_factory=time.time)
