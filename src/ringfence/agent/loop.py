"""The loop of one run: the model is asked, its calls are carried out one after the other, it is told the answers, until it ends.

Everything that happens is in the journal before the next thing begins. A run that is resumed goes through the same loop, with the
record in place of the model and of the calls that have ended, so that nothing is decided differently the second time.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import anyio

from ringfence.agent.journal import Journal
from ringfence.agent.models import Asked
from ringfence.agent.registry import ToolRegistry
from ringfence.agent.result import AgentEvent, AgentLimits, AgentUsage, PendingCall, RunResult, Status
from ringfence.agent.tools.tool import ToolResult
from ringfence.for_model import plain
from ringfence.values import replace

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

    from ringfence.permission.questions import Approver

OnEvent: TypeAlias = Callable[[AgentEvent], Awaitable[object] | object]
Unknown: TypeAlias = Literal["again", "skip"] | None
Arguments: TypeAlias = Mapping[str, Any] | str

MOST_CALLS = 32
"""Calls of one answer that are carried out. A model that asks for more does not look at what it gets."""
MOST_EMPTY = 2
MOST_SAME = 8
"""How often in a row the same calls give the same answers before the run ends: waiting for something needs several."""
MOST_SAID = 600

EMPTY = "[empty_answer] Your last answer was empty. Call a tool, or say that you are done and what came of it."
RESUMED = (
    "[resumed] This run was interrupted, and goes on in another process. What was in the home and temporary folders of the "
    "sandbox, and what ran in it, may be gone; the files of the workspace are as they were left. Calls that have an "
    "answer were not repeated."
)
OUTCOME_UNKNOWN = (
    "[outcome_unknown] The process that carried this call out ended while it ran. Nobody knows whether it was done, in whole or in "
    "part, and it was not repeated. Look at what is there before you do it again."
)
NOT_CARRIED_OUT = (
    f"[call_refused] The call was not carried out: at most {MOST_CALLS} calls of one answer are. Ask again for what is left."
)


class Ended(Exception):
    """The run is over, or waits for a decision (pending)."""

    def __init__(self, status: Status, reason: str, error: str = "", pending: PendingCall | None = None) -> None:
        self.status, self.reason, self.error, self.pending = status, reason, error, pending


class Loop:
    """One run."""

    def __init__(
        self,
        asked: Asked,
        tools: ToolRegistry,
        limits: AgentLimits,
        journal: Journal,
        *,
        on_event: OnEvent | None,
        unknown: Unknown = None,
        approver: Approver | None = None,
        resumed: bool = False,
    ) -> None:
        self.asked, self.tools, self.limits, self.journal = asked, tools, limits, journal
        self._on_event, self._unknown, self._approver = on_event, unknown, approver
        self._resumed = resumed
        self._until = anyio.current_time() + limits.seconds if limits.seconds is not None else float("inf")
        self._usage = AgentUsage()
        self._output = ""
        self._messages: list[ModelMessage] = []
        self._empty = self._same = 0
        self._last: object = None
        self._of_callback: BaseException | None = None

    async def run(self) -> RunResult:
        """Go on until it is over. Raises HostError where the journal cannot be written, and what on_event raises."""
        end = await self._ended()
        result = RunResult(
            self.journal.run_id, self._output, end.status, end.reason, self._usage, end.error, end.pending, tuple(self._messages)
        )
        if end.pending is None:
            self.journal.say_end({
                "status": end.status, "stop_reason": end.reason, "output": self._output, "error": end.error,
                "usage": {name: getattr(self._usage, name) for name in ("requests", "calls", "input_tokens", "output_tokens")},
            })  # fmt: skip
        await self._say(AgentEvent("end", result=result))
        return result

    async def _ended(self) -> Ended:
        try:
            await self._turns()
        except Ended as end:
            return end

    async def _turns(self) -> NoReturn:
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        next_parts: list[Any] = [UserPromptPart(self.journal.start["prompt"])]
        turn = 0
        while True:
            if self.limits.turns is not None and turn >= self.limits.turns:
                raise Ended("limited", "turns", f"the model was asked {turn} times.")
            self._check_time()
            if self._goes_on_here(turn):
                next_parts.append(UserPromptPart(RESUMED))
            self._messages.append(ModelRequest(next_parts, instructions=self.journal.start["instructions"] or None))
            response = await self._response(turn)
            self._messages.append(response)
            self._count(response)
            next_parts = await self._after(turn, response)
            turn += 1

    def _goes_on_here(self, turn: int) -> bool:
        """Whether the model is to hear, before this turn, that the run was interrupted."""
        if self._resumed and turn and self.journal.response(turn) is None:
            self._resumed = False
            if not self.journal.was_resumed(turn):
                self.journal.say_resumed(turn)
        return self.journal.was_resumed(turn)

    async def _response(self, turn: int) -> ModelResponse:
        """The model's answer, from the record or asked for."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        known = self.journal.response(turn)
        if known is not None:
            found: Any = ModelMessagesTypeAdapter.validate_json(json.dumps([known]))[0]
            return found  # type: ignore[no-any-return]
        bound = self.limits.request_seconds
        until = min(self._until, anyio.current_time() + bound if bound is not None else float("inf"))
        response = None
        try:
            with anyio.move_on_at(until):
                response = await self.asked.answer(self._messages, self._say_text if self._on_event is not None else None)
        except Exception as error:  # whatever a provider's client raises; the run is over, and says why
            if error is self._of_callback:
                raise
            said = plain(f"{type(error).__name__}: {error}", MOST_SAID)
            status: Status = "refused" if type(error).__name__ == "ContentFilterError" else "failed"
            raise Ended(status, "model", f"the model gave no answer: {said}") from error
        if response is None:
            self._check_time()
            raise Ended("failed", "slow", f"the model gave no answer within {bound:g} s.")
        self.journal.say_response(turn, ModelMessagesTypeAdapter.dump_python([response], mode="json")[0])
        return response

    def _count(self, response: ModelResponse) -> None:
        used = response.usage
        self._usage = replace(
            self._usage,
            requests=self._usage.requests + 1,
            input_tokens=self._usage.input_tokens + used.input_tokens,
            output_tokens=self._usage.output_tokens + used.output_tokens,
        )

    async def _after(self, turn: int, response: ModelResponse) -> list[Any]:
        """What the model is told next. Raises Ended where there is nothing more to tell it."""
        from pydantic_ai.messages import ToolReturnPart, UserPromptPart

        text, calls = response.text or "", response.tool_calls
        self._output = text or self._output
        if response.finish_reason == "content_filter":
            raise Ended("refused", "content_filter", "the model, or its provider, refused to answer.")
        if response.finish_reason == "error" or response.state != "complete":
            raise Ended("failed", "interrupted", "the model's answer was broken off.")
        if not calls:
            if response.finish_reason == "length":
                raise Ended("truncated", "length", "the answer was cut at the provider's limit for one answer.")
            if text.strip():
                raise Ended("completed", "end")
            self._empty += 1
            if self._empty >= MOST_EMPTY:
                raise Ended("failed", "empty", f"the model gave {MOST_EMPTY} empty answers in a row.")
            self._check_tokens()
            return [UserPromptPart(EMPTY)]
        self._empty = 0
        self._check_tokens()
        answers = [await self._call(turn, index, call) for index, call in enumerate(calls)]
        self._check_same([(call.tool_name, str(call.args)) for call in calls], answers)
        return [ToolReturnPart(call.tool_name, text, call.tool_call_id) for call, text in zip(calls, answers, strict=True)]

    async def _call(self, turn: int, index: int, call: ToolCallPart) -> str:
        """Carry out one call of the model, unless that is done; the answer's text."""
        if index >= MOST_CALLS:
            return NOT_CARRIED_OUT
        arguments: Arguments = "" if call.args is None else call.args
        known = self.journal.answer(turn, index)
        self._usage = replace(self._usage, calls=self._usage.calls + 1)
        if known is not None:
            return str(known["text"])
        if self.journal.unknown(turn, index) and not await self._again(call.tool_name, arguments):
            self.journal.say_answer(turn, index, OUTCOME_UNKNOWN, False, "unknown")
            return OUTCOME_UNKNOWN
        self._check_time()
        self.journal.say_begun(turn, index, call.tool_name, arguments)
        await self._say(AgentEvent("call", name=call.tool_name, arguments=arguments))
        result: ToolResult | None = None
        with anyio.move_on_at(self._until):
            result = await self.tools.execute(call.tool_name, arguments)
        if result is None:
            raise Ended(
                "limited", "seconds", f"the run took longer than {self.limits.seconds:g} s; a call of {call.tool_name} was ended."
            )
        self.journal.say_answer(turn, index, result.text, result.ok, result.error)
        await self._say(AgentEvent("answer", result.text, call.tool_name, arguments, result))
        return result.text

    async def _again(self, name: str, arguments: Arguments) -> bool:
        """Whether a call that may have been done is done again. Raises Ended where somebody has to say so first."""
        tool = self.tools.get(name)
        if tool is not None and (tool.safe or tool.idempotent):
            return True
        if self._unknown is not None:
            return self._unknown == "again"
        if self._approver is None:
            said = f"a call of {name} was begun before the run was interrupted, and nobody knows whether it was done."
            raise Ended("needs_input", "outcome_unknown", said, PendingCall(name, arguments))
        from ringfence.permission.questions import Question, Questions

        shown = f"{name} {arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=repr)}"
        questions = Questions(self._approver)
        asking = questions.put(
            Question(
                "command",
                shown,
                rule="it was begun before the run was interrupted, and nobody knows whether it was done",
                grant="that it is done once more",
                choices=("once", "no"),
                deadline_seconds=questions.deadline_seconds,
            )
        )
        try:
            if asking.descriptor >= 0:
                with anyio.move_on_after(max(0.0, asking.until - time.monotonic())):
                    await anyio.wait_readable(asking.descriptor)
            return asking.answer().granted
        finally:
            asking.close()
            questions.close()

    def _check_time(self) -> None:
        if anyio.current_time() >= self._until:
            raise Ended("limited", "seconds", f"the run took longer than {self.limits.seconds:g} s.")

    def _check_tokens(self) -> None:
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            bound, spent = getattr(self.limits, name), getattr(self._usage, name)
            if bound is not None and spent >= bound:
                raise Ended("limited", name, f"{spent} {name.replace('_', ' ')} were spent, of {bound}.")

    def _check_same(self, calls: list[tuple[str, str]], answers: list[str]) -> None:
        self._same = self._same + 1 if (calls, answers) == self._last else 1
        self._last = (calls, answers)
        if self._same >= MOST_SAME:
            names = ", ".join(dict.fromkeys(name for name, _ in calls))
            raise Ended("limited", "loop", f"the model called {names} {MOST_SAME} times in a row alike, with the same answers.")

    async def _say_text(self, text: str) -> None:
        await self._say(AgentEvent("text", text))

    async def _say(self, event: AgentEvent) -> None:
        if self._on_event is None:
            return
        try:
            made = self._on_event(event)
            if inspect.isawaitable(made):
                await made
        except BaseException as error:
            self._of_callback = error
            raise
