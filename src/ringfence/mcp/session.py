"""One client: its handshake, its box, its calls."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ringfence import SandboxConfig, Sandboxes, SessionBox, Tool, ToolRegistry, ToolResult
from ringfence.agent.tools import answers
from ringfence.agent.tools.builtin import BUILTINS
from ringfence.errors import RingfenceError
from ringfence.for_model import plain
from ringfence.mcp.approvals import ClientApprover
from ringfence.mcp.roots import narrowed
from ringfence.outcome import REPORT_AS
from ringfence.recorder import Recorder
from ringfence.values import frozen

FIRST_PROGRESS, NEXT_PROGRESS = 1.0, 2.0
"""Seconds after which a call is a long one, and between two reports of it."""
MOST_CALLS = 16
"""Calls of one client that are carried out at once; others wait."""
ROOTS_SECONDS = 10.0

Context = ServerRequestContext[Any, Any]

INSTRUCTIONS = (
    "Tools that work in one sandbox over a workspace: what was written is what is run. Each answer says first, in lines that begin "
    f"with their kind in brackets, how it ended; [{REPORT_AS}] is something that the sandbox refused, with the rule and what would "
    "allow it. The sandbox lives as long as this session; when it was lost, the answer says [sandbox_replaced]."
)


@frozen
class Recipe:
    """What every session of a server is made from. ask_client: whether approvals are asked of the client; else nobody is asked."""

    config: SandboxConfig
    ceiling: SandboxConfig | None = None
    trace: Recorder | None = None
    ask_client: bool = False


class Session:
    """One client and its box. `server` is what the SDK serves it with; close() ends the box."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        approver = ClientApprover(asyncio.get_running_loop(), self._elicit) if recipe.ask_client else None
        # The box lives as long as the client, so it has no bound of idleness but the config's.
        self._boxes = Sandboxes(recipe.config, idle_seconds=None, approver=approver, ceiling=recipe.ceiling, trace=recipe.trace)
        self._box: SessionBox | None = None
        self._choosing = anyio.Lock()
        self._roots_known = False
        self._turns = anyio.CapacityLimiter(MOST_CALLS)
        self._under_way: list[Context] = []
        self.server: Server[Any] = Server(
            "ringfence",
            version=version("ringfence"),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self.server.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, self._roots_changed)

    async def close(self) -> None:
        """End the box, with everything in it. Safe to call again."""
        await self._boxes.close()

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_told(tool) for tool in ToolRegistry(list(BUILTINS)).tools])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async with self._turns:
            self._under_way.append(context)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(_report, context, params.name)
                    found = await self._carried_out(context, params)
                    group.cancel_scope.cancel()
            finally:
                self._under_way.remove(context)
        return _answered(found)

    async def _carried_out(self, context: Context, params: types.CallToolRequestParams) -> ToolResult:
        try:
            box = await self._chosen(context)
        except RingfenceError as error:
            return answers.of_error(error)
        except (MCPError, ValidationError) as error:  # without them nobody knows what the box may have
            return answers.refused("roots", f"the client named no folders that can be read: {plain(str(error), 200)}")
        return await box.tools.execute(params.name, params.arguments or {})

    async def _chosen(self, context: Context) -> SessionBox:
        """The box of this session, over what the client's roots leave of the workspace. Raises ConfigError."""
        async with self._choosing:
            if self._box is not None and self._roots_known:
                return self._box
            config = narrowed(self._recipe.config, await _roots(context))
            if self._box is None:
                self._box = self._boxes.session("client", config)
            elif config != self._box.config:
                self._box.config = config
                await self._box.lost("the client works in other folders now.")
            self._roots_known = True
            return self._box

    async def _roots_changed(self, context: Context, params: types.NotificationParams) -> None:
        self._roots_known = False

    async def _elicit(self, message: str, form: dict[str, Any]) -> types.ElicitResult | None:
        """Ask within the call that began last, since only a call has a way back to the client on each transport."""
        if not self._under_way:
            return None
        context = self._under_way[-1]
        if not context.session.check_client_capability(types.ClientCapabilities(elicitation=types.ElicitationCapability())):
            return None
        try:
            return await context.session.elicit_form(message, form, context.request_id)
        except (MCPError, ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return None


async def _roots(context: Context) -> list[str]:
    """The URIs that the client names, none where it names none. Raises MCPError and ValidationError for what is no answer."""
    if not context.session.check_client_capability(types.ClientCapabilities(roots=types.RootsCapability())):
        return []
    within = ServerMessageMetadata(related_request_id=context.request_id)
    found = await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult, ROOTS_SECONDS, within)
    return [str(root.uri) for root in found.roots]


async def _report(context: Context, name: str) -> None:
    """Say every now and then that a call goes on, to a client that asked for it."""
    began = time.monotonic()
    await anyio.sleep(FIRST_PROGRESS)
    while True:
        seconds = time.monotonic() - began
        try:
            await context.session.report_progress(seconds, None, f"{name}: {seconds:.0f} s")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        await anyio.sleep(NEXT_PROGRESS)


def _told(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.safe, destructive_hint=not tool.safe, idempotent_hint=tool.idempotent, open_world_hint=False
    )
    return types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters), annotations=hints)


def _answered(found: ToolResult) -> types.CallToolResult:
    """The text for the model; beside it, for a program, how a command ended and what was refused."""
    beside: dict[str, Any] = {"ringfence/ok": found.ok, "ringfence/error": found.error}
    if found.result is not None:
        from dataclasses import asdict

        outcome = found.result.outcome
        beside["ringfence/outcome"] = {"type": type(outcome).__name__, **asdict(outcome)}
        beside["ringfence/denials"] = [asdict(denial) for denial in found.result.denials]
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=found.text)]
    return types.CallToolResult(content=content, is_error=bool(found.error), _meta=beside)
