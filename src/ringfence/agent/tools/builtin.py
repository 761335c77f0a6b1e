"""The built-in tools by name. Each takes the box first and then what the model gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from ringfence.agent.tools import commands
from ringfence.agent.tools.tool import ToolResult
from ringfence.values import frozen


@frozen
class Builtin:
    """work takes the box and the model's arguments by name. safe and idempotent are those of Tool."""

    work: Callable[..., Awaitable[ToolResult]]
    safe: bool = False
    idempotent: bool = False


BUILTINS: Mapping[str, Builtin] = MappingProxyType({
    "bash": Builtin(commands.bash),
    "python": Builtin(commands.python),
})  # fmt: skip
ALIASES: Mapping[str, str] = MappingProxyType({"run_bash": "bash"})


def builtin(name: str) -> Builtin:
    """The built-in tool of that name or alias. Raises ValueError."""
    found = BUILTINS.get(ALIASES.get(name, name))
    if found is None:
        near = get_close_matches(name, [*BUILTINS, *ALIASES], 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no built-in tool is called {name!r}{meant} There are {', '.join([*BUILTINS, *ALIASES])}.")
    return found
