"""confined='allow': what a box covers in full is not asked about; nothing outside its policy is left unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture.tree import ROOT
from permission.figure import LEAST_FEWER, sentence
from permission.recorded import FULL, Recorded, asked_of, policy_of, recorded
from ringfence import Act, PermissionManager
from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.permission.confined import HOLD
from ringfence.values import replace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    return tmp_path


def test_the_sessions_are_many_and_of_many_kinds() -> None:
    commands = list(recorded())
    assert len(commands) >= 300 and len({each.session for each in commands}) >= 10
    assert sum(each.outside for each in commands) >= 50


def test_nothing_outside_the_policy_is_unasked(project: Path) -> None:
    unasked = [each for each, effect, _ in asked_of(project) if each.outside and effect == "allow"]
    assert not unasked


def test_what_is_asked_is_a_fifth_of_asking_per_command_at_most(project: Path) -> None:
    decided = asked_of(project)
    asked = [(each, why) for each, effect, why in decided if effect != "allow"]
    assert 1 - len(asked) / len(decided) >= LEAST_FEWER, [each for each in asked if not each[0].outside]
    # The control: without `confined` hardly a command is let through.
    assert sum(effect != "allow" for _, effect, _ in asked_of(project, confined="ask")) > 0.9 * len(decided)


def test_the_readme_has_the_figure_as_it_is(project: Path) -> None:
    assert sentence(project) in (ROOT / "README.md").read_text(encoding="utf-8"), "scripts/questions writes it"


def _asked(manager: PermissionManager, project: Path, enforcement: Enforcement) -> list[Recorded]:
    policy = policy_of(project)
    return [each for each in recorded() if not each.outside and manager.check(each.line, policy, enforcement).effect == "ask"]


@pytest.mark.parametrize("name", HOLD)
def test_what_is_only_partly_enforced_covers_no_command(project: Path, name: str) -> None:
    manager = PermissionManager(confined="allow")
    partly = replace(FULL, **{name: Enforced(Level.PARTIAL, "something")})
    decision = manager.check("make", policy_of(project), partly)
    assert decision.effect == "ask" and name in decision.why
    assert manager.check("make", policy_of(project), FULL).effect == "allow"


def test_without_a_box_nothing_is_covered(project: Path) -> None:
    manager = PermissionManager(confined="allow")
    assert manager.check("make").effect == manager.check("make", policy_of(project)).effect == "ask"


def test_a_rule_that_closes_is_not_passed_over_by_a_box(project: Path) -> None:
    manager = PermissionManager(["ask exec make", "deny read **/*.key"], confined="allow")
    policy = policy_of(project)
    assert manager.check("ls && make", policy, FULL).effect == "ask"
    assert manager.check("cat a.key", policy, FULL).effect == "deny"
    assert manager.check("ls", policy, FULL).effect == "allow"


def test_files_and_hosts_are_covered_where_the_policy_opens_them(project: Path) -> None:
    manager, policy = PermissionManager(confined="allow"), policy_of(project)
    for act, effect in (
        (Act("read", f"{project}/a"), "allow"),
        (Act("write", f"{project}/a"), "allow"),
        (Act("write", f"{project}/.git/hooks/pre-commit"), "ask"),
        (Act("write", "/etc/passwd"), "ask"),
        (Act("read", "~/.ssh/id_rsa"), "ask"),
        (Act("net", "packages.example.org:443"), "allow"),
        (Act("net", "packages.example.org:22"), "ask"),
        (Act("net", "other.example.org:443"), "ask"),
    ):
        assert manager.check(act, policy, FULL).effect == effect, act
