"""Sandboxes: a box for each session, made when it is needed, and made again when it was lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.agent.registry import ToolRegistry, Work
from ringfence.agent.tools import answers
from ringfence.agent.tools.builtin import BUILTINS
from ringfence.agent.tools.tool import ToolResult
from ringfence.errors import ArgumentError, ProtocolError, RingfenceError, SandboxClosedError, SandboxLostError
from ringfence.for_model import plain
from ringfence.policy.config import SandboxConfig
from ringfence.sandbox import Sandbox
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.hooks import HookManager
    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Approver
    from ringfence.recorder import Recorder

IDLE_SECONDS = 1800.0
NEXT = "\n[sandbox_replaced] The next call is carried out in a new sandbox."


class Sandboxes:
    """Boxes of one recipe by the key of a session, each made at its first use.

        async with Sandboxes(config) as boxes:
            box = await boxes.get_or_create("session 17")
            print(await box.call("bash", {"command": "ls"}))

    idle_seconds: a box in which nothing ran so long ends, and its session gets a new one at its next call; None for never. The
    other arguments are those of Sandbox, for each of them. Used in one event loop. Leaving the block closes every box.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        idle_seconds: float | None = IDLE_SECONDS,
        hooks: HookManager | None = None,
        permissions: PermissionManager | None = None,
        approver: Approver | None = None,
        ceiling: SandboxConfig | None = None,
        trace: Recorder | None = None,
    ) -> None:
        self.config = SandboxConfig() if config is None else config
        if idle_seconds is not None:
            own = self.config.limits.idle_seconds
            limits = replace(self.config.limits, idle_seconds=idle_seconds if own is None else min(own, idle_seconds))
            self.config = replace(self.config, limits=limits)
        self._given: dict[str, Any] = {
            "hooks": hooks, "permissions": permissions, "approver": approver, "ceiling": ceiling, "trace": trace,
        }  # fmt: skip
        self._sessions: dict[str, SessionBox] = {}

    def session(self, key: str, config: SandboxConfig | None = None) -> SessionBox:
        """The session of that key; its box is made at the first call that needs one.

        config: its own recipe, where the session is new; compose() makes one that is no wider than another.
        """
        if not key:
            raise ArgumentError("the key of a session is a text that is not empty.")
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = SessionBox(key, self.config if config is None else config, self._given)
        return found

    async def get_or_create(self, key: str) -> SessionBox:
        """The session of that key with its box open; many that ask at once get the same one. Raises what making a box raises."""
        await self._close_idle()
        found = self.session(key)
        await found.opened()
        return found

    async def close(self, key: str | None = None) -> None:
        """End the box of a session, or of all, and forget the session. A key that is not there is no error."""
        keys = list(self._sessions) if key is None else [key]
        found = [self._sessions.pop(each) for each in keys if each in self._sessions]
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for each in found:
                    group.start_soon(each.close)

    async def _close_idle(self) -> None:
        """Give back what is left here of boxes that have ended because nothing ran in them."""
        for each in list(self._sessions.values()):
            await each.close_if_idle()

    async def __aenter__(self) -> Sandboxes:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class SessionBox:
    """The box of one session, with the built-in tools over it."""

    def __init__(self, key: str, config: SandboxConfig, given: Mapping[str, Any]) -> None:
        self.key, self.config, self._given = key, config, given
        self.tools = ToolRegistry(list(BUILTINS), sandbox=self)
        self._box: Sandbox | None = None
        self._making = anyio.Lock()
        self._closed = False
        self._calls = 0
        self._used = time.monotonic()
        self._lost = ""  # why the last box ended, until there is another
        self._news = ""  # what the model has not heard yet of the box that is another

    @property
    def sandbox(self) -> Sandbox | None:
        """The box that is open now; None before the first call, and after one was lost."""
        return self._box

    async def call(self, name: str, input: Mapping[str, Any] | str) -> str:
        """Carry out a built-in tool by name; the answer for the model. Never raises for what the model or its command did."""
        return (await self.tools.execute(name, input)).text

    async def opened(self) -> Sandbox:
        """The box, made where there is none. Raises what making a box raises, SandboxClosedError after close()."""
        async with self._making:
            if self._closed:
                raise SandboxClosedError(f"the session {plain(self.key, 80)!r} is closed.")
            if self._box is None:
                box = Sandbox(self.config, **self._given)
                await box.__aenter__()
                self._box, self._used = box, time.monotonic()
                self._news, self._lost = self._lost or self._news, ""
            return self._box

    async def carry_out(self, work: Work) -> ToolResult:
        """Do the work of one call in the box. A box that had ended before the call began is replaced, and the model hears it."""
        self._calls += 1
        try:
            box = await self.opened()
            try:
                result = await self._in(box, work)
            except SandboxClosedError as error:  # its life was over before anything of this call ran
                if self._closed:
                    raise
                await self.lost(error.message, box)
                result = await self._in(await self.opened(), work)
        finally:
            self._calls -= 1
            self._used = time.monotonic()
        if not self._news:
            return result
        news, self._news = self._news, ""
        said = (
            f"[sandbox_replaced] The sandbox of this session is a new one: {news} What was in its home and temporary folders, and "
            "what ran in it, is gone; the files of a workspace that the host has are as they were."
        )
        return replace(result, text=f"{said}\n{result.text}")

    async def lost(self, why: str, box: Sandbox | None = None) -> None:
        """Give up the box; the next call makes a new one, and tells the model why. box: only where it is still this one."""
        if self._box is None or (box is not None and self._box is not box):
            return
        gone, self._box, self._lost = self._box, None, plain(why, 200)
        await _ended(gone)

    async def close(self) -> None:
        """End the box for good. Safe to call again."""
        self._closed = True
        async with self._making:
            gone, self._box = self._box, None
        if gone is not None:
            await _ended(gone)

    async def close_if_idle(self) -> None:
        """End the box where nothing ran in it for its idle time; by then it has ended inside."""
        bound = self.config.limits.idle_seconds
        if bound is not None and not self._calls and self._box is not None and time.monotonic() - self._used > bound:
            await self.lost(f"nothing ran in the one before for {bound:g} s, so it was ended.", self._box)

    async def _in(self, box: Sandbox, work: Work) -> ToolResult:
        try:
            return await work(box)
        except (SandboxLostError, ProtocolError) as error:
            await self.lost(error.message, box)
            found = answers.of_error(error)
            return replace(found, text=found.text + NEXT)
        except SandboxClosedError:
            raise
        except RingfenceError as error:
            return answers.of_error(error)


async def _ended(box: Sandbox) -> None:
    with anyio.CancelScope(shield=True):
        try:
            await box.cleanup()
        except RingfenceError:
            pass  # what was planted is said with the run that did it; a box that is gone has nothing more to say
