"""PermissionManager: one function that decides whether a command is started, asked about, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import ArgumentError, ConfigError
from ringfence.permission.acts import EFFECTS, Act, Decision
from ringfence.policy.permissions import Rule, contradictions, endpoint, parse, warnings

if TYPE_CHECKING:
    from ringfence.outcome import Enforcement
    from ringfence.permission.deciding import Judge
    from ringfence.policy.resolve import ResolvedPolicy


class PermissionManager:
    """Decides acts by rules: deny wins over everything, and the strictest of several that match holds.

    rules: `Rule`s, or their text: `allow exec git status`, `deny read **/.env`, `ask write db/**`, `deny net *.example.com`.
    default: what is decided where no rule matches: allow, ask or deny. confined: 'allow' lets through, without a question, what the
    box's own enforcement covers in full. approver: who is asked; the Sandbox asks, this class only decides. Raises ConfigError for
    rules that cannot be read, never match, or contradict each other; warnings says which never decide or decide everything.

    Not promised: that a command does what its words say. A rule about a command is advice; the box is the boundary.
    """

    def __init__(
        self, rules: Iterable[Rule | str] = (), *, default: str = "ask", confined: str = "ask", approver: object | None = None
    ) -> None:
        if default not in EFFECTS:
            raise ConfigError(f"default must be one of {', '.join(EFFECTS)}, not {default!r}.")
        if confined not in ("ask", "allow"):
            raise ConfigError(f"confined must be ask or allow, not {confined!r}.")
        if isinstance(rules, str):
            raise ConfigError(f"rules must be a list of rules, not the text {rules!r}.")
        self.rules = tuple(dict.fromkeys(rule if isinstance(rule, Rule) else parse(rule) for rule in rules))
        for _, what in contradictions(self.rules):
            raise ConfigError(what)
        self.warnings = tuple(what for _, what in warnings(self.rules))
        self.default, self.confined, self.approver = default, confined, approver

    def joined(self, rules: Iterable[str]) -> PermissionManager:
        """The same with further rules, those of a policy: of two that say different things of one act the stricter holds."""
        made = PermissionManager((), default=self.default, confined=self.confined, approver=self.approver)
        made.rules = tuple(dict.fromkeys((*self.rules, *map(parse, rules))))
        made.warnings = tuple(what for _, what in warnings(made.rules))
        return made

    def check(
        self, asked: Act | str | Sequence[str], policy: ResolvedPolicy | None = None, enforcement: Enforcement | None = None
    ) -> Decision:
        """Decide an act, an argv, or a whole shell line given as text; of a line the strictest of all its acts. Runs nothing.

        policy, enforcement: those of the box that it would run in; without them nothing is covered by a box, relative paths start
        at the current folder, and a program need not be found. Raises ArgumentError for what is no act.
        """
        judge = self._judge(policy, enforcement)
        if isinstance(asked, Act) and asked.kind in ("read", "write"):
            return judge.path(asked.kind, asked.target)
        if isinstance(asked, Act) and asked.kind == "net":
            host, port = endpoint(asked.target)
            if not port:
                raise ArgumentError(f"{asked.target!r} is not HOST:PORT.")
            return judge.net(host, port)
        argv = asked.argv if isinstance(asked, Act) else Act.of(asked).argv if not isinstance(asked, str) else ()
        line = asked if isinstance(asked, str) else asked.target if isinstance(asked, Act) else ""
        from ringfence.permission.deciding import of_all  # what reads words and shells, for those who ask about commands

        return of_all(self._decided(judge, line, argv))

    def reach(self, policy: ResolvedPolicy, enforcement: Enforcement) -> str:
        """What is shown with the question about a command of what it could touch in its box; nothing here."""
        return ""

    def _decided(self, judge: Judge, line: str, argv: Sequence[str]) -> Iterator[Decision | None]:
        from ringfence.permission.shell import Command, Doubt, Redirect, read_line
        from ringfence.permission.words import literal
        from ringfence.permission.wrappers import commands_of, started

        known: Mapping[str, str] = {"HOME": judge.view.home, "PWD": judge.view.root}
        if argv:
            steps = started(Command(" ".join(argv), tuple(map(literal, argv)), by_shell=False), known)
        else:
            steps = commands_of(read_line(line, known), known)
        for step in steps:
            if isinstance(step, Doubt):
                yield judge.doubt(step, line or " ".join(argv))
            elif isinstance(step, Redirect):
                yield judge.redirect(step)
            elif step.words:
                yield judge.command(step)

    def _judge(self, policy: ResolvedPolicy | None, enforcement: Enforcement | None) -> Judge:
        from ringfence.permission.confined import Cover
        from ringfence.permission.deciding import Judge
        from ringfence.permission.places import view_of

        home = os.path.expanduser("~")
        writable = [folder.path for folder in policy.shared] if policy else []
        view = view_of(policy.workdir if policy else os.getcwd(), home, writable, checked=policy is not None)
        covered = self.confined == "allow" and policy is not None and enforcement is not None
        cover = Cover(policy, enforcement, view) if covered and policy and enforcement else None
        return Judge(self.rules, self.default, view, cover)
