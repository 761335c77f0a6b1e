"""What became of a run of an agent, what it may spend, and what a caller is told while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from ringfence.agent.tools.tool import ToolResult
from ringfence.errors import AgentError, ArgumentError
from ringfence.values import field, fields, frozen

Status: TypeAlias = Literal["completed", "truncated", "limited", "refused", "failed", "needs_input"]

TURNS = 50
REQUEST_SECONDS = 600.0
"""How long one answer of a model is waited for: the time-out of the common providers' own clients."""


@frozen
class AgentLimits:
    """What one run may spend; None is no limit.

    turns: answers of the model. seconds: the whole run; a call that runs then is ended. request_seconds: one answer of the model.
    input_tokens, output_tokens, total_tokens: summed over the run, as the provider counts them; looked at after each answer, so
    that the last one may go beyond. Raises ArgumentError for what is no positive number.
    """

    turns: int | None = TURNS
    seconds: float | None = None
    request_seconds: float | None = REQUEST_SECONDS
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0):
                raise ArgumentError(f"{each.name} of AgentLimits must be a positive number or None, not {given!r}.")


@frozen
class AgentUsage:
    """What a run spent: requests that the model answered, calls that were carried out, tokens as the provider counts them."""

    requests: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@frozen
class PendingCall:
    """A call that was begun before a crash, and nobody knows whether it was done. arguments: as the model gave them."""

    name: str
    arguments: Mapping[str, Any] | str


@frozen
class RunResult:
    """How a run of an agent ended.

    run_id: for Agent.resume. output: the text of the model's last answer. status: completed; truncated, where the provider cut the
    answer at its own limit; limited by AgentLimits, or because the model called the same again and again; refused by the model or
    its provider; failed, where no answer came; needs_input, where pending has to be decided before the run can go on. stop_reason:
    which of these it was, in a word. error: what failed, in a sentence. messages: the conversation, in pydantic-ai's types.
    """

    run_id: str
    output: str
    status: Status
    stop_reason: str
    usage: AgentUsage = field(default_factory=AgentUsage)
    error: str = ""
    pending: PendingCall | None = None
    messages: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the model came to an end of its own."""
        return self.status == "completed"

    @property
    def truncated(self) -> bool:
        return self.status == "truncated"

    @property
    def limited(self) -> bool:
        return self.status == "limited"

    @property
    def refused(self) -> bool:
        return self.status == "refused"

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def needs_input(self) -> bool:
        return self.status == "needs_input"

    def raise_for_status(self) -> RunResult:
        """This result where it is ok. Raises AgentError, which has it."""
        if self.ok:
            return self
        said = self.error or (f"the output until then: {self.output[:200]!r}." if self.output else "There is no output.")
        raise AgentError(f"the run {self.run_id} of the agent ended {self.status} ({self.stop_reason}): {said}", result=self)


@frozen
class AgentEvent:
    """What a caller is told while a run goes on.

    kind: text, a piece of the model's answer; call, a tool is begun; answer, it has ended; end. name, arguments: of a call and its
    answer. text: the piece, or what the model is told. tool: of an answer, more of it. result: of the end.
    """

    kind: Literal["text", "call", "answer", "end"]
    text: str = ""
    name: str = ""
    arguments: Mapping[str, Any] | str = ""
    tool: ToolResult | None = None
    result: RunResult | None = None
