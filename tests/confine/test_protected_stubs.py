"""What a repository lacks is made for the life of the boxes over it, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.confine.protected import stubs
from ringfence.confine.protected.plan import Wanted
from ringfence.errors import WorkspaceError
from ringfence.sync import Sandbox, SandboxConfig

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
DEADLINE_SECONDS = 20.0

HOLDER = """
import sys, time
from ringfence.process import zygote
from ringfence.sync import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(workspace=sys.argv[1])) as box:
    assert box.run(["/bin/true"]).ok
    print(zygote.current().pid, flush=True)
    time.sleep(60)
"""
ONE_BOX = """
import sys
from ringfence.sync import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(workspace=sys.argv[1])) as box:
    assert box.run(["/bin/true"]).ok
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of its own for an ordinary user; root's has one place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Path(stubs.STATE if os.geteuid() == 0 else tmp_path / "state" / "ringfence") / "made"


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q")
    (workspace / "file").write_text("")
    return workspace


def entries(repository: Path) -> dict[str, tuple[int, int]]:
    """Everything in the git directory with its mode, and what git says is not tracked."""
    found = {str(path): path.lstat() for path in [*(repository / ".git").rglob("*")]}
    return {path: (each.st_mode, each.st_nlink) for path, each in found.items()} | {
        git(repository, "status", "--porcelain", "--ignored"): (0, 0)
    }


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def listed(state: Path, repository: Path) -> bool:
    try:
        return any(os.readlink(link).startswith(str(repository)) for link in state.iterdir())
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "before", ["", "rm -rf .git/hooks", "git config core.hooksPath .hooks", "git config core.hooksPath gone/hooks"]
)
def test_nothing_is_left_of_what_a_box_needed(repository: Path, state: Path, before: str) -> None:
    subprocess.run(["/bin/sh", "-ec", before], cwd=repository, env=ENVIRONMENT, check=True)
    was = entries(repository)
    for _ in range(3):
        with Sandbox(SandboxConfig(workspace=repository)) as box:
            assert (repository / ".git" / "commondir").read_bytes() == stubs.SAME
            assert listed(state, repository)
            assert git(repository, "status", "--porcelain", "--ignored") in was  # git of the host sees no difference meanwhile
            assert box.run(["git", "status"]).ok
        assert entries(repository) == was
    assert not listed(state, repository)


def test_what_is_made_belongs_to_the_owner_of_the_repository(repository: Path) -> None:
    owner = 4321 if os.geteuid() == 0 else os.getuid()
    (repository / ".git" / "hooks").rename(repository / "old")
    if os.geteuid() == 0:
        for path in (repository, *repository.rglob("*")):
            os.lchown(path, owner, owner)
    with Sandbox(SandboxConfig(workspace=repository)):
        assert {(repository / ".git" / name).stat().st_uid for name in ("commondir", "config.worktree", "hooks")} == {owner}


def test_the_last_of_several_boxes_removes_it(repository: Path) -> None:
    was = entries(repository)
    with Sandbox(SandboxConfig(workspace=repository)) as last:
        with Sandbox(SandboxConfig(workspace=repository)) as first:
            assert first.run(["/bin/true"]).ok
        assert (repository / ".git" / "commondir").exists()
        refused = last.run(["/bin/sh", "-c", "echo ../x > .git/commondir || rm .git/commondir"])
        assert not refused.ok
    assert entries(repository) == was


def test_what_somebody_made_of_it_meanwhile_stays(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-commit"
    for path in hook.parent.iterdir():
        path.unlink()
    hook.parent.rmdir()
    with Sandbox(SandboxConfig(workspace=repository)):
        hook.write_text("of the user")
        git(repository, "config", "extensions.worktreeConfig", "true")
        git(repository, "config", "--worktree", "a.b", "c")
    assert hook.read_text() == "of the user"
    assert git(repository, "config", "--worktree", "a.b").strip() == "c"
    assert not (repository / ".git" / "commondir").exists()


@pytest.mark.parametrize("name", ["config.worktree", "hooks"])
def test_what_was_there_before_stays_though_it_is_empty(repository: Path, name: str) -> None:
    path = repository / ".git" / name
    if name == "hooks":
        for hook in path.iterdir():
            hook.unlink()
    else:
        path.write_text("")
    was = entries(repository)
    with Sandbox(SandboxConfig(workspace=repository)):
        pass
    assert entries(repository) == was


def test_a_box_keeps_nothing_there_by_a_lock(repository: Path) -> None:
    was = entries(repository)
    code = """
import fcntl, os, struct
f = os.open(".git/commondir", os.O_RDONLY)
def lock(kind):
    try:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
        return "done"
    except OSError:
        return "refused"
print(lock(fcntl.F_WRLCK), lock(fcntl.F_RDLCK), flush=True)
import time; time.sleep(60)
"""
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        with box.spawn(["/usr/bin/python3", "-c", code]) as process:
            assert process.stdout.read(12) == b"refused done"
            with Sandbox(SandboxConfig(workspace=repository)) as other:
                assert other.run(["/bin/true"]).ok
    assert entries(repository) == was


@pytest.mark.alone  # any box of this user is the next start
@pytest.mark.parametrize("killed", ["the caller", "the zygote and then the caller"])
def test_what_a_killed_caller_left_is_removed_at_the_next_start(repository: Path, state: Path, tmp_path: Path, killed: str) -> None:
    was = entries(repository)
    other = tmp_path / "other"
    other.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(repository)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        zygote = int(holder.stdout.readline())
        with Sandbox(SandboxConfig(workspace=repository)):
            pass  # a live one keeps it
        assert (repository / ".git" / "commondir").exists()
        if killed.startswith("the zygote"):
            os.kill(zygote, signal.SIGKILL)
    finally:
        holder.kill()
        holder.communicate()
    assert (repository / ".git" / "commondir").exists()
    assert git(repository, "status", "--porcelain", "--ignored") in was
    subprocess.run([sys.executable, "-c", ONE_BOX, str(other)], check=True, timeout=60)
    wait_until(lambda: entries(repository) == was)
    assert not listed(state, repository)


def test_a_list_that_leads_astray_removes_nothing(repository: Path, state: Path, tmp_path: Path) -> None:
    state.mkdir(parents=True, exist_ok=True)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "commondir").write_text("../elsewhere\n")
    (theirs / "hooks").mkdir()
    link = state / ("0" * 32)
    link.symlink_to(theirs)
    try:
        subprocess.run([sys.executable, "-c", ONE_BOX, str(repository)], check=True, timeout=60)
    finally:
        link.unlink()
    assert (theirs / "commondir").read_text() == "../elsewhere\n"
    assert (theirs / "hooks").is_dir()


def test_a_repository_that_cannot_get_what_it_lacks_is_refused(repository: Path) -> None:
    git_directory = repository / ".git"
    held = stubs.Held()
    found = git_directory.stat()
    wanted = Wanted(str(git_directory), found.st_dev, found.st_ino, (found.st_uid, found.st_gid), settings=True, hooks=False)
    (git_directory / "commondir").write_text("../elsewhere\n")
    with pytest.raises(WorkspaceError, match="lacks"):
        held.take([wanted])
    with pytest.raises(WorkspaceError, match="lacks"):
        held.take([wanted._replace(inode=wanted.inode + 1)])
    (git_directory / "commondir").unlink()
    held.take([wanted])  # the control
    assert held.made
    held.release()


def test_a_commondir_that_is_no_file_is_held_as_it_is(repository: Path) -> None:
    os.mkfifo(repository / ".git" / "commondir")
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        assert not box.run(["/bin/rm", ".git/commondir"]).ok
