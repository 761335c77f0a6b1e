"""PermissionManager: one function that decides whether a command is started, asked about, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError
from ringfence.permission.acts import EFFECTS, Act, Decision, strictest
from ringfence.policy.permissions import Rule, parse

if TYPE_CHECKING:
    from ringfence.outcome import Enforcement
    from ringfence.policy.resolve import ResolvedPolicy


class PermissionManager:
    """Decides acts by rules: deny wins over everything, and the strictest of several that match holds.

    rules: `Rule`s, or their text: `allow exec git status`, `deny exec git push`. default: what is decided where no rule matches:
    allow, ask or deny. confined: 'allow' lets through, without a question, what the box's own enforcement covers in full.
    approver: who is asked; the Sandbox asks, this class only decides. Raises ConfigError for rules that cannot be read.
    """

    def __init__(
        self, rules: Iterable[Rule | str] = (), *, default: str = "ask", confined: str = "ask", approver: object | None = None
    ) -> None:
        if default not in EFFECTS:
            raise ConfigError(f"default must be one of {', '.join(EFFECTS)}, not {default!r}.")
        if confined not in ("ask", "allow"):
            raise ConfigError(f"confined must be ask or allow, not {confined!r}.")
        self.rules = tuple(rule if isinstance(rule, Rule) else parse(rule) for rule in rules)
        self.default, self.confined, self.approver = default, confined, approver

    def check(
        self, asked: Act | str | Sequence[str], policy: ResolvedPolicy | None = None, enforcement: Enforcement | None = None
    ) -> Decision:
        """Decide an act, an argv, or a whole shell line given as text; of a line the strictest of all its acts. Runs nothing.

        policy, enforcement: those of the box that it would run in. Raises ArgumentError for what is no act.
        """
        if isinstance(asked, str):
            return Decision("ask", "built in", "a shell line is not read by this version", Act("exec", asked or "''"))
        return self._one(asked if isinstance(asked, Act) else Act.of(asked))

    def _one(self, act: Act) -> Decision:
        found = [Decision(rule.effect, rule.said, "it matches", act) for rule in self.rules if rule.matches(act.kind, act.argv)]
        if found:
            best = strictest(found)
            return Decision(best.effect, best.rule, best.why, act)
        return Decision(self.default, "default", "no rule matches it", act)
