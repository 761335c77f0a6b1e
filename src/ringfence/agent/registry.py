"""ToolRegistry: the tools of one agent, carried out over one box."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from ringfence.agent.tools import answers
from ringfence.agent.tools.builtin import ALIASES, Builtin, builtin
from ringfence.agent.tools.schema import BadArgumentsError, Signature, parsed
from ringfence.agent.tools.tool import Tool, ToolResult
from ringfence.errors import RingfenceError, SandboxClosedError
from ringfence.for_model import quoted
from ringfence.sandbox import Sandbox
from ringfence.values import replace

Work: TypeAlias = Callable[[Sandbox], Awaitable[ToolResult]]
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the interfaces of models take for the name of a tool."""


class Engine(Protocol):
    """Where the box of the built-in tools comes from, where it is not one that the caller opened."""

    @property
    def sandbox(self) -> Sandbox | None:
        """The box that is open now, None where there is none."""

    async def carry_out(self, work: Work) -> ToolResult:
        """Do the work of one call in the box. Raises what it raises."""


class _Given:
    """The box that a caller opened, and closes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def carry_out(self, work: Work) -> ToolResult:
        return await work(self.sandbox)


class ToolRegistry:
    """Tools by name, of which the built-in ones all work in one box, so that what was edited is what is run.

    tools: names of built-in tools, Tools, functions. sandbox: the box, opened and closed by the caller; it can be given later by
    bind(), before the first call of a built-in tool. Raises what register(), register_tool() and load_builtin() raise.
    """

    def __init__(self, tools: Sequence[str | Tool | Callable[..., Any]] = (), *, sandbox: Sandbox | Engine | None = None) -> None:
        if isinstance(tools, str):
            raise TypeError(f"tools is a list of tools, not the text {tools!r}.")
        self._tools: dict[str, Tool] = {}
        self._signatures: dict[str, Signature] = {}
        self._engine: Engine | None = None
        self._changing = anyio.Lock()
        if sandbox is not None:
            self.bind(sandbox)
        for tool in tools:
            if isinstance(tool, str):
                self.load_builtin(tool)
            elif isinstance(tool, Tool):
                self.register_tool(tool)
            else:
                self.register(tool)

    @property
    def sandbox(self) -> Sandbox | None:
        """The box that the built-in tools work in; None where none was given, or it is not made yet."""
        return self._engine.sandbox if self._engine is not None else None

    @property
    def bound(self) -> bool:
        """Whether a box, or where one comes from, was given."""
        return self._engine is not None

    def bind(self, sandbox: Sandbox | Engine) -> None:
        """Let the built-in tools work in this box. Again with the same does nothing. Raises ValueError for another one."""
        engine = _Given(sandbox) if isinstance(sandbox, Sandbox) else sandbox
        if not callable(getattr(engine, "carry_out", None)):
            raise TypeError(f"sandbox must be a Sandbox, or have carry_out(), not {type(sandbox).__name__}.")
        if self._engine is None:
            self._engine = engine
        elif not (self._engine is engine or (isinstance(engine, _Given) and self._engine.sandbox is engine.sandbox)):
            raise ValueError("this tool registry is already bound to another sandbox; make one for each sandbox.")

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Every tool, in the order in which they came."""
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool that a call by this name reaches: bash and run_bash are one."""
        return self._tools.get(name) or self._tools.get(_other_name(name))

    def register(
        self, function: Callable[..., Any], *, name: str | None = None, safe: bool = False, idempotent: bool = False
    ) -> Tool:
        """Add a function. Its docstring is the description, its annotations are the schema (Annotated with msgspec.Meta says more).

        A plain function is called in a thread. What it returns is the answer: text, a ToolResult, or a value that becomes JSON.
        What it raises is told to the model. Raises ValueError for a name that is taken or is none, TypeError for parameters that
        have no schema.
        """
        if not callable(function):
            raise TypeError(f"a tool is a name, a Tool or a function, not {type(function).__name__}.")
        named = getattr(function, "__name__", type(function).__name__) if name is None else name
        self._check_name(named)
        signature = Signature(named, function)
        called = function if inspect.iscoroutinefunction(function) else _in_thread(function)
        tool = Tool(named, inspect.getdoc(function) or "", signature.schema, called, safe, idempotent)
        return self._add(tool, signature)

    def register_tool(self, tool: Tool) -> None:
        """Add a tool; its schema is told to the model, and its own function checks the values. Raises ValueError as register().

        A built-in tool of another registry works in the box of this one from then on; of a registry that is bound to another box it
        is refused (ValueError).
        """
        if isinstance(tool.call, _Call):
            if self._engine is None:
                self._engine = tool.call.registry._engine
            elif tool.call.registry.bound and tool.call.registry._engine is not self._engine:
                raise ValueError(f"the tool {tool.name!r} is already bound to another sandbox.")
            self._check_name(tool.name)
            call = _Call(self, tool.call.builtin)
            self._add(replace(tool, call=call), Signature(tool.name, call.parameters()))
            return
        self._check_name(tool.name)
        self._add(tool, None)

    def load_builtin(self, name: str) -> Tool:
        """Add a built-in tool: bash (or run_bash), python, read, write, edit, list, glob, grep. Again it is the same one.

        Raises ValueError for another name.
        """
        found = builtin(name)
        known = self.get(name)
        if known is not None and isinstance(known.call, _Call):
            return known
        self._check_name(name)
        call = _Call(self, found)
        signature = Signature(name, call.parameters())
        return self._add(
            Tool(name, inspect.getdoc(found.work) or "", signature.schema, call, found.safe, found.idempotent), signature
        )

    async def execute(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Carry out one call of a model. arguments: a mapping, or the JSON text of an object.

        What the model did wrong, what its command did, and what failed here are all answers; nothing but a cancellation is raised.
        """
        tool = self.get(name)
        if tool is None:
            return answers.refused("unknown-tool", self._unknown(name))
        try:
            given = parsed(arguments)
            signature = self._signatures.get(tool.name)
            checked = signature.checked(given) if signature is not None else dict(given)
        except BadArgumentsError as error:
            takes = ", ".join(_described(tool)) or "nothing"
            return answers.refused("arguments", f"the arguments of {tool.name!r} are wrong: {error}. It takes {takes}.")
        try:
            return _bounded(await tool.call(**checked))
        except RingfenceError as error:
            return answers.of_error(error)
        except Exception as error:  # a function of the caller's may raise anything, and the model can go on without it
            return answers.of_exception(tool.name, error)

    def _add(self, tool: Tool, signature: Signature | None) -> Tool:
        self._tools[tool.name] = tool
        if signature is not None:
            self._signatures[tool.name] = signature
        return tool

    def _check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a tool: letters, digits, '_' and '-', at most 64.")
        if self.get(name) is not None:
            raise ValueError(f"a tool {name!r} is there already.")

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, self._tools, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        return f"there is no tool {quoted(name, 80)}.{meant} The tools are {', '.join(self._tools) or 'none'}."


class _Call:
    """A built-in tool of one registry."""

    def __init__(self, registry: ToolRegistry, builtin: Builtin) -> None:
        self.registry, self.builtin = registry, builtin

    async def __call__(self, **arguments: Any) -> ToolResult:
        engine = self.registry._engine
        if engine is None:
            raise SandboxClosedError("no sandbox was given to the tools.", hint="ToolRegistry(sandbox=...) has one.")
        if self.builtin.changes_files:
            async with self.registry._changing:  # two that read a file, and then write it, would undo each other
                return await engine.carry_out(partial(self.builtin.work, **arguments))
        return await engine.carry_out(partial(self.builtin.work, **arguments))

    def parameters(self) -> Callable[..., Any]:
        """A function with the parameters that the model gives: all but the box."""
        work = self.builtin.work

        def of_model() -> None: ...

        whole = inspect.signature(work)
        of_model.__signature__ = whole.replace(parameters=list(whole.parameters.values())[1:])  # type: ignore[attr-defined]
        of_model.__annotations__ = {
            key: kind for key, kind in inspect.get_annotations(work, eval_str=True).items() if key != "sandbox"
        }
        return of_model


def _other_name(name: str) -> str:
    return ALIASES.get(name) or next((alias for alias, meant in ALIASES.items() if meant == name), name)


def _in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(**arguments: Any) -> Any:
        made = await anyio.to_thread.run_sync(lambda: function(**arguments), abandon_on_cancel=True)
        return await made if inspect.isawaitable(made) else made

    return call


def _bounded(value: object) -> ToolResult:
    """What a function returned, as an answer."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(answers.cut(value, answers.MOST_OUTPUT)[0])
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return ToolResult(answers.cut(text, answers.MOST_OUTPUT)[0])


def _described(tool: Tool) -> list[str]:
    """Each parameter, and whether it must be there."""
    required = tool.parameters.get("required", ())
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    return [f"{name}{'' if name in required else ' (optional)'}" for name in properties]
