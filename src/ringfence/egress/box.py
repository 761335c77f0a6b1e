"""One box as the server knows it: its rules, its names, who is asked about what, and its connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from ringfence.egress.lookup import Outside
from ringfence.egress.loop import EndedError, Task, TimedOutError
from ringfence.egress.names import Names
from ringfence.egress.records import Records
from ringfence.policy.network import NetworkPolicy
from ringfence.policy.reach import Asked, Verdict, decide, likely_scheme, may_dial
from ringfence.values import replace

MOST_QUESTIONS = 16
"""Hosts that somebody is asked about at once."""
MOST_GRANTS = 1024
MOST_ASKED = 64
"""Refused look-ups that are remembered."""
ASKED_RULE = "network.on_unknown_domain"
DEFAULT_RULE = "network.default"
NOBODY = (
    "nobody could be asked whether {} is allowed at port {}: {}; "
    "in code give the box an approver, on the command line run it at a terminal"
)

Place: TypeAlias = tuple[str, int]
"""A host and a port, which is what somebody is asked about."""


class Question:
    """One that is open: who waits for it, and what was answered."""

    def __init__(self, number: int, place: Place) -> None:
        self.number, self.place = number, place
        self.waiting: set[Task] = set()
        self.allowed: bool | None = None
        self.why = ""
        self.nobody = False  # it is refused since nobody could be asked


class Box:
    """What is decided for one box. ask_seconds: how long a connection is held for an answer."""

    def __init__(self, policy: NetworkPolicy, names: Names, outside: Outside, records: Records, ask_seconds: float) -> None:
        self.names, self.outside, self.records, self.ask_seconds = names, outside, records, ask_seconds
        self.patience = 10.0  # seconds for all that a client says before its connection is decided on, however slowly it says it
        self.upstream = ""  # the URL of the proxy that is dialled through
        self.no_proxy: tuple[str, ...] = ()
        self.connections = 0
        self.refusing = 0  # connections beyond its share that are being told so
        self._asked: dict[tuple[int, str], float] = {}
        self.live: dict[Task, tuple[Asked, str]] = {}  # what each connection carries now, and the address that was dialled
        self.tasks: set[Task] = set()
        self.closing: list[Callable[[], None]] = []
        self.once: dict[Task, dict[Place, bool]] = {}  # what was said for a connection, which is decided more than once
        self._grants: dict[Place, bool] = {}
        self._questions: dict[Place, Question] = {}
        self._number = 0
        self.set_policy(policy)

    def set_policy(self, policy: NetworkPolicy) -> None:
        """Decide by these rules from now on. Connections that they do not allow are broken."""
        self.policy = policy
        bare = tuple(replace(rule, methods=(), paths=()) for rule in policy.allow)
        self._whatever_request = replace(policy, allow=bare)
        for task, (asked, address) in list(self.live.items()):
            verdict = self._granted(task, asked, decide(policy, asked))
            if not (verdict.allowed and (not address or may_dial(policy, asked, verdict, address).allowed)):
                task.end()

    def at_once(self, asked: Asked) -> Verdict | None:
        """The verdict on a connection whose bytes do not matter: an explicit port opens it to anything. None where they do."""
        verdict = decide(self.policy, replace(asked, scheme="tcp"))
        if verdict.allowed and (verdict.rule != DEFAULT_RULE or likely_scheme(asked.port) == "tcp"):
            return verdict
        return None

    async def before_bytes(self, task: Task, asked: Asked) -> Verdict:
        """The verdict before anything of the connection is known. Where it allows, its first bytes decide again."""
        verdict = await self.decided(task, replace(asked, scheme=likely_scheme(asked.port)))
        if verdict.allowed:
            return verdict
        for scheme in ("tls", "http"):
            found = decide(self._whatever_request if scheme == "http" else self.policy, replace(asked, scheme=scheme))
            if found.allowed:
                return found
        return verdict

    async def decided(self, task: Task, asked: Asked) -> Verdict:
        """The verdict, which somebody may have to be asked for first: then task waits."""
        verdict = self._granted(task, asked, decide(self.policy, asked))
        return await self._ask(task, asked, verdict) if verdict.ask else verdict

    def granted(self, place: Place, allowed: bool) -> None:
        """What holds for all of the box's life from now on, where no rule names it."""
        if len(self._grants) < MOST_GRANTS:
            self._grants[place] = allowed

    def answer(self, number: int, allowed: bool, why: str = "", *, nobody: bool = False) -> None:
        """What somebody said to a question, or that nobody could be asked; one that is not open any more is no error."""
        for question in self._questions.values():
            if question.number == number:
                question.allowed, question.why, question.nobody = allowed, why, nobody
                for task in question.waiting:
                    task.wake()

    def _granted(self, task: Task, asked: Asked, verdict: Verdict) -> Verdict:
        place = (str(asked.host), asked.port)
        said = self.once.get(task, {}).get(place, self._grants.get(place)) if verdict.ask else None
        if said is not None:
            return _answered(asked, verdict, said)
        return verdict

    async def _ask(self, task: Task, asked: Asked, verdict: Verdict) -> Verdict:
        place = (str(asked.host), asked.port)
        question = self._questions.get(place) or self._open(place, asked)
        if question is None:
            return replace(verdict, ask=False, why=f"{asked.host} is not known, and nobody can be asked about it now")
        question.waiting.add(task)
        task.within(self.ask_seconds)
        try:
            while question.allowed is None:
                await task.wait()
        except TimedOutError:
            return replace(verdict, ask=False, why=f"nobody answered within {self.ask_seconds:g} s whether {asked.host} is allowed")
        finally:
            question.waiting.discard(task)
            if not question.waiting:
                self._questions.pop(place, None)
        if question.nobody:
            return replace(verdict, ask=False, why=NOBODY.format(asked.host, asked.port, question.why))
        self.once.setdefault(task, {})[place] = question.allowed
        return _answered(asked, verdict, question.allowed, question.why)

    def _open(self, place: Place, asked: Asked) -> Question | None:
        if len(self._questions) >= MOST_QUESTIONS:
            return None
        self._number += 1
        deadline = time.monotonic_ns() + int(self.ask_seconds * 1e9)
        message: dict[str, object] = {"op": "ask", "question": self._number, "host": place[0], "port": place[1]}
        message |= {"scheme": asked.scheme, "via": asked.via, "deadline_ns": deadline}
        if not self.records.send(message):
            return None
        question = self._questions[place] = Question(self._number, place)
        return question

    def asked_again(self, source_port: int, name: str, now: float, seconds: float) -> bool:
        """Whether a refused look-up is one that a client has just made: it asks for each kind of address, and repeats itself."""
        last = self._asked.pop((source_port, name), 0.0)
        self._asked[source_port, name] = now
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        return now - last < seconds

    def end(self) -> None:
        """Break its connections and close what it has."""
        for task in list(self.tasks):
            task.end(EndedError())
        for close in self.closing:
            close()


def _answered(asked: Asked, verdict: Verdict, allowed: bool, said: str = "") -> Verdict:
    why = f"{asked.host} at port {asked.port} was asked about, and the answer was {'yes' if allowed else 'no'}{said and ': '}{said}"
    return replace(verdict, allowed=allowed, ask=False, rule=ASKED_RULE, why=why, remedy=None if allowed else verdict.remedy)
