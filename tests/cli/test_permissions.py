"""ringfence explain and check, about rules for single commands: they say what a box would go by."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import PermissionManager, load_policy
from ringfence.policy.resolve import resolve

pytestmark = pytest.mark.live("namespaces")
FILE = """\
version: 1
filesystem: {workspace: {path: .}}
permissions:
  - allow exec git status
  - {effect: deny, command: git push, examples: {match: [git -C /x push], not_match: [git pull]}}
  - {effect: deny, read: "**/.env"}
examples:
  allowed: [exec git status -s]
  refused: ["exec git status && git push", "exec cat .env"]
"""
LINES = (
    "git status",
    "git status | cat",
    "cd x && git push",
    "cat .env",
    "ls $x",
    "git status > x",
    "cat ~/.env",
    "true",
    "g(",
    "",
)


def ringfence(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(FILE)
    return tmp_path


def test_explain_says_what_check_decides(project: Path) -> None:
    config = load_policy(project / "policy.yaml").config
    manager, policy = PermissionManager(config.permissions), resolve(config, home=str(Path.home()))
    for line in LINES:
        done = ringfence("explain", "--policy", "policy.yaml", "--json", "exec", line, cwd=project)
        decided = manager.check(line, policy)
        said = json.loads(done.stdout)
        assert (said["effect"], said["rule"], said["why"]) == (decided.effect, decided.rule, decided.why), line
        assert done.returncode == (0 if decided.effect == "allow" else 1)


def test_explain_calls_a_rule_about_a_command_advice(project: Path) -> None:
    done = ringfence("explain", "--policy", "policy.yaml", "exec", "cd x && git push", cwd=project)
    assert "cd x && git push: is not started" in done.stdout
    assert "exec git push: deny by deny exec git push" in done.stdout
    assert "advice: the box is the boundary" in done.stdout


def test_explain_of_a_command_says_whether_it_is_permitted(project: Path) -> None:
    for argv, status in ((["git", "push"], 1), (["git", "status"], 0)):
        done = ringfence("explain", "--policy", "policy.yaml", "--json", "--", *argv, cwd=project)
        assert done.returncode == status
        assert json.loads(done.stdout)["permission"]["effect"] == ("deny" if status else "allow")


def test_check_tries_examples_by_the_rules_and_warns_of_rules_that_never_decide(project: Path) -> None:
    done = ringfence("check", "policy.yaml", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    file = project / "policy.yaml"
    file.write_text(FILE.replace("  - allow exec git status\n", "  - allow exec git status\n  - allow exec git push origin\n"))
    done = ringfence("check", "policy.yaml", cwd=project)
    assert done.returncode == 0
    assert "policy.yaml:5:5: warning: allow exec git push origin never decides" in done.stderr
    file.write_text(FILE.replace("[exec git status -s]", "[exec git log]"))
    done = ringfence("check", "policy.yaml", cwd=project)
    assert done.returncode == 1
    assert "'exec git log' must be allowed; it is refused by default: ask: no rule matches it" in done.stderr
