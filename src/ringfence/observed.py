"""What both surfaces tell a caller's hooks and recorder of a box: that it was made, each run with its denials, that it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ringfence.errors import RingfenceError
from ringfence.opened import Opened
from ringfence.outcome import Cancelled, Denial, Outcome, Result
from ringfence.policy.config import SandboxConfig
from ringfence.process.command import Command
from ringfence.process.wait import Readable, Waits
from ringfence.values import replace
from ringfence.world.local import Callback, LocalWorld, open_world

if TYPE_CHECKING:
    from ringfence.events import HookEvent
    from ringfence.hooks import HookManager
    from ringfence.permission.permissions import PermissionManager
    from ringfence.permission.questions import Answer, Approver, Question
    from ringfence.permits import Permits
    from ringfence.process.starting import Starts
    from ringfence.recorder import Recorder
    from ringfence.recording import Recording
    from ringfence.trace import Trace

Kind = Literal["code", "command", "argv"]


class Observed(Opened):
    """A box whose doings handlers are told of, where there are some. A box without hooks costs nothing more."""

    _in_loop = False

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        hooks: HookManager | None = None,
        permissions: PermissionManager | None = None,
        approver: Approver | None = None,
        ceiling: SandboxConfig | None = None,
        trace: Recorder | None = None,
    ) -> None:
        super().__init__(config)
        self._trace, self._ceiling = trace, ceiling
        self._own_trace: Trace | None = None
        self._recording: Recording | None = None
        self._hooks: HookManager | None = None
        self.hooks = hooks
        self._permits: Permits | None = None
        self._first: LocalWorld | None = None  # that of the box which this one is a wider second of
        if permissions is not None or approver is not None or self.config.permissions or self.config.escalation != "none":
            from ringfence.permits import permits  # a box that asks nobody loads none of it

            self._permits = permits(self.config, permissions, approver, ceiling, self._say_asked)

    @property
    def hooks(self) -> HookManager | None:
        """Who is told what happens in the box; may be set while it is open. Raises TypeError for another kind of manager."""
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: HookManager | None) -> None:
        if hooks is not None:
            from ringfence.hooks import HookManager

            if not isinstance(hooks, HookManager):
                raise TypeError(f"hooks must be a HookManager of ringfence.hooks, not {type(hooks).__name__}.")
        self._hooks = hooks

    def lend_permissions(self, permissions: PermissionManager | None, approver: Approver | None = None) -> Callable[[], None]:
        """Let further rules decide what is begun in the box, until what is returned is called: of all the strictest hold.

        approver: who is asked where the box has nobody to ask; by default that of permissions. Raises TypeError. Not promised: that
        what a person granted for the session is asked again while the box lives.
        """
        from ringfence.permits import permits  # a box that asks nobody loads none of it

        made = permits(replace(self.config, permissions=()), permissions, approver, None, self._say_asked)
        if self._permits is None:
            self._permits = permits(self.config, None, None, self._ceiling, self._say_asked)
            self._permits.box = self._id
            self._permits.recorded = None if self._recording is None else self._recording.further
        return self._permits.lent(made)

    def allow_host(self, *entries: str | Mapping[str, object]) -> None:
        """Let the box reach further hosts from now on, by entries as network_allow has them. What network_deny closes stays closed.

        Raises ConfigError for what is no entry, WideningError where `ceiling` was given and does not open it, ArgumentError for a
        box that was made without any way out, SandboxLostError. Where the host redirects nothing (`enforcement.network` says so),
        a port that no rule named when the box was made is reached by the proxy alone.
        """
        self._change_hosts("network_allow", entries)

    def deny_host(self, *entries: str | Mapping[str, object]) -> None:
        """Close hosts from now on, by entries as network_deny has them. Connections that are open to them are broken off.

        Raises what allow_host() raises, but WideningError.
        """
        self._change_hosts("network_deny", entries)

    def _change_hosts(self, where: str, entries: Sequence[str | Mapping[str, object]]) -> None:
        from ringfence.policy.hostrules import host_rules  # few boxes change their rules

        world, rules = self._open(), host_rules(entries, where)
        if where == "network_deny":
            world.change_hosts((), rules)
            return
        if self._ceiling is not None:
            from ringfence.policy.compose import compose

            compose(self._ceiling, SandboxConfig(network_allow=rules), {"network_allow"})
        world.change_hosts(rules, ())

    def _telling(self, kind: Kind, command: Command) -> Telling | None:
        """What tells of one run; None where nobody listens."""
        if self._hooks is None:
            return None
        from ringfence.events import HookEvent

        if not (self._hooks.wants(HookEvent.SANDBOX_EXEC) or self._hooks.wants(HookEvent.SANDBOX_DENIAL)):
            return None
        return Telling(self._hooks, self._open(), self._id, kind, command, in_loop=self._in_loop)

    def _carrying_out(
        self, kind: Kind, command: Command, callbacks: tuple[Callback | None, Callback | None] = (None, None)
    ) -> Waits[Result]:
        """One run, begun if that is permitted."""
        world = self._open()
        waits = world.run(command, callbacks) if self._permits is None else self._permits.run(world, kind, command, callbacks)
        return waits if self._recording is None else self._recording.run(kind, command, waits)

    def _opening(self, name: str | None) -> Waits[LocalWorld]:
        """Make the box, and record that it was made. Raises TraceError where that is required and fails; the box is gone."""
        began = time.monotonic()
        if self._permits is not None:
            self._permits.box = name
        config = self.config
        if config.network_remember is not None and self._ceiling is not None:
            from ringfence.policy.remembered import under  # few boxes have both

            config = under(self._ceiling, config)
        world = yield from open_world(config)
        if world.egress is not None and world.egress.policy.on_unknown == "ask":
            from ringfence.host_questions import Asker  # few boxes ask about hosts

            questions = self._permits.questions if self._permits else None
            world.egress.asker = Asker(world.egress, questions, name, world.policy.remember, self._ceiling)
        if self._trace is not None or self.config.trace != "none":
            from ringfence.recording import Recording, recorder_of  # a box without a recorder needs none of it

            try:
                recorder, self._own_trace = recorder_of(self.config, self._trace)
                self._recording = Recording(recorder, world, self.config, name, time.monotonic() - began)
                if self._permits is not None:
                    self._permits.recorded = self._recording.further
            except BaseException:
                self._let_go_of_trace()
                yield from world.close()
                raise
        return world

    def _let_go_of_trace(self) -> None:
        own, self._own_trace = self._own_trace, None
        if own is not None:
            own.close()

    def _starts(self) -> Starts:
        """What starts commands whose streams the caller reads itself."""
        world = self._open()
        return world if self._recording is None else self._recording

    def _permitted(self, command: Command) -> Waits[None]:
        """Until what is spawned may be. Raises NotPermittedError."""
        world = self._open()
        if self._permits is None:
            return
        permit = self._permits.permit(world, "argv", command)
        yield from permit if self._recording is None else self._recording.permitting(command, permit)

    def _escalating(self, result: Result) -> Waits[tuple[SandboxConfig, LocalWorld] | None]:
        world = self._open()
        found = None if self._permits is None else (yield from self._permits.escalate(world, result))
        return None if found is None else (replace(found[0].config, escalation="none"), found[1])

    def _becomes_second(self, first: Observed, config: SandboxConfig, world: LocalWorld) -> None:
        """Be the box that was granted to another one."""
        assert first._permits is not None
        self._world, self._first, self._permits = world, first._open(), first._permits.of_second(config)
        if self._trace is not None:
            from ringfence.recording import Recording

            self._recording = Recording(self._trace, world, config, None, 0.0)
        self._say_started()

    def _carried_back(self) -> Waits[None]:
        """Before a second box ends: what it has in private folders is the first one's again. Never raises for files."""
        if self._first is not None and self._world is not None and not self._first.closed:
            from ringfence import escalation

            yield from escalation.back(self._first, self._world)

    def _second_has_ended(self) -> None:
        if self._first is not None and self._world is not None:
            from ringfence import escalation

            escalation.told(self._first, self._world)
            self._first = None

    def _file_permitted(self, kind: Literal["read", "write"], path: str | os.PathLike[str]) -> Waits[None]:
        """Until a file may be read or written by a call. Raises NotPermittedError, OutsideError."""
        world = self._open()
        if self._permits is not None:
            yield from self._permits.permit_file(world, kind, world.resolve_path(path, write=kind == "write"))

    def _say_asked(self, question: Question, answer: Answer, seconds: float) -> None:
        """Told without waiting, in the thread of the call that asked."""
        if self._recording is not None:
            self._recording.asked(question, answer, seconds)
        if self._hooks is not None:
            from ringfence.events import HookEvent

            data = {"box": self._id, "question": question, "answer": answer, "seconds": seconds}
            with _Said(self._hooks, in_loop=False) as said:
                said.send(HookEvent.SANDBOX_QUESTION, data)

    def _say_started(self) -> None:
        """Told without waiting: a box that is open and not yet in its caller's hands must not be lost to a cancellation."""
        if self._hooks is not None and self._world is not None:
            from ringfence.events import HookEvent

            data = {"box": self._id, "tier": self._world.prepared.backend, "policy_hash": self._world.policy.hash}
            with _Said(self._hooks, in_loop=self._in_loop) as said:
                said.send(HookEvent.SANDBOX_START, data)

    def _say_ended(self) -> Waits[None]:
        recording, self._recording = self._recording, None
        if recording is not None:
            try:
                recording.close()
            finally:
                self._let_go_of_trace()
        if self._hooks is not None and self._world is not None:
            from ringfence.events import HookEvent

            data = {"box": self._id, "tier": self._world.prepared.backend, "denials": self._world.untold}
            with _Said(self._hooks, in_loop=self._in_loop) as said:
                said.send(HookEvent.SANDBOX_END, data)
                yield from said.settled()


class _Said:
    """Events that are told together and waited for once."""

    def __init__(self, hooks: HookManager, *, in_loop: bool) -> None:
        from ringfence.hooks import Delivery

        self._hooks, self._in_loop = hooks, in_loop
        self._delivery = Delivery()

    def send(self, event: HookEvent, data: Mapping[str, Any]) -> None:
        from ringfence.events import HookContext

        self._hooks.send(event, HookContext(event, data=dict(data)), self._delivery, in_loop=self._in_loop)

    def settled(self) -> Waits[None]:
        """Until every handler has been called, at most for the bound of ringfence.hooks."""
        from ringfence.hooks import WAIT_SECONDS

        try:
            if (descriptor := self._delivery.descriptor()) >= 0:
                yield Readable(descriptor, time.monotonic() + WAIT_SECONDS)
        except BaseException:
            self._delivery.close(late=False)
            raise
        self._delivery.close()

    def __enter__(self) -> _Said:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._delivery.close(late=False)


class Telling:
    """One run: a `with` block around it sends what became of it; settled() then waits for the handlers."""

    def __init__(
        self, hooks: HookManager, world: LocalWorld, box: str | None, kind: Kind, command: Command, *, in_loop: bool
    ) -> None:
        self.result: Result | None = None
        self._hooks, self._box, self._kind, self._command = hooks, box, kind, command
        self._tier = world.prepared.backend
        self._said = _Said(hooks, in_loop=in_loop)
        self._given_up = False

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        from ringfence.events import MOST_DENIALS, HookEvent

        self._given_up = error is not None and not isinstance(error, Exception)
        denials = self.result.denials if self.result else ()
        for denial in denials[:MOST_DENIALS]:
            self._said.send(HookEvent.SANDBOX_DENIAL, {"box": self._box, "denial": denial})
        self._said.send(HookEvent.SANDBOX_EXEC, self._data(denials, error))

    def settled(self) -> Waits[None]:
        """Until the handlers have been called, within their bound; at once where the caller gave the run up."""
        with self._said as said:
            if not self._given_up:
                yield from said.settled()

    def _data(self, denials: tuple[Denial, ...], error: BaseException | None) -> dict[str, Any]:
        from ringfence.events import MOST_TEXT

        result = self.result
        outcome: Outcome | None = result.outcome if result else Cancelled() if self._given_up else None
        language, text = what(self._kind, self._command)
        failed = None if error is None or self._given_up else error.code if isinstance(error, RingfenceError) else "callback"
        return {
            "box": self._box,
            "kind": self._kind,
            "tier": self._tier,
            "exit_code": result.exit_code if result else None,
            "timed_out": bool(result and result.timed_out),
            "execution_time_ms": result.execution_time_ms if result else 0.0,
            "outcome": outcome,
            "denials": denials,
            "error": failed,
            "language": language,
            "text": text[:MOST_TEXT],
            "text_omitted": max(0, len(text) - MOST_TEXT),
        }


def what(kind: Kind, command: Command) -> tuple[str, str]:
    """The language and the text of what was run."""
    if kind == "command":
        return "", command.shown[0]
    if kind == "argv":
        import shlex

        return "", shlex.join(command.shown)
    source = command.request.get("code", command.request.get("script"))
    assert isinstance(source, bytes)
    return command.shown[0].removeprefix("<").partition(" ")[0], source.decode("utf-8", "surrogateescape")
