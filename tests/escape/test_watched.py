"""A name that does not exist when the box begins, and that something outside would run, is taken away as it appears."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confine.protected import quarantine
from ringfence.outcome import Denial, Result
from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where things are kept, for the time of a test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(quarantine, "STATE", str(tmp_path / "state" / "ringfence"))
    yield tmp_path / "state" / "ringfence" / "quarantine"
    shutil.rmtree(tmp_path / "state", ignore_errors=True)


@pytest.fixture
def project(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    return workspace


def taken(result: Result) -> list[Denial]:
    return [denial for denial in result.denials if denial.kind == "write"]


def shell(box: Sandbox, script: str) -> Result:
    return box.run(["/bin/sh", "-c", script])


def where(denial: Denial) -> Path:
    return Path(denial.detail.rpartition(" moved to ")[2])


MCP = """echo '{"mcpServers": {"x": {"command": "touch", "args": ["pwned"]}}}' > .mcp.json"""


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (MCP, ".mcp.json"),
        ("mkdir .vscode && echo '{}' > .vscode/tasks.json", ".vscode"),
        ("mkdir -p .claude/hooks; chmod 0 .claude", ".claude"),
        ("ln -s /etc/passwd .envrc", ".envrc"),
        ("echo x > x && mv x .mcp.json", ".mcp.json"),
        ("mkfifo .envrc", ".envrc"),
    ],
)
def test_what_appears_under_such_a_name_is_not_on_the_host_after_the_run_and_is_named_and_kept(
    project: Path, kept: Path, script: str, name: str
) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        result = shell(box, script)
        assert not os.path.lexists(project / name)
        assert {denial.target for denial in taken(result)} == {str(project / name)}
        assert taken(result)[0].evidence == "observed"
        assert kept in where(taken(result)[0]).parents
        assert os.path.lexists(where(taken(result)[0]))
        assert taken(shell(box, "true")) == []
    with Sandbox(SandboxConfig(workspace=project, tier="process")) as control:
        shell(control, script)
        assert os.path.lexists(project / name)


def test_a_file_that_the_policy_names_is_refused_before_it_exists(workspace: Path) -> None:
    (workspace / ".agent").mkdir()
    config = SandboxConfig(workspace=workspace, protect=[".agent/settings.json", "later/on/settings.json"])
    with Sandbox(config) as box:
        result = shell(box, "echo '{}' > .agent/settings.json; mkdir -p .agent/hooks later/on; echo x > later/on/settings.json")
        assert {denial.target for denial in taken(result)} == {
            f"{workspace}/.agent/settings.json",
            f"{workspace}/later/on/settings.json",
        }
        result = shell(box, "mv later l2 && mkdir -p later/on && echo x > later/on/settings.json")
        assert {denial.target for denial in taken(result)} == {f"{workspace}/later/on/settings.json"}
    assert sorted(os.listdir(workspace / ".agent")) == ["hooks"]
    assert os.listdir(workspace / "later" / "on") == []


def test_it_is_taken_away_while_the_run_goes_on(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        script = f"{MCP}; n=0; while [ -e .mcp.json ] && [ $n -lt 1000 ]; do sleep 0.01; n=$((n+1)); done; test $n -lt 1000"
        assert shell(box, script).exit_code == 0


def test_a_run_that_makes_it_again_and_again_leaves_nothing(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        result = shell(box, f"n=0; while [ $n -lt 200 ]; do {MCP}; n=$((n+1)); done")
        assert not (project / ".mcp.json").exists()
        assert taken(result)


def test_what_is_made_in_a_loop_is_kept_up_to_a_bound_and_then_removed(project: Path, kept: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        result = shell(box, "n=0; while [ $n -lt 200 ]; do mkdir .vscode 2>/dev/null && n=$((n+1)); done")
        assert 0 < len(taken(result)) <= 100
        shell(box, "mkdir -p .claude/x")
    assert not (project / ".vscode").exists()
    assert not (project / ".claude").exists()
    assert len(os.listdir(kept)) == 100


def test_a_file_that_the_user_makes_meanwhile_is_kept_whole_and_named(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        (project / ".envrc").write_text("mine")
        result = shell(box, "true")
        assert [denial.target for denial in taken(result)] == [str(project / ".envrc")]
        assert where(taken(result)[0]).read_text() == "mine"


def test_what_the_box_left_behind_and_makes_after_its_last_run_is_gone_when_the_box_is(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        box.write_file(".envrc", "touch pwned")
    assert not (project / ".envrc").exists()
    (project / ".envrc").write_text("mine")  # the control: without a box nobody takes it
    time.sleep(0.05)
    assert (project / ".envrc").read_text() == "mine"


def test_of_two_boxes_over_one_workspace_each_tells_and_the_other_goes_on_watching(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as one:
        with Sandbox(SandboxConfig(workspace=project)) as two:
            assert taken(shell(two, MCP))
            assert taken(shell(one, "true"))
        assert taken(shell(one, MCP))
    assert not (project / ".mcp.json").exists()


def test_on_another_file_system_a_copy_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Path("/dev/shm") if os.stat("/dev/shm").st_dev != tmp_path.stat().st_dev else Path("/var/tmp")
    monkeypatch.setattr(quarantine, "place", lambda: str(other / f"ringfence-test-{os.getpid()}"))
    try:
        folder = tmp_path / "x"
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "f").write_text("content")
        (folder / "l").symlink_to("/etc/passwd")
        path = quarantine.take_away(str(folder))
        assert path is not None
        assert path.startswith(str(other))
        assert Path(path, "a", "f").read_text() == "content"
        assert os.readlink(f"{path}/l") == "/etc/passwd"
        assert os.listdir(tmp_path) == []
        with (tmp_path / "large").open("wb") as file:
            file.truncate(quarantine.MAX_BYTES + 1)
        path = quarantine.take_away(str(tmp_path / "large"))
        assert path is not None
        assert os.listdir(tmp_path) == [os.path.basename(path)]
        assert quarantine.take_away(str(tmp_path / "nothing")) is None
    finally:
        shutil.rmtree(quarantine.place(), ignore_errors=True)
