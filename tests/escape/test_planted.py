"""What a box leaves in its workspace for the git of the host to run: it is found, named, and dealt with as the policy says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ringfence.outcome import Denial, Result
from ringfence.sync import Sandbox, SandboxConfig

NESTED = """
set -e
mkdir -p vendor/lib && cd vendor/lib
git init -q .
echo x > f && git add f && git -c user.name=x -c user.email=x@example.com commit -qm m
git config core.fsmonitor 'touch "$PWNED"; false'
"""
GITLINK = NESTED + "cd ../.. && git add vendor/lib 2>/dev/null"


@pytest.fixture
def project(workspace: Path) -> Path:
    """A git repository of one commit."""
    (workspace / "README").write_text("hello\n")
    git(workspace, "init", "-q", ".")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "first")
    return workspace


def git(folder: Path, *words: str, **environment: str) -> str:
    """Git of the host, as somebody calls it who looks at what an agent did."""
    who = {f"GIT_{role}_{field}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    settings = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **who, **environment}
    done = subprocess.run(["git", *words], cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(box: Sandbox, script: str) -> Result:
    result = box.run(["/bin/sh", "-c", script], env={"GIT_CONFIG_GLOBAL": "/dev/null"})
    assert result.exit_code == 0, result.stderr
    return result


def planted(result: Result) -> list[str]:
    return [denial.target for denial in result.denials if denial.kind == "planted"]


def runs_code(folder: Path, marker: Path) -> bool:
    """Whether a plain `git status` of the host in this folder runs what the box wrote."""
    marker.unlink(missing_ok=True)
    git(folder, "status", "--short", PWNED=str(marker))
    return marker.exists()


def test_a_nested_repository_and_its_gitlink_are_named_on_the_result_and_a_plain_git_status_would_have_run_its_code(
    project: Path, tmp_path: Path, tier: str
) -> None:
    with Sandbox(SandboxConfig(workspace=project, tier=tier)) as box:
        assert planted(shell(box, "echo more >> README")) == []
        result = shell(box, GITLINK)
        assert planted(result) == [f"{project}/vendor/lib/.git", f"{project}/vendor/lib"]
        assert result.ok
        assert {denial.evidence for denial in result.denials} == {"observed"}
        assert result.denials[0] == Denial(
            "planted", f"{project}/vendor/lib/.git", "on_planted: report", "observed", None, "a new repository"
        )
        assert runs_code(project, tmp_path / "pwned")  # the control: at the top, with hooks and settings untouched
        assert planted(shell(box, "true")) == []  # told once
        assert box.planted() == result.denials
    assert box.planted() == result.denials
