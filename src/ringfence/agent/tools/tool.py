"""What a tool is, and what became of one call of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ringfence.outcome import Result
from ringfence.values import frozen


@frozen
class Tool:
    """One thing that a model may call.

    name: letters, digits, `_` and `-`, at most 64. parameters: the JSON schema of its arguments, an object. call: takes them by
    name; returns text, or a ToolResult where more is known. safe: it changes nothing. idempotent: twice is as once.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[..., Awaitable[Any]]
    safe: bool = False
    idempotent: bool = False


@frozen
class ToolResult:
    """What a model is told of one call.

    text: bounded; of a command the lines of Result.for_model, then its output. ok: whether the tool did what it was asked, which a
    command did that returned 0. result: of a command, all of it. error: the code of what was wrong, "" where nothing was:
    `unknown-tool`, `arguments`, `edit` (the text is not there once), `tool` (a function raised), or that of a RingfenceError.
    """

    text: str
    ok: bool = True
    result: Result | None = None
    error: str = ""
