"""Rules for single acts: what a file may say, what each matches, what is told of rules that mean nothing, and how they narrow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import PermissionManager, SandboxConfig, compose, load_policy
from ringfence.errors import ConfigError, PolicyError, WideningError
from ringfence.policy.differences import differences
from ringfence.policy.permissions import contradictions, fits, joined, parse, warnings

FILE = """\
version: 1
permissions:
  - allow exec git status
  - {effect: deny, command: git push, examples: {match: [git -C /x push origin], not_match: [git pull]}}
  - {effect: allow, command: [pytest, "tests/*"]}
  - {effect: deny, read: secrets/key, examples: {match: [secrets/key], not_match: [secrets/other]}}
  - {effect: ask, write: "**/migrations/**"}
  - {effect: deny, net: "*.evil.example", examples: {match: ["x.evil.example:443"], not_match: ["evil.example:443"]}}
"""


def loaded(tmp_path: Path, text: str) -> SandboxConfig:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return load_policy(file).config


def test_a_file_says_rules_as_text_and_as_maps(tmp_path: Path) -> None:
    assert loaded(tmp_path, FILE).permissions == (
        "allow exec git status",
        "deny exec git push",
        "allow exec pytest tests/*",
        f"deny read {tmp_path}/secrets/key",
        "ask write **/migrations/**",
        "deny net *.evil.example",
    )


@pytest.mark.parametrize(
    ("rule", "line", "said"),
    [
        ("permit exec git", 3, "is not a rule"),
        ("allow exec", 3, "is not a rule"),
        ("{effect: allow, command: git, read: x}", 3, "one of command, read, write, net, not 2"),
        ("{effect: allow}", 3, "not 0 of them"),
        ("{effect: permit, command: git}", 3, "permissions"),
        ("{effect: allow, comand: git}", 3, "Did you mean command?"),
        ("{effect: deny, command: git push, examples: {match: [git pull]}}", 3, "does not match its example 'git pull'"),
        ("{effect: deny, command: git push, examples: {not_match: [git -c a=b push]}}", 3, "matches its example 'git -c a=b push'"),
        ("{effect: deny, command: [git push]}", 3, "never matches: no program is called 'git push'"),
        ("allow exec A=1 git", 3, "sets a variable and starts nothing"),
        ("deny read a/../b", 3, "never matches"),
        ("deny read '{a,b}'", 3, "has braces"),
        ("deny net https://x.example", 3, "x.example"),
        ("allow exec 'git", 3, "cannot be read"),
    ],
)
def test_what_is_no_rule_is_an_error_with_its_place(tmp_path: Path, rule: str, line: int, said: str) -> None:
    entry = rule if rule.startswith("{") else '"' + rule.replace('"', '\\"') + '"'
    with pytest.raises(PolicyError) as caught:
        loaded(tmp_path, f"version: 1\npermissions:\n  - {entry}\n")
    assert said in str(caught.value) and caught.value.line == line


def test_rules_that_contradict_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="contradicts allow exec git push") as caught:
        loaded(tmp_path, "version: 1\npermissions:\n  - allow exec git push\n  - ls\n".replace("ls", "deny exec git push"))
    assert caught.value.line == 4
    for make in (lambda rules: PermissionManager(rules), lambda rules: SandboxConfig(permissions=rules)):
        with pytest.raises(ConfigError, match="contradicts"):
            make(["ask exec git", "allow exec git"])
    assert not list(contradictions([parse("allow exec git"), parse("allow exec git")]))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["deny exec git", "allow exec git status"], "allow exec git status never decides: deny exec git is stricter"),
        (["allow exec *"], "matches every act"),
        (["deny read **"], "matches every act"),
        (["ask net *"], "matches every act"),
        (["deny net *.example.com", "allow net a.example.com"], "never decides"),
        (["allow exec git", "deny exec git push"], ""),
        (["allow exec git *", "deny exec git push"], ""),
    ],
)
def test_what_is_likely_not_meant_is_a_warning(rules: list[str], said: str) -> None:
    found = [what for _, what in warnings([parse(rule) for rule in rules])]
    assert (said in " ".join(found)) if said else not found
    assert list(PermissionManager(rules).warnings) == found


@pytest.mark.parametrize(
    ("parent", "child", "result"),
    [
        ([], ["allow exec git"], ["allow exec git"]),
        (["allow exec git"], ["allow exec git status"], ["allow exec git status"]),
        (["allow exec git"], ["deny exec git push"], ["allow exec git", "deny exec git push"]),
        (["allow exec git", "deny read a"], [], ["allow exec git", "deny read a"]),
        (["allow exec git"], ["deny exec git"], ["deny exec git"]),
        (["allow read /a"], ["allow read /a/b"], ["allow read /a/b"]),
        (["allow net *.example.com"], ["allow net a.example.com:443"], ["allow net a.example.com:443"]),
    ],
)
def test_a_child_takes_away_and_never_adds(parent: list[str], child: list[str], result: list[str]) -> None:
    whole = compose(SandboxConfig(permissions=parent), SandboxConfig(permissions=child), {"permissions"})
    assert list(whole.permissions) == result


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (["allow exec git status"], ["allow exec git"]),
        (["deny exec git"], ["allow exec ls"]),
        (["allow exec git status"], ["allow exec git st*"]),
        (["allow read /a/b"], ["allow read /a"]),
        (["allow net a.example.com:443"], ["allow net a.example.com"]),
        (["ask exec ls"], ["allow exec *"]),
    ],
)
def test_a_child_that_adds_is_an_error(parent: list[str], child: list[str]) -> None:
    with pytest.raises(WideningError, match="permissions"):
        compose(SandboxConfig(permissions=parent), SandboxConfig(permissions=child), {"permissions"})


def test_a_difference_says_which_allows_more() -> None:
    wide, narrow = (
        SandboxConfig(permissions=["allow exec git"]),
        SandboxConfig(permissions=["allow exec git", "deny exec git push"]),
    )
    assert [each.change for each in differences(wide, narrow)] == ["narrower"]
    assert [each.change for each in differences(narrow, wide)] == ["wider"]
    assert [each.change for each in differences(SandboxConfig(), wide)] == ["narrower"]


WORDS = st.sampled_from(["git", "ls", "push", "status", "-a", "*", "g*"])
RULE = st.builds(
    lambda effect, words: f"{effect} exec {' '.join(words)}",
    st.sampled_from(["allow", "ask", "deny"]),
    st.lists(WORDS, min_size=1, max_size=3),
)
RANK = {"allow": 0, "ask": 1, "deny": 2}


def _without_contradictions(rules: list[str]) -> list[str]:
    return list({tuple(rule.split()[1:]): rule for rule in rules if not rule.split()[2].startswith("-")}.values())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(RULE, max_size=4).map(_without_contradictions),
    st.lists(RULE, max_size=4).map(_without_contradictions),
    st.lists(
        st.lists(st.sampled_from(["git", "ls", "push", "status", "-a", "gx"]), min_size=1, max_size=4), min_size=1, max_size=4
    ),
)
def test_what_is_composed_lets_nothing_through_that_its_parent_does_not(
    parent: list[str], child: list[str], lines: list[list[str]]
) -> None:
    try:
        result = compose(SandboxConfig(permissions=parent), SandboxConfig(permissions=child), {"permissions"}).permissions
    except WideningError:
        return
    for argv in lines:
        decided = PermissionManager(result).check(argv).effect if result else "allow"
        outer = PermissionManager(parent).check(argv).effect if parent else "allow"
        assert RANK[decided] >= RANK[outer], (parent, child, result, argv)
        closing = [rule for rule in child if not rule.startswith("allow")]
        assert RANK[decided] >= RANK[PermissionManager(closing, default="allow").check(argv).effect]
    assert {*joined(result, result)} == {*result}


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_a_pattern_of_a_word_matches_as_globs_do(pattern: str, word: str) -> None:
    from fnmatch import fnmatchcase

    assert fits(pattern, word) == fnmatchcase(word, pattern)
