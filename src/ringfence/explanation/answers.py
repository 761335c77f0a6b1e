"""Answers to one question about a box that is not made yet: a path, a host, a variable, a command.

The policy says which rule decides, the plan what is really there: where the two differ the plan is right, and the answer says so.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.confine.acts import FLOOR
from ringfence.confine.places import Place
from ringfence.confine.programs import program
from ringfence.errors import ArgumentError
from ringfence.policy.decide import VARIABLES, Decision, reaches
from ringfence.values import frozen

if TYPE_CHECKING:
    from ringfence.confine.protected.plan import Protected
    from ringfence.explanation import Explanation
    from ringfence.permission.acts import Decision as PermissionDecision
    from ringfence.permission.permissions import PermissionManager
    from ringfence.policy.reach import Verdict

HTTPS = 443
"""The port that a host is asked for where none is given."""


@frozen
class Answer:
    """subject: what was asked about. state: what it is in the box, in a few words. decisions: each act with what decides it."""

    subject: str
    state: str
    decisions: tuple[tuple[str, Decision], ...]
    details: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether every act is allowed."""
        return all(decision.allowed for _, decision in self.decisions)

    def lines(self) -> list[str]:
        """The answer to read."""
        acts = [f"  {act}: {decision}" for act, decision in self.decisions]
        return [f"{self.subject}: {self.state}", *acts, *(f"  {detail}" for detail in self.details)]

    def data(self) -> dict[str, object]:
        """The answer as plain values."""
        acts = {act: {"allowed": each.allowed, "rule": each.rule, "why": each.why} for act, each in self.decisions}
        return {"subject": self.subject, "state": self.state, "acts": acts, "details": list(self.details)}


def of_path(explained: Explanation, path: str) -> Answer:
    """What path is in the box, and what decides whether it may be read and written."""
    if not path or "\0" in path:
        raise ArgumentError(f"{path!r} is not a path.")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    places = explained.places
    plain = os.path.normpath(os.path.join(explained.plan.workdir, path))
    place = places.look(plain)
    protected = explained.acts.protected(place)
    read, write = explained.acts.read(plain, place), explained.acts.write(plain, place)
    details = [f"it is {place.path}"] if place.path != plain else []
    details += [f"{each.how}: {each}" for each in explained.plan.protected if each.how == "pin" and each.path == place.path]
    return Answer(plain, _state(place, protected, read, write), (("read", read), ("write", write)), tuple(details))


def _state(place: Place, protected: Protected | None, read: Decision, write: Decision) -> str:
    if place.kind == "covered":
        return "covered: it is there, empty, and cannot be opened"
    if place.kind == "copy":
        return "private: the box reads and writes a copy of its own"
    if protected and protected.how == "watch":
        return "watched for: it is not there, and what the box makes of it is taken away"
    if place.kind == "absent":
        return "not there, and the box may make it" if write.allowed else "absent"
    if protected:
        return "protected: readable, not writable"
    if read.allowed:
        return "readable and writable" if write.allowed else "readable, not writable"
    return "there, and closed"


def of_host(explained: Explanation, host: str) -> Answer:
    """What decides whether the box may connect to host, which may have a port."""
    if not host or "/" in host:
        raise ArgumentError(f"{host!a} is no HOST or HOST:PORT.", hint="Give a name or an address alone, such as example.com:443.")
    name, colon, port = host.rpartition(":")
    if not (colon and port.isdecimal() and (":" not in name or name.endswith("]"))):
        if colon and name and ":" not in name:
            raise ArgumentError(f"{port!a} is no port.", hint="Give a number from 1 to 65535, or leave it out.")
        host = f"[{host}]:{HTTPS}" if ":" in host and not host.startswith("[") else f"{host}:{HTTPS}"
    verdict = reaches(explained.policy, host)
    decision = Decision(verdict.allowed, verdict.rule, verdict.why)
    details = _of_connection(verdict, host)
    if explained.backend == "process":
        decision, details = FLOOR, ()
    state = "can be connected to" if decision.allowed else "is asked about" if verdict.ask else "cannot be connected to"
    return Answer(host, state, (("connect", decision),), details)


def _of_connection(verdict: Verdict, host: str) -> tuple[str, ...]:
    """What else is to be known: which host is meant, what would open it, and what is looked at only when it is dialled."""
    from ringfence.policy.hosts import Name, normalise

    if verdict.rule == "malformed":
        return ()
    written = host.rpartition(":")[0]
    meant = normalise(written)
    details = [f"it means {meant}"] if meant.text != written.strip("[]") else []
    if verdict.remedy:
        details.append(f"opened by {verdict.remedy}")
    if verdict.allowed and isinstance(meant, Name) and not verdict.private and verdict.rule.startswith("network."):
        details.append("an address of it that is not public is refused when it is dialled, unless network.allow names that too")
    return tuple(details)


def of_variable(explained: Explanation, name: str) -> Answer:
    """What a variable is in the box, and who set it."""
    if not name or "=" in name or "\0" in name:
        raise ArgumentError(f"{name!r} is no name of a variable.")
    config, made = explained.config, explained.plan.environment
    if name not in made:
        why = "nothing of the caller's environment is passed but what environment.pass names"
        decision = Decision(False, "default", why)
        if name in config.pass_environment:
            decision = Decision(False, "environment.pass", "it is named there, and not set here")
        return Answer(name, "not set in the box", (("env", decision),))
    if name in config.environment:
        decision = Decision(True, "environment.set", "the policy sets it")
    elif name in config.pass_environment:
        decision = Decision(True, "environment.pass", "it is the caller's")
    elif name in VARIABLES:
        decision = Decision(True, "built in", "every box has one, made for it")
    else:
        decision = Decision(True, "built in", "the caller's tools need it")
    return Answer(name, f"set to {made[name]}", (("env", decision),))


@frozen
class Permission:
    """Whether a command or a shell line may be started: what PermissionManager.check says of it, which is what a box goes by."""

    subject: str
    decision: PermissionDecision

    @property
    def allowed(self) -> bool:
        """Whether it is started without a question."""
        return self.decision.effect == "allow"

    def lines(self) -> list[str]:
        """The answer to read: of a line each of its acts."""
        state = {"allow": "may be started", "ask": "is asked about", "deny": "is not started"}[self.decision.effect]
        acts = [f"  {each.act or 'nothing'}: {each}" for each in self.decision.parts or (self.decision,)]
        return [f"{self.subject}: {state}", *acts, *([f"  {self.decision.advice}"] if self.decision.advice else [])]

    def data(self) -> dict[str, object]:
        """The answer as plain values."""
        parts = self.decision.parts or (self.decision,)
        acts = [{"act": str(each.act or ""), "effect": each.effect, "rule": each.rule, "why": each.why} for each in parts]
        said = {
            "effect": self.decision.effect,
            "rule": self.decision.rule,
            "why": self.decision.why,
            "advice": self.decision.advice,
        }
        return {"subject": self.subject, **said, "acts": acts}


def of_line(explained: Explanation, line: str | Sequence[str], manager: PermissionManager | None) -> Permission:
    """What the rules of the policy, and those of manager, say of a shell line or an argv, in this very box."""
    from ringfence.permission.acts import Act, Decision  # what reads words and shells, for those who ask about commands
    from ringfence.permission.permissions import PermissionManager

    rules = explained.config.permissions
    subject = line if isinstance(line, str) else shlex.join(line)
    if manager is None and not rules:
        why = "the policy has no permissions, so nothing is asked; the box holds what it does"
        return Permission(subject, Decision("allow", "default", why, Act("exec", subject or "''")))
    whole = manager.joined(rules) if manager is not None else PermissionManager(rules)
    return Permission(subject, whole.check(line, explained.policy, explained.enforcement))


def of_command(explained: Explanation, argv: Sequence[str]) -> Answer:
    """Which file argv would start in the box, and whether the kernel could."""
    if not argv or not argv[0] or "\0" in argv[0]:
        raise ArgumentError("a command needs a program to start.")
    found = program(explained.places, argv[0])
    needs = tuple(f"needs {each}" + (", which is there" if not found.problem else "") for each in found.interpreters)
    if found.problem:
        decision = Decision(False, "the plan", found.problem)
        return Answer(argv[0], "cannot be started", (("exec", decision),), needs)
    why = "it is in the box, and executable for the box's user"
    rule = "the box's PATH" if "/" not in argv[0] else "its path"
    return Answer(argv[0], f"starts {found.file}", (("exec", Decision(True, rule, why)),), needs)
