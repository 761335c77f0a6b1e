"""The built-in tools that run something: a shell line, a Python program."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ringfence.agent.tools import answers
from ringfence.agent.tools.tool import ToolResult
from ringfence.sandbox import Sandbox

RUN_SECONDS = 120.0
"""How long a call runs where the model says nothing, as limits.wall_seconds has it by default."""

MOST_SECONDS = 3600.0

Seconds = Annotated[float, Meta(description="Seconds until it is ended, at most the sandbox's own limit.", gt=0, le=MOST_SECONDS)]


async def bash(
    sandbox: Sandbox,
    command: Annotated[str, Meta(description="The shell line, or several lines.")],
    timeout_seconds: Seconds = RUN_SECONDS,
) -> ToolResult:
    """Run a shell line in the sandbox, in the workspace.

    Each call has a shell of its own: cd and variables are not kept, files are. The answer says first how it ended and what was
    refused, then shows stdout and stderr. A server that is started with `&` lives on after the call, as long as the sandbox: let it
    write to a file (`server >server.log 2>&1 &`), and read that.
    """
    return answers.of_result(await sandbox.execute_command(command, timeout=timeout_seconds))


async def python(
    sandbox: Sandbox,
    code: Annotated[str, Meta(description="The text of the program.")],
    timeout_seconds: Seconds = RUN_SECONDS,
) -> ToolResult:
    """Run a Python program in the sandbox, in the workspace, in a fresh interpreter; nothing is kept between calls but files."""
    return answers.of_result(await sandbox.execute(code, timeout=timeout_seconds))
