"""git in a box works as outside, over the user's own repository: what is held of it stops no ordinary work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}
ME = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "x"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "x@example.com"),
    # A clone of a submodule from a path of the same host is refused since git 2.38.1 unless it is asked for.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}


def git(folder: Path, *arguments: str) -> str:
    """git on the host, with no settings but the repository's own."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**ENVIRONMENT, **ME}, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("one\n")
    git(folder, "add", "file")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def repository(workspace: Path) -> Path:
    return made(workspace)


@pytest.fixture
def sh(repository: Path) -> Callable[[str], str]:
    """Runs a script in a box over the repository, with -e, and returns what it prints."""

    def run(script: str, **config: object) -> str:
        with Sandbox(SandboxConfig(workspace=repository, environment=ME, **config)) as box:  # type: ignore[arg-type]
            done = box.run(["/bin/sh", "-ec", script], timeout=60)
            assert done.ok, done.stderr
            return done.stdout

    return run


def settings(repository: Path) -> dict[str, bytes]:
    """What of a repository must be the same afterwards."""
    git_directory = repository / ".git"
    files = [git_directory / "config", *sorted((git_directory / "hooks").iterdir())]
    found = {path.name: path.read_bytes() for path in files}
    return found | {name: b"" for name in ("commondir", "config.worktree") if (git_directory / name).exists()}


WORK = {
    "commit": "echo two > two; git add two; git commit -qm two; test -z \"$(git status --short)\"; git log --oneline | wc -l",
    "branches": "git checkout -qb b; git branch -m c; git branch -c d; git branch -D d; git checkout -q main; git branch -d c",
    "tracking": "git clone -q --bare . r.git; git remote add o ./r.git; git fetch -q o; git checkout -q --track -b t o/main;"
    " git push -q o t:u; git pull -q; git remote rename o p; git remote remove p; rm -rf r.git",
    "rebase": "git checkout -qb b; echo b > b; git add b; git commit -qm b; git checkout -q main; echo m > m; git add m;"
    " git commit -qm m; git rebase -q main b; git log --oneline | wc -l",
    "interactive rebase": "echo b > b; git add b; git commit -qm b; GIT_SEQUENCE_EDITOR=true git rebase -qi HEAD~1",
    "merge": "git checkout -qb b; echo b > b; git add b; git commit -qm b; git checkout -q main; git merge -q --no-ff b -m m",
    "stash": "echo two >> file; git stash -q; git stash list; git stash pop -q; git checkout -q file",
    "housekeeping": "git gc -q; git repack -adq; git pack-refs --all; git fsck; git reflog expire --expire=now --all; git prune",
    "worktree": "git worktree add -q wt; cd wt; echo w > w; git add w; git commit -qm w; git status --short; cd ..;"
    " git worktree list; git worktree move wt wt2; git worktree remove wt2; git worktree prune",
    "submodule": "git clone -q . lib; git submodule --quiet add ./lib sub; git commit -qm sub; git submodule status;"
    " git submodule --quiet update --init; git submodule --quiet deinit -f sub; git rm -qf sub; rm -rf lib",
    "settings": "git config a.b c; test \"$(git config a.b)\" = c; git config --unset a.b",
    "sparse checkout": "mkdir d; echo d > d/f; git add d; git commit -qm d; git sparse-checkout set d; git sparse-checkout disable",
    "a new repository": "git init -q r; cd r; git config user.name y; echo a > a; git add a; git commit -qm m; git checkout -qb b;"
    " git stash list; git gc -q; git clone -q . ../r2",
    "again": "git init -q; git init -q --separate-git-dir=other new; git status --short",
    "history": "git tag v1; git notes add -m n; git bisect start; git bisect reset 2>/dev/null;"
    " git checkout -qb b; echo b > b; git add b; git commit -qm b; git checkout -q main; git cherry-pick b;"
    " git revert --no-edit HEAD; git reset -q --hard HEAD~0; git clean -qfd;"
    " git blame file; git describe --tags; git archive HEAD | wc -c",
    "hooks": "printf '#!/bin/sh\\necho ran\\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit;"
    " git commit -q --allow-empty -m m | grep -q ran || git commit --allow-empty -m m 2>&1 | grep ran",
    "moves": "mkdir a b; echo x > a/x; git add a; git mv a/x b/x; git mv b c; git commit -qm moved",
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_git_works_inside_and_the_hosts_settings_stay(repository: Path, sh: Callable[[str], str], name: str) -> None:
    before = settings(repository)
    sh(WORK[name])
    assert settings(repository) == before
    git(repository, "status")
    git(repository, "fsck")


@pytest.mark.parametrize("name", WORK)
def test_the_same_works_without_anything_held(repository: Path, sh: Callable[[str], str], name: str) -> None:
    sh(WORK[name], tier="process")


def test_what_was_committed_inside_is_there_outside(repository: Path, sh: Callable[[str], str]) -> None:
    sh("echo two > two; git add two; git commit -qm 'from inside'; git checkout -qb b")
    assert git(repository, "log", "-1", "--format=%s %an").strip() == "from inside x"
    assert git(repository, "branch", "--show-current").strip() == "b"


def test_git_finds_its_owner_right_for_whoever_makes_the_box(repository: Path, sh: Callable[[str], str]) -> None:
    if os.geteuid() == 0:
        for path in (repository, *repository.rglob("*")):
            os.lchown(path, 4321, 4321)
    (repository / "sub").mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(repository / "sub", 4321, 4321)
    assert "dubious" not in sh("git status; git -C sub log -1; git init -q new; touch new/f; git -C new add .")


def test_hooks_of_the_host_run_inside(repository: Path, sh: Callable[[str], str]) -> None:
    hook = repository / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\necho by the hook > hooked\n")
    hook.chmod(0o755)
    sh("git commit -q --allow-empty -m m")
    assert (repository / "hooked").read_text() == "by the hook\n"


def test_a_linked_worktree_commits_to_its_repository_outside(tmp_path: Path) -> None:
    main = made(tmp_path / "main")
    git(main, "worktree", "add", "-q", "../wt")
    before = settings(main)
    script = "echo a > a; git add a; git commit -qm m; git config x.y z; git log --oneline | head -1; git status --short"
    with Sandbox(SandboxConfig(workspace=tmp_path / "wt", environment=ME)) as box:
        result = box.run(["/bin/sh", "-ec", script]).raise_for_status()
        assert any(str(main / ".git") in note for note in result.notes)
        assert not box.run(["/bin/ls", str(main)]).stdout.strip().startswith("file")  # only its .git is there
    assert settings(main) == before
    assert git(main, "log", "-1", "--format=%s", "wt").strip() == "m"


def test_a_linked_worktree_can_be_read_in_a_box_that_writes_nothing(tmp_path: Path) -> None:
    main = made(tmp_path / "main")
    git(main, "worktree", "add", "-q", "../wt")
    with Sandbox(SandboxConfig(workspace=tmp_path / "wt", mode="read-only")) as box:
        assert box.run(["git", "log", "--oneline"]).raise_for_status().stdout
        assert not box.run(["git", "-c", "user.name=x", "-c", "user.email=x", "commit", "--allow-empty", "-qm", "m"]).ok


def test_a_submodule_as_the_workspace_commits(tmp_path: Path) -> None:
    made(tmp_path / "lib")
    main = made(tmp_path / "main")
    git(main, "submodule", "--quiet", "add", "../lib", "sub")
    git(main, "commit", "-qm", "sub")
    with Sandbox(SandboxConfig(workspace=main / "sub", environment=ME)) as box:
        box.run(["/bin/sh", "-ec", "echo a > a; git add a; git commit -qm inside; git config x.y z"]).raise_for_status()
    assert git(main / "sub", "log", "-1", "--format=%s").strip() == "inside"
    assert "x.y" not in git(main / "sub", "config", "--list")


@pytest.mark.parametrize("act", ["git worktree prune", "git gc -q", "git gc -q --prune=now"])
def test_a_worktree_that_is_not_in_the_box_is_not_pruned_from_it(repository: Path, act: str) -> None:
    git(repository, "worktree", "add", "-q", "../elsewhere")
    elsewhere = repository.parent / "elsewhere"
    (elsewhere / "staged").write_text("x")
    git(elsewhere, "add", "staged")
    for path in (repository / ".git" / "worktrees" / "elsewhere").iterdir():
        os.utime(path, (0, 0))  # old enough for gc too
    with Sandbox(SandboxConfig(workspace=repository, environment=ME)) as box:
        done = box.run(["/bin/sh", "-c", f"git worktree add -q inside && {act} && git worktree list"], timeout=60)
        assert done.ok and "inside" in done.stdout, done.stderr
    assert git(elsewhere, "status", "--short") == "A  staged\n"
    git(repository, "fsck")
