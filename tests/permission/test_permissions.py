"""PermissionManager.check: one function, by which every act is decided."""

from __future__ import annotations

import pytest

from ringfence import Act, PermissionManager
from ringfence.errors import ArgumentError, ConfigError

RULES = ["allow exec git status", "allow exec git", "deny exec git push", "ask exec git reset"]


@pytest.mark.parametrize(
    ("argv", "effect", "rule"),
    [
        (["git", "status", "-s"], "allow", "allow exec git status"),
        (["git", "push", "origin"], "deny", "deny exec git push"),
        (["git", "reset", "--hard"], "ask", "ask exec git reset"),
        (["gitk"], "ask", "default"),
    ],
)
def test_the_strictest_of_the_rules_that_match_holds(argv: list[str], effect: str, rule: str) -> None:
    decision = PermissionManager(RULES).check(argv)
    assert (decision.effect, decision.rule) == (effect, rule)


def test_the_order_of_rules_means_nothing() -> None:
    for rules in (RULES, RULES[::-1]):
        assert PermissionManager(rules).check(["git", "push"]).effect == "deny"


def test_what_is_no_act_or_no_rule_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="list of words"):
        PermissionManager().check([])
    with pytest.raises(ArgumentError, match="kind of act"):
        Act("fly", "x")
    with pytest.raises(ConfigError, match="is not a rule"):
        PermissionManager(["permit everything"])
    with pytest.raises(ConfigError, match="default"):
        PermissionManager(default="maybe")
