"""Whatever a line is: it is decided, nothing is raised, and nothing that is put around it opens what is closed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import PermissionManager
from ringfence.permission.shell import read_line, unreadable

SHELL = "ab gitpush'\"\\ ;&|<>(){}[]#=!\n\t$`-01,:~*/.EOF"
TEXT = st.one_of(st.text(max_size=60), st.text(SHELL, max_size=60))
CLOSED = PermissionManager(["deny exec git push", "allow exec a", "allow exec b"], default="allow")
RANK = {"allow": 0, "ask": 1, "deny": 2}


@settings(max_examples=400, deadline=None)
@given(TEXT)
def test_every_text_is_decided(text: str) -> None:
    assert CLOSED.check(text).effect in RANK
    assert PermissionManager(confined="allow").check(text).effect in ("allow", "ask")


@settings(max_examples=200, deadline=None)
@given(st.text("ab xyz-", min_size=1, max_size=20), st.sampled_from([";", "&&", "||", "|", "\n", "&"]))
def test_what_is_closed_is_found_beside_anything_that_is_read(text: str, operator: str) -> None:
    for line in (f"x{text} {operator} git push", f"git push {operator} x{text}", f"(x{text} {operator} git push)"):
        assert CLOSED.check(line).effect == "deny", line


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["a", "b x", "git push", "git status", "c $x", "ls *", "sh -c 'a'"]), min_size=1, max_size=5))
def test_a_line_is_decided_as_the_strictest_of_its_commands(commands: list[str]) -> None:
    manager = PermissionManager(["deny exec git push", "allow exec a", "allow exec b"])
    each = max(RANK[manager.check(command).effect] for command in commands)
    for operator in (" ; ", " && ", " || ", " | ", "\n"):
        assert RANK[manager.check(operator.join(commands)).effect] == each


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.characters(categories=["Cf", "Cc", "Zl", "Zp", "Zs"], exclude_characters=" \t\n"))
def test_a_character_that_is_not_seen_is_never_let_through(text: str, character: str) -> None:
    manager = PermissionManager(["allow exec *"], default="allow")
    for line in (f"a {text}{character}", f"a{character}{text}"):
        assert unreadable(line) is not None
        assert manager.check(line).effect == "ask"


@pytest.mark.parametrize(
    "line", ["a|" * 1400, "a ) (" * 1000, "'" * 9000, "$(" * 1400, "<<a " * 1400, "if a; then " * 900, "[[ " * 9000]
)
def test_a_line_made_to_cost_is_decided(line: str) -> None:
    assert CLOSED.check(line).effect == "ask"
    assert len(read_line(line, {}).doubts) < 100
