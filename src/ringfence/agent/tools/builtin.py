"""The built-in tools by name. Each takes the box first and then what the model gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from ringfence.agent.tools import commands, files
from ringfence.agent.tools.tool import ToolResult
from ringfence.values import frozen


@frozen
class Builtin:
    """work takes the box and the model's arguments by name. safe and idempotent are those of Tool.

    changes_files: it reads and writes a file in two steps, so that two of them are done one after the other.
    """

    work: Callable[..., Awaitable[ToolResult]]
    safe: bool = False
    idempotent: bool = False
    changes_files: bool = False


BUILTINS: Mapping[str, Builtin] = MappingProxyType({
    "bash": Builtin(commands.bash),
    "python": Builtin(commands.python),
    "read": Builtin(files.read, safe=True, idempotent=True),
    "write": Builtin(files.write, idempotent=True, changes_files=True),
    "edit": Builtin(files.edit, changes_files=True),
    "list": Builtin(files.list_folder, safe=True, idempotent=True),
    "glob": Builtin(files.glob, safe=True, idempotent=True),
    "grep": Builtin(files.grep, safe=True, idempotent=True),
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
