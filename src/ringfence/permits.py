"""What stands between a call and its beginning: its acts are decided, and where a rule says so somebody is asked.

Both surfaces begin a call through here where the box has rules or an approver; one that has neither never loads this. A question
is waited for as data, so that one routine serves a blocking caller and any event loop.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ringfence.errors import NotPermittedError
from ringfence.for_model import quoted
from ringfence.observed import Kind, what
from ringfence.permission.acts import Act, Decision, strictest
from ringfence.permission.permissions import PermissionManager
from ringfence.permission.questions import NOT_AGAIN, Answer, Approver, Question, Questions, Run, Told
from ringfence.policy.config import SandboxConfig
from ringfence.process.wait import Readable, Waits
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.escalation import Offer, Recorded
    from ringfence.outcome import Result
    from ringfence.process.command import Command
    from ringfence.world.local import Callback, LocalWorld

_SECRET = re.compile("key|token|secret|passw|credential|auth", re.IGNORECASE)
MOST_SAID = 200
"""Characters of a command in an error; a question has all of it."""


def permits(
    config: SandboxConfig, given: PermissionManager | None, approver: Approver | None, ceiling: SandboxConfig | None, told: Told
) -> Permits:
    """Those of a box: the rules of its policy and those that were given, of which the strictest hold. Raises TypeError."""
    if given is not None and not isinstance(given, PermissionManager):
        raise TypeError(f"permissions must be a PermissionManager, not {type(given).__name__}.")
    if approver is not None and not callable(getattr(approver, "ask", None)):
        raise TypeError(f"an approver has ask(question); {type(approver).__name__} has not.")
    if ceiling is not None and not isinstance(ceiling, SandboxConfig):
        raise TypeError(f"ceiling must be a SandboxConfig, not {type(ceiling).__name__}.")
    if config.permissions:
        given = given.joined(config.permissions) if given is not None else PermissionManager(config.permissions)
    asked: Any = approver if approver is not None else given.approver if given is not None else None
    return Permits(config, (given,) if given is not None else (), Questions(asked, told=told), ceiling)


class Permits:
    """The rules of one box, and its questions."""

    def __init__(
        self,
        config: SandboxConfig,
        managers: Iterable[PermissionManager],
        questions: Questions,
        ceiling: SandboxConfig | None,
    ) -> None:
        self.config, self.ceiling = config, ceiling
        self.recorded: Recorded | None = None
        self.managers = tuple(managers)
        self.questions = questions
        self.box: str | None = None
        self._first = True

    def run(
        self, world: LocalWorld, kind: Kind, command: Command, callbacks: tuple[Callback | None, Callback | None]
    ) -> Waits[Result]:
        """Carry a command out, if that is permitted. Raises NotPermittedError, and what running raises."""
        with self.questions.run() as run:
            yield from self.permit(world, kind, command, run)
            result = yield from world.run(command, callbacks)
            if self.config.escalation == "none" or result.ok:
                return result
            found, note = yield from self.widening(world, result, what(kind, command)[1], run)
            if found is not None:
                return (yield from found.again(world, command, callbacks, result, self.recorded))
            return replace(result, notes=(*result.notes, note)) if note else result

    def widening(self, world: LocalWorld, result: Result, shown: str, run: Run | None = None) -> Waits[tuple[Offer | None, str]]:
        """What is granted for a run that was refused something, or a note why it is not; neither where nothing may be asked."""
        from ringfence import escalation  # only after a refusal, in a box that may ask

        found = escalation.offer(self.config, world, result, self.ceiling)
        if found is None:
            return None, ""
        answer = yield from self.ask(found.question(shown, self.questions.deadline_seconds, self.box), run)
        if answer.granted:
            return found, ""
        return None, f"{NOT_AGAIN} with {found.grant}: {answer.why or 'the answer was no'}."

    def escalate(self, world: LocalWorld, result: Result) -> Waits[tuple[Offer, LocalWorld] | None]:
        """What is granted for a run that is over, and the open box that has it; None where nothing may be asked.

        Raises NotPermittedError where it is refused, and what making a box raises.
        """
        if self.config.escalation == "none":
            return None
        from ringfence import escalation  # as above

        shown = shlex.join(result.argv)
        found, note = yield from self.widening(world, result, shown)
        if found is None:
            if note:
                raise NotPermittedError(note, act=shown, why=note, asked=True)
            return None
        return found, (yield from escalation.widened(world, found))

    def of_second(self, config: SandboxConfig) -> Permits:
        """Those of the box that was granted: the command was agreed to, and asked about are hosts alone, within the same bounds."""
        second = Permits(replace(config, escalation="none"), (), self.questions, None)
        second._first = False
        return second

    def lent(self, others: Permits) -> Callable[[], None]:
        """Have the rules of others too, and their approver where there is none; what is returned takes them back."""
        lent, approver = others.managers, others.questions.approver
        self.managers = (*self.managers, *lent)
        if self.questions.approver is None:
            self.questions.lend(approver)
        else:
            approver = None

        def take_back() -> None:
            self.managers = tuple(each for each in self.managers if not any(each is one for one in lent))
            if approver is not None and self.questions.approver is approver:
                self.questions.lend(None)

        return take_back

    def permit(self, world: LocalWorld, kind: Kind, command: Command, run: Run | None = None) -> Waits[None]:
        """Return if a command may be started. Raises NotPermittedError."""
        if self.managers:
            decision = strictest(manager.check(_asked(kind, command), world.policy, world.enforcement) for manager in self.managers)
            asked = decision.effect == "ask"
            reach = self._reach(world) if asked else ""
            yield from self._decided(decision, what(kind, command)[1], run, around(command) if asked else (), reach)

    def permit_file(self, world: LocalWorld, kind: str, path: str) -> Waits[None]:
        """Return if a file may be read or written. path: absolute. Raises NotPermittedError."""
        if self.managers:
            act = Act(kind, path)
            decision = strictest(manager.check(act, world.policy, world.enforcement) for manager in self.managers)
            yield from self._decided(decision, f"{kind} {path}", None)

    def close(self) -> None:
        """The box has ended; with the first one its questions end, and those of a second."""
        if self._first:
            self.questions.close()

    def _reach(self, world: LocalWorld) -> str:
        """What a command could touch, where a manager says that."""
        said = (manager.reach(world.policy, world.enforcement) for manager in self.managers)
        return next((each for each in said if each), "")

    def _decided(
        self, decision: Decision, shown: str, run: Run | None, around: tuple[str, ...] = (), reach: str = ""
    ) -> Waits[None]:
        if decision.effect == "allow":
            return
        if decision.effect == "deny":
            said = f"{quoted(shown, MOST_SAID)} is not permitted: {decision.why} (rule {quoted(decision.rule)})."
            raise NotPermittedError(said, act=shown, rule=decision.rule, why=decision.why)
        question = Question(
            "command",
            shown,
            decision.acts,
            decision.rule,
            reach,
            deadline_seconds=self.questions.deadline_seconds,
            box=self.box,
            around=around,
        )
        answer = yield from self.ask(question, run)
        if not answer.granted:
            why = answer.why or "the answer was no"
            said = f"{quoted(shown, MOST_SAID)} was not permitted: {why} (asked by rule {quoted(decision.rule)})."
            raise NotPermittedError(said, act=shown, rule=decision.rule, why=why, asked=True)

    def ask(self, question: Question, run: Run | None = None) -> Waits[Answer]:
        """The answer to a question. Whoever gives up waiting takes it back."""
        asking = self.questions.put(question, run)
        try:
            if asking.descriptor >= 0:
                yield Readable(asking.descriptor, asking.until)
            return asking.answer()
        finally:
            asking.close()


def around(command: Command) -> tuple[str, ...]:
    """What a command is started with beside its words. The value of a variable that is named like a secret is left out."""
    said = [f"the folder {command.cwd}"] if command.cwd is not None else []
    for name, value in command.environment.items():
        if name != "TERM":
            hidden = f"(not shown, {len(value)} characters)"
            said.append(f"the variable {name}={hidden if _SECRET.search(name) else value}")
    if command.data:
        said.append(f"an input of {len(command.data)} bytes:\n{command.data.decode('utf-8', 'surrogateescape')}")
    return tuple(said)


def _asked(kind: Kind, command: Command) -> str | tuple[str, ...]:
    """What is decided: the words of a command, a whole shell line, or the interpreter with its program."""
    if kind == "argv":
        return command.shown
    language, text = what(kind, command)
    return text if language in ("", "bash") else (language, "-e" if language == "node" else "-c", text)
