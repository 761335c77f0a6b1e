"""Attempts of a box to make something outside run what it wrote: git's settings and hooks, and their parent folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ringfence.errors import WorkspaceError
from ringfence.sync import Sandbox, SandboxConfig

IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@example.com")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

ATTEMPT = """
import errno, os, sys
def say(call, *arguments):
    try:
        call(*arguments)
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def git(folder: Path, *arguments: str) -> str:
    """git on the host, with no settings but the repository's own."""
    done = subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A repository with one commit as the workspace."""
    git(workspace, "init", "-q")
    (workspace / "file").write_text("one\n")
    git(workspace, "add", "file")
    git(workspace, "commit", "-qm", "one")
    return workspace


def attempt(box: Sandbox, code: str) -> str:
    """What an attempt made inside came to: 'done', or the name of the error."""
    done = box.run(["/usr/bin/python3", "-c", ATTEMPT + code])
    assert done.ok, done.stderr
    return done.stdout.strip()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


MOVES = {
    "rename the repository": "say(os.rename, '.git', 'g2')",
    "rename its settings": "say(os.rename, '.git/config', '.git/c2')",
    "remove its settings": "say(os.unlink, '.git/config')",
    "rename over its settings": "open('.git/x', 'w').close(); say(os.rename, '.git/x', '.git/config')",
    "rename its hooks": "say(os.rename, '.git/hooks', '.git/h2')",
    "rename over its hooks": "os.mkdir('.git/x'); say(os.rename, '.git/x', '.git/hooks')",
    "exchange it": "import ctypes; os.mkdir('g2'); libc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.renameat2(-100, b'.git', -100, b'g2', 2) == 0: print('done')\n"
    "else: print(errno.errorcode[ctypes.get_errno()])",
}


@pytest.mark.parametrize("name", MOVES)
def test_a_repository_its_settings_and_hooks_are_not_moved_away(repository: Path, name: str, tier: str) -> None:
    if "hooks" in name:  # a folder is renamed only over an empty one
        for hook in (repository / ".git" / "hooks").iterdir():
            hook.unlink()
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        expected = "EBUSY" if tier == "namespaces" else "done"
        assert attempt(box, MOVES[name]) == expected


@pytest.mark.parametrize("how", ["git config core.fsmonitor ./run", "printf '[core]\\nfsmonitor = ./run\\n' >> .git/config"])
def test_what_a_box_sets_in_git_is_run_by_no_git_of_the_host(repository: Path, how: str, tier: str) -> None:
    (repository / "run").write_text('#!/bin/sh\ntouch "$PWD/ran"\n')
    (repository / "run").chmod(0o755)
    before = (repository / ".git" / "config").read_bytes()
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        assert box.run(["/bin/sh", "-c", f"{how} && git config core.fsmonitor"]).stdout.strip() == "./run"
    git(repository, "status")
    confined = tier == "namespaces"
    assert (repository / "ran").exists() is not confined
    assert ((repository / ".git" / "config").read_bytes() == before) is confined


@pytest.mark.parametrize(
    "how",
    [
        "cp run .git/hooks/post-commit",
        "mv .git g2; cp -r g2 .git; cp run .git/hooks/post-commit",
        "rm -rf .git/hooks; mkdir .git/hooks; cp run .git/hooks/post-commit",
    ],
)
def test_a_hook_that_a_box_makes_is_run_by_no_git_of_the_host(repository: Path, how: str, tier: str) -> None:
    (repository / "run").write_text('#!/bin/sh\ntouch "$PWD/ran"\n')
    (repository / "run").chmod(0o755)
    before = content(repository / ".git" / "hooks")
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        box.run(["/bin/sh", "-c", how])
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    confined = tier == "namespaces"
    assert (repository / "ran").exists() is not confined
    assert (content(repository / ".git" / "hooks") == before) is confined


def test_nothing_is_mounted_over_or_taken_off_from_inside(repository: Path) -> None:
    act = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "for call in (lambda: libc.umount2(b'.git/config', 2), lambda: libc.mount(b'/tmp', b'.git/hooks', None, 4096, None)):\n"
        "    print(errno.errorcode[ctypes.get_errno()] if call() else 'done')"
    )
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        assert set(attempt(box, act).split()) <= {"EPERM", "ENOSYS"}


def test_a_protected_file_of_two_names_is_refused_with_the_way_round(repository: Path) -> None:
    os.link(repository / ".git" / "config", repository / "innocent")
    with pytest.raises(WorkspaceError, match="2 names") as caught, Sandbox(SandboxConfig(workspace=repository)):
        pass
    assert caught.value.hint
    os.unlink(repository / "innocent")
    with Sandbox(SandboxConfig(workspace=repository)) as box:  # the control
        assert box.run(["/bin/true"]).ok


def test_a_hard_link_made_inside_gives_no_way_to_a_protected_file(repository: Path) -> None:
    before = content(repository / ".git" / "hooks")
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        assert attempt(box, "say(os.link, '.git/hooks/pre-commit.sample', 'alias')") in ("EXDEV", "ENOENT")
        assert attempt(box, "say(os.link, 'file', 'alias')") == "done"  # the control
        box.run(["/bin/sh", "-c", "ln .git/config alias2; echo '[x]' >> alias2"])
    assert content(repository / ".git" / "hooks") == before
