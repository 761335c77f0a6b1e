"""A model that says what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

Step = Any


def call(name: str, arguments: dict[str, Any] | str | None = None, id: str = "c1") -> ToolCallPart:
    return ToolCallPart(name, arguments, id)


class Scripted:
    """Each of `steps` in turn: a text, a call, several, a ModelResponse, or a function of the messages; the last one stays."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.seen: list[list[ModelMessage]] = []
        self.info: AgentInfo | None = None

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._answer, stream_function=self._stream)

    @property
    def told(self) -> list[str]:
        """What the tools answered, in order, as the last request has it."""
        return [part.content for part in self._parts() if isinstance(part, ToolReturnPart)]

    @property
    def prompts(self) -> list[str]:
        return [str(part.content) for part in self._parts() if isinstance(part, UserPromptPart)]

    def _parts(self) -> list[Any]:
        return [part for message in self.seen[-1] for part in message.parts]

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> Step:
        self.seen.append(list(messages))
        self.info = info
        at = sum(isinstance(each, ModelResponse) for each in messages)
        step = self.steps[min(at, len(self.steps) - 1)]
        return step(messages) if isinstance(step, Callable) and not isinstance(step, ModelResponse) else step  # type: ignore[arg-type]

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = self._next(messages, info)
        if hasattr(step, "__await__"):
            step = await step
        if isinstance(step, ModelResponse):
            return step
        if isinstance(step, str):
            return ModelResponse([TextPart(step)] if step else [])
        return ModelResponse(step if isinstance(step, list) else [step])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        step = self._next(messages, info)
        if isinstance(step, str):
            for word in step.split(" "):
                yield f"{word} "
            return
        for at, part in enumerate(step if isinstance(step, list) else [step]):
            yield {at: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
