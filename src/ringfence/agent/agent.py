"""Agent: a model with tools over one box, asked until it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ringfence.agent.journal import Journal
from ringfence.agent.loop import Loop, OnEvent, Unknown
from ringfence.agent.models import Asked, model_of
from ringfence.agent.registry import ToolRegistry
from ringfence.agent.result import AgentLimits, AgentUsage, RunResult
from ringfence.agent.sandboxes import SessionBox
from ringfence.agent.tools.tool import Tool
from ringfence.errors import ArgumentError, SandboxClosedError
from ringfence.hooks import HookManager
from ringfence.policy.config import SandboxConfig
from ringfence.sandbox import Sandbox

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Approver


class Agent:
    """A model that works with tools until it is done.

        async with Agent("anthropic:claude-sonnet-4-5", tools=["bash"], sandbox=box) as agent:
            result = await agent.run("List the files in the working directory.")

    model: a name of pydantic-ai, PROVIDER:NAME, or a Model of it; without one the variable RINGFENCE_MODEL names it. tools: names
    of built-in tools, Tools, functions, or a ToolRegistry. sandbox: the box that the built-in tools work in; it stays the caller's
    and is never closed here. Without one the agent makes its own of config, at the first call that needs it, and another where it
    was lost, which the model hears. permissions: decide what runs in the box while the agent is open, beside the box's own rules.
    approver: who is asked by them, where the box has nobody to ask, and about calls that a crash interrupted. hooks: told of the
    box, lent to one that has none while the agent is open. instructions: for the model, beside the prompt. limits: of each run.
    journal: a folder for the records of runs, which is then closed to every box; by default that of the state folder. False: none,
    and no run can be resumed. Raises ValueError for a registry that is bound to another sandbox, and what ToolRegistry raises.

    A tool that is a function of the caller's runs here, with the caller's rights: permissions are asked about what runs in the box.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        tools: ToolRegistry | Sequence[str | Tool | Callable[..., Any]] = (),
        sandbox: Sandbox | None = None,
        config: SandboxConfig | None = None,
        permissions: PermissionManager | None = None,
        approver: Approver | None = None,
        hooks: HookManager | None = None,
        instructions: str = "",
        limits: AgentLimits | None = None,
        journal: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        if sandbox is not None and config is not None:
            raise ArgumentError("an agent takes a sandbox, or the config of its own, not both.")
        self.model, self.instructions = model, instructions
        self.limits = AgentLimits() if limits is None else limits
        self.tools = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools, sandbox=sandbox)
        if sandbox is not None:
            self.tools.bind(sandbox)
        lent_to = self.tools.sandbox
        self.hooks = hooks or (lent_to.hooks if lent_to is not None else None) or HookManager()
        self._approver = approver if approver is not None else getattr(permissions, "approver", None)
        self._folder = _folder(journal)
        self._journals = journal is not False
        self._own: SessionBox | None = None
        self._closed = False
        self._lent = ExitStack()
        if lent_to is not None:
            self._lend(lent_to, permissions, approver)
        elif not self.tools.bound:
            given = {"hooks": self.hooks, "permissions": permissions, "approver": approver, "ceiling": None, "trace": None}
            self._own = SessionBox("agent", SandboxConfig() if config is None else config, given)
            self.tools.bind(self._own)

    async def run(self, prompt: str, *, on_event: OnEvent | None = None) -> RunResult:
        """Let the model work on the prompt until it is done, or a limit is reached; how that ended is a value.

        on_event: called with each AgentEvent, a plain or an async function; with it the model's answer is streamed. What it raises
        ends the run, which can be resumed. Raises ConfigError where there is no model, HostError and TraceError where what is done
        cannot be written down. Several runs at once share the box.
        """
        self._check_open()
        asked = Asked(model_of(self.model), self.tools.tools)
        start = {"prompt": prompt, "instructions": self.instructions}
        journal = Journal.begin(self._folder, start) if self._journals else Journal.none(start)
        try:
            return await Loop(asked, self.tools, self.limits, journal, on_event=on_event, approver=self._approver).run()
        finally:
            journal.close()

    async def resume(self, run_id: str, *, unknown: Unknown = None, on_event: OnEvent | None = None) -> RunResult:
        """Go on with a run whose process ended, or that was cancelled. Calls that have ended are taken from the record.

        One that was begun and not ended is done again where its tool is safe or idempotent. Else unknown says: "again", or
        "skip", which tells the model that nobody knows. Without it the approver is asked, and a no is "skip"; without one the
        result needs_input, with the call in pending. A run that is over gives its result. The limits of time begin anew. Raises
        ArgumentError for an id that has no record, AgentError where another process is at it, and what run() raises.
        """
        self._check_open()
        if unknown not in (None, "again", "skip"):
            raise ArgumentError(f"unknown is 'again', 'skip' or None, not {unknown!r}.")
        journal = Journal.reopen(self._folder, run_id)
        try:
            if (end := journal.end) is not None:
                usage = AgentUsage(**end["usage"])
                return RunResult(run_id, end["output"], end["status"], end["stop_reason"], usage, end["error"])
            asked = Asked(model_of(self.model), self.tools.tools)
            loop = Loop(
                asked, self.tools, self.limits, journal, on_event=on_event, unknown=unknown, approver=self._approver, resumed=True
            )
            return await loop.run()
        finally:
            journal.close()

    async def close(self) -> None:
        """Take back what was lent, and end the agent's own box; a box that was given stays open. Safe to call again."""
        self._closed = True
        self._lent.close()
        if self._own is not None:
            await self._own.close()

    async def __aenter__(self) -> Agent:
        self._check_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxClosedError("the agent is closed.", hint="Make a new one.")

    def _lend(self, box: Sandbox, permissions: PermissionManager | None, approver: Approver | None) -> None:
        if permissions is not None or approver is not None:
            self._lent.callback(box.lend_permissions(permissions, approver))
        if box.hooks is None:
            box.hooks = self.hooks
            self._lent.callback(self._take_back_hooks, box)

    def _take_back_hooks(self, box: Sandbox) -> None:
        if box.hooks is self.hooks:
            box.hooks = None


def _folder(journal: str | os.PathLike[str] | bool | None) -> str | None:
    if journal is None or isinstance(journal, bool):
        return None
    from ringfence import state

    folder = os.path.abspath(os.fspath(journal))
    state.keep_closed(folder)
    return folder
