"""The model of an agent: by name or given, asked for one answer at a time, through pydantic-ai's model layer."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ringfence.agent.tools.tool import Tool
from ringfence.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model

VARIABLE = "RINGFENCE_MODEL"
INSTALL = "Install it: pip install 'ringfence[agent]', and the package of the provider, as openai or anthropic."


def model_of(given: Model | str | None) -> Model:
    """The model that was given, that of a name, or that of the variable RINGFENCE_MODEL. Raises ConfigError."""
    named = os.environ.get(VARIABLE, "") if given is None else given
    if not named:
        raise ConfigError(
            f"the agent has no model: none was given, and the variable {VARIABLE} is not set.",
            hint=f"Agent('PROVIDER:NAME'), or {VARIABLE}=PROVIDER:NAME, with the names of pydantic-ai, as anthropic:NAME.",
        )
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise ConfigError(f"an agent needs pydantic-ai-slim: {error}.", hint=INSTALL) from None
    try:
        return infer_model(named)
    except ImportError as error:
        raise ConfigError(f"the model {named!r} needs a package that is not here: {error}.", hint=INSTALL) from None
    except (UserError, ValueError) as error:
        raise ConfigError(
            f"the model {named!r} cannot be used: {error}.", hint="Name a provider and its model, and set its key."
        ) from None


class Asked:
    """A model with its tools, which is asked for one answer after the other."""

    def __init__(self, model: Model, tools: Iterable[Tool]) -> None:
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        self.model = model
        self._streams = getattr(model, "stream_function", True) is not None  # a FunctionModel may have no function for streams
        self._parameters = ModelRequestParameters(
            function_tools=[
                ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
                for tool in tools
            ]
        )

    async def answer(self, messages: Sequence[ModelMessage], said: Callable[[str], Awaitable[None]] | None) -> ModelResponse:
        """The next answer; said is awaited with each piece of its text as it comes. Raises what the provider's client raises."""
        from pydantic_ai import direct

        if said is None or not self._streams:
            response = await direct.model_request(self.model, messages, model_request_parameters=self._parameters)
            if said is not None and response.text:
                await said(response.text)
            return response
        async with direct.model_request_stream(self.model, messages, model_request_parameters=self._parameters) as stream:
            async for event in stream:
                if text := _text_of(event):
                    await said(text)
            response = stream.get()
        said_why = (response.provider_details or {}).get("finish_reason") or not response.provider_name
        if not said_why and not response.usage.has_values():  # a client may take a stream that broke off for a whole one
            raise ConnectionError("the stream of the answer ended before the answer did")
        return response


def _text_of(event: Any) -> str:
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""
