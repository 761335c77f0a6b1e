"""What takes the protection off a live box from outside is noticed, put back, and told on the result."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ringfence.errors import ProtectionLostError
from ringfence.outcome import Level, Result
from ringfence.sync import Process, Sandbox, SandboxConfig

EVIL = "printf '[core]\\n\\tfsmonitor = touch pwned\\n' > .git/config"
HOOK = "echo 'touch pwned' > .git/hooks/post-checkout"


@pytest.fixture
def project(workspace: Path) -> Path:
    git(workspace, "init", "-q", ".")
    return workspace


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def atomic_save(path: Path, content: str) -> None:
    """As an editor saves a file."""
    path.with_name("saving").write_text(content)
    os.replace(path.with_name("saving"), path)


def host_git_config(project: Path) -> None:
    git(project, "config", "user.name", "me")


def host_editor(project: Path) -> None:
    atomic_save(project / ".git/config", "[user]\n\tname = me\n")


def host_new_hooks(project: Path) -> None:
    subprocess.run("rm -rf .git/hooks && mkdir .git/hooks", shell=True, cwd=project, check=True)


def host_new_repository(project: Path) -> None:
    subprocess.run("mv .git g2 && cp -a g2 .git", shell=True, cwd=project, check=True)


def another_box(project: Path) -> None:
    """A box without the rule: rename only minds the mounts of its own namespace."""
    with Sandbox(SandboxConfig(workspace=project, tier="process")) as box:
        assert box.run(["git", "config", "user.name", "me"]).ok


WAYS = [
    (host_git_config, {".git/config"}),
    (host_editor, {".git/config"}),
    (host_new_hooks, {".git/hooks"}),
    (host_new_repository, {".git", ".git/config", ".git/hooks"}),
    (another_box, {".git/config"}),
]


def lost(result: Result) -> dict[str, str]:
    return {denial.target: denial.detail for denial in result.denials if denial.kind == "unprotected"}


def attack(box: Sandbox) -> Result:
    return box.run(["/bin/sh", "-c", f"{EVIL}; {HOOK}; true"])


@pytest.mark.parametrize(("way", "paths"), WAYS)
def test_what_came_off_between_two_runs_is_back_before_the_next_and_told_on_its_result(
    project: Path, way: object, paths: set[str]
) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.run(["true"]).denials == ()
        assert callable(way)
        way(project)
        settings, hooks = (project / ".git/config").read_bytes(), os.listdir(project / ".git/hooks")
        result = attack(box)
        assert set(lost(result)) >= {f"{project}/{path}" for path in paths}
        # What is noticed in the middle of what the host does is told as it was then.
        said = [
            (each.target, each.detail.partition("between two runs; ")[2]) for each in result.denials if each.kind == "unprotected"
        ]
        assert all(detail.startswith(("put back", "it is gone from the host")) for _, detail in said), said
        back = {target for target, detail in said if detail.startswith("put back")}
        assert back >= {f"{project}/{path}" for path in paths}, said
        assert (project / ".git/config").read_bytes() == settings
        assert os.listdir(project / ".git/hooks") == hooks
        assert result.enforcement.filesystem.level is Level.FULL
        assert box.run(["true"]).denials == ()


@pytest.mark.parametrize(("way", "paths"), WAYS[:4])
def test_what_came_off_during_a_run_is_on_its_result_which_is_no_full_protection(
    project: Path, way: object, paths: set[str]
) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        with waiting(box, f"{EVIL}; {HOOK}; true") as process:
            assert callable(way)
            way(project)
            result = go_on(process)
        assert set(lost(result)) >= {f"{project}/{path}" for path in paths}
        assert all("while it ran; put back" in detail for detail in lost(result).values())
        assert result.enforcement.filesystem.level is Level.PARTIAL
        (project / ".git/hooks/post-checkout").unlink(missing_ok=True)
        again = attack(box)
        assert lost(again) == {}
        assert again.enforcement.filesystem.level is Level.FULL
        assert "post-checkout" not in os.listdir(project / ".git/hooks")


@pytest.mark.parametrize(("way", "paths"), WAYS[:3])
def test_without_it_what_the_box_writes_then_reaches_the_host(project: Path, way: object, paths: set[str]) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        world = box._open()
        assert world.watch is not None
        world.watch.close()
        world.watch = None
        assert callable(way)
        way(project)
        attack(box)
        written = (project / ".git/config").read_text() + "".join(os.listdir(project / ".git/hooks"))
        assert "fsmonitor" in written or "post-checkout" in written


def test_in_a_run_that_goes_on_it_is_back_at_once_and_the_result_still_tells(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        script = "n=0; while [ $n -lt 1000 ] && ! [ -L .git/config ]; do sleep 0.01; n=$((n+1)); done; test -L .git/config"
        with waiting(box, "echo on; read word; " + script) as process, waiting(box, "true") as other:
            host_git_config(project)
            process.stdin.write(b"on\n")
            assert process.stdout.read(3) == b"on\n"
            result = go_on(process)  # the box sees a link where its own copy is mounted
            assert result.exit_code == 0
            assert set(lost(result)) == {f"{project}/.git/config"}
            assert result.enforcement.filesystem.level is Level.PARTIAL
            assert go_on(other).enforcement.filesystem.level is Level.PARTIAL  # it was open to both
        assert box.run(["true"]).enforcement.filesystem.level is Level.FULL
        assert lost_of(box) == {f"{project}/.git/config"}
    assert lost_of(box) == {f"{project}/.git/config"}


def lost_of(box: Sandbox) -> set[str]:
    return {denial.target for denial in box.denials()}


def test_the_copies_of_a_box_stay_as_it_left_them(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.run(["git", "config", "user.email", "box@example.com"]).ok
        host_git_config(project)
        assert box.run(["git", "config", "user.email"]).stdout == "box@example.com\n"
        assert "box@example.com" not in (project / ".git/config").read_text()


def test_the_content_of_the_host_is_compared(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        atomic_save(project / ".git/config", (project / ".git/config").read_text())
        assert "as before" in lost(box.run(["true"]))[f"{project}/.git/config"]
        host_git_config(project)
        assert "has changed: it now sets 'user.name'" in lost(box.run(["true"]))[f"{project}/.git/config"]


def test_a_folder_that_the_host_removed_is_held_as_soon_as_it_is_there_again(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        shutil.rmtree(project / ".git" / "hooks")
        assert lost(box.run(["true"])) != {}
        # Whoever makes it: the box is to find its own copy there, and what it wrote before is told.
        script = "mkdir .git/hooks && echo x > .git/hooks/early; n=0"
        wait = "while [ $n -lt 1000 ] && ! grep -q $PWD/.git/hooks /proc/self/mountinfo; do sleep 0.01; n=$((n+1)); done"
        result = box.run(["/bin/sh", "-c", f"{script}; {wait}; {HOOK}; test $n -lt 1000"])
        assert result.exit_code == 0
        assert "put back" in lost(result)[f"{project}/.git/hooks"]
        assert "post-checkout" not in os.listdir(project / ".git/hooks")


def test_a_copy_that_the_box_threw_away_is_replaced_by_the_hosts_file_read_only(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        box.run(["/bin/sh", "-c", "rm -rf /.ringfence/copies/*/hooks"])
        box.run(["/bin/sh", "-c", "for n in /.ringfence/copies/*; do mv $n $n-; done; true"])
        host_new_hooks(project)
        result = attack(box)
        assert "read-only" in lost(result)[f"{project}/.git/hooks"]
        assert os.listdir(project / ".git/hooks") == []


def test_nothing_runs_in_a_box_whose_protection_cannot_be_put_back(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        subprocess.run(
            "rm .git/config && ln -s ../x .git/config && mv .git g2 && ln -s g2 .git", shell=True, cwd=project, check=True
        )
        with pytest.raises(ProtectionLostError, match=r"\.git"):
            attack(box)
        with pytest.raises(ProtectionLostError):
            box.write_file("x", "y")


def test_a_covered_folder_that_the_host_moves_and_makes_anew_later_is_covered_again(workspace: Path) -> None:
    (workspace / "keys").mkdir()
    (workspace / "keys" / "k").write_text("secret")
    with Sandbox(SandboxConfig(workspace=workspace, deny=["keys"])) as box:
        subprocess.run(["mv", "keys", "k2"], cwd=workspace, check=True)
        atomic_save(workspace / "other", "")
        assert not box.run(["cat", "k2/k"]).ok  # between the two the mounts are looked at
        subprocess.run(["cp", "-a", "k2", "keys"], cwd=workspace, check=True)
        assert "secret" not in box.run(["cat", "keys/k", "k2/k"]).stdout
    with Sandbox(SandboxConfig(workspace=workspace)) as box:  # the control
        assert box.run(["cat", "keys/k"]).stdout == "secret"


def test_a_secret_whose_cover_came_off_is_covered_again_and_told(workspace: Path) -> None:
    (workspace / ".env").write_text("old=secret")
    (workspace / "keys").mkdir()
    (workspace / "keys" / "k").write_text("secret")
    with Sandbox(SandboxConfig(workspace=workspace, deny=["keys", "**/.env"])) as box:
        assert box.run(["cat", ".env"]).exit_code == 1
        atomic_save(workspace / ".env", "new=secret")
        subprocess.run("mv keys k2 && cp -a k2 keys", shell=True, cwd=workspace, check=True)
        result = box.run(["cat", ".env", "keys/k"])
        assert "secret" not in result.stdout
        assert set(lost(result)) == {f"{workspace}/.env", f"{workspace}/keys"}
        with waiting(box, "true") as process:
            atomic_save(workspace / ".env", "third=secret")
            result = go_on(process)
        assert set(lost(result)) == {f"{workspace}/.env"}
        assert result.enforcement.filesystem.level is Level.PARTIAL
        assert box.run(["cat", ".env"]).exit_code == 1
        world = box._open()
        assert world.watch is not None
        world.watch.close()
        world.watch = None
        atomic_save(workspace / ".env", "fourth=secret")  # the control
        assert box.run(["cat", ".env"]).stdout == "fourth=secret"


def waiting(box: Sandbox, script: str) -> Process:
    process = box.spawn(["/bin/sh", "-c", f"echo up; read word; {script}"])
    assert process.stdout.read(3) == b"up\n"
    return process


def go_on(process: Process) -> Result:
    process.stdin.write(b"on\n")
    return process.wait()
