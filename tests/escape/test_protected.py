"""Attempts of a box to make something outside run what it wrote: git's settings and hooks, and their parent folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ringfence.errors import ConfigError, RingfenceError, WorkspaceError
from ringfence.outcome import Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

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


RUN = '#!/bin/sh\ntouch "$PWD/ran"\n'
EVIL = "mkdir -p evil/objects evil/refs; cp .git/HEAD evil; printf '[core]\\nfsmonitor = ./run\\nbare = false\\n' > evil/config;"


def with_run(repository: Path) -> Path:
    """A program in the repository that leaves a mark where it ran."""
    (repository / "run").write_text(RUN)
    (repository / "run").chmod(0o755)
    return repository


def ran(repository: Path) -> bool:
    return (repository / "ran").exists()


# What a box does, after what the host did; git status on the host must run nothing of it.
REDIRECTIONS = {
    "a common folder": ("", EVIL + "echo ../evil > .git/commondir"),
    "a common folder by a rename": ("", EVIL + "echo ../evil > x; mv x .git/commondir"),
    "a common folder by a link": ("", EVIL + "echo ../evil > x; ln -sf ../x .git/commondir"),
    "settings of the worktree": (
        "git config extensions.worktreeConfig true",
        "printf '[core]\\nfsmonitor = ./run\\n' > .git/config.worktree",
    ),
    "settings of the worktree that are there": (
        "git config extensions.worktreeConfig true; git config --worktree a.b c",
        "printf '[core]\\nfsmonitor = ./run\\n' >> .git/config.worktree",
    ),
    "an included file": ("git config include.path ../more; touch more", "printf '[core]\\nfsmonitor = ./run\\n' > more"),
    "an included file of an included file": (
        "git config include.path ../more; mkdir d; printf '[include]\\npath = d/last\\n' > more; touch d/last",
        "mv d e; mkdir d; printf '[core]\\nfsmonitor = ./run\\n' > d/last",
    ),
    "an included file by a condition": (
        "git config includeIf.gitdir:/.path ../more; touch more",
        "printf '[core]\\nfsmonitor = ./run\\n' > more",
    ),
    "a program that the settings name": (
        "printf '#!/bin/sh\\n' > watcher; chmod +x watcher; git config core.fsmonitor ./watcher",
        "cp run watcher",
    ),
    "a hooks folder in the tree": ("mkdir .hooks; git config core.hooksPath .hooks", "cp run .hooks/post-index-change; touch file"),
    "a hooks folder that is not there": (
        "git config core.hooksPath .hooks",
        "mkdir .hooks; cp run .hooks/post-index-change; touch file",
    ),
    "a link among the hooks": (
        "cp file hook; ln -s ../../hook .git/hooks/post-index-change",
        "rm -f hook; cp run hook; touch file",
    ),
    "hooks where there are none": ("rm -rf .git/hooks", "mkdir .git/hooks; cp run .git/hooks/post-index-change; touch file"),
    "a link to the hooks": (
        "rm -rf .git/hooks; mkdir hooks; ln -s ../hooks .git/hooks",
        "cp run hooks/post-index-change; touch file",
    ),
    "a link to the settings": ("mv .git/config c; ln -s ../c .git/config", "printf '[core]\\nfsmonitor = ./run\\n' >> c"),
    "a link to the settings, exchanged": (
        "mv .git/config c; ln -s ../c .git/config",
        "cp c d; printf '[core]\\nfsmonitor = ./run\\n' >> d; rm -f .git/config; ln -s ../d .git/config",
    ),
    "a link to the repository": (
        "mv .git repo; ln -s repo .git",
        "rm -f .git; cp -r repo other; ln -s other .git; printf '[core]\\nfsmonitor = ./run\\n' >> other/config",
    ),
    "the file of a separate repository": (
        "git init -q --separate-git-dir=repo",
        "cp -r repo other; printf '[core]\\nfsmonitor = ./run\\n' >> other/config; echo gitdir: other > x; mv x .git;"
        " echo gitdir: other > .git",
    ),
    "the settings of a separate repository": (
        "git init -q --separate-git-dir=repo",
        "printf '[core]\\nfsmonitor = ./run\\n' >> repo/config",
    ),
}


@pytest.mark.parametrize("name", REDIRECTIONS)
def test_no_redirection_of_gits_settings_is_followed_by_git_outside(repository: Path, name: str, tier: str) -> None:
    before, inside = REDIRECTIONS[name]
    with_run(repository)
    subprocess.run(["/bin/sh", "-ec", before], cwd=repository, env=ENVIRONMENT, check=True, timeout=30)
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        box.run(["/bin/sh", "-c", inside])
        if tier == "namespaces":
            git(repository, "status")
            assert not ran(repository)
    git(repository, "status")
    assert ran(repository) is (tier == "process")


NESTED = {
    "the settings of a submodule": "printf '[core]\\nfsmonitor = ../run\\n' >> .git/modules/sub/config",
    "the folder of a submodule's settings": "cp -r .git/modules m; printf '[core]\\nfsmonitor = ../run\\n' >> m/sub/config;"
    " mv .git/modules n; mv m .git/modules",
    "the link of a submodule": "cp -r .git/modules/sub m; printf '[core]\\nfsmonitor = ../run\\nworktree = ../sub\\n' >> m/config;"
    " echo gitdir: ../m > sub/.git",
    "the folder of a submodule": "cp -r .git/modules/sub m; printf '[core]\\nfsmonitor = ../run\\nworktree=../sub\\n' >> m/config;"
    " mv sub sub2; mkdir sub; echo gitdir: ../m > sub/.git",
    "a common folder of a submodule": "cp -r .git/modules/sub m; printf '[core]\\nfsmonitor = ../run\\n' >> m/config;"
    " echo ../../../m > .git/modules/sub/commondir",
}


@pytest.mark.parametrize("name", NESTED)
def test_no_submodule_makes_git_outside_run_anything(repository: Path, name: str, tier: str) -> None:
    with_run(repository)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "sub")
    git(repository, "commit", "-qm", "sub")
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        box.run(["/bin/sh", "-c", NESTED[name]])
    for folder in (repository, repository / "sub"):  # it may be broken, as anything that a box may write
        subprocess.run(["git", "status"], cwd=folder, env=ENVIRONMENT, capture_output=True, timeout=30, check=False)
    assert bool([*repository.rglob("ran")]) is (tier == "process")


def test_a_linked_worktree_of_the_repository_keeps_its_way_back(repository: Path, tier: str) -> None:
    with_run(repository)
    git(repository, "worktree", "add", "-q", "wt")
    act = (
        EVIL + "echo ../../../evil > .git/worktrees/wt/commondir; cp -r .git/worktrees w; mv .git/worktrees x; mv w .git/worktrees"
    )
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        box.run(["/bin/sh", "-c", act.replace("./run", "../run")])
    subprocess.run(["git", "status"], cwd=repository / "wt", env=ENVIRONMENT, capture_output=True, timeout=30, check=False)
    assert bool([*repository.rglob("ran")]) is (tier == "process")


def test_a_repository_further_in_is_held_like_the_one_at_the_top(repository: Path, tier: str) -> None:
    with_run(repository)
    git(repository, "clone", "-q", ".", "vendor/lib")
    act = "printf '[core]\\nfsmonitor = ../../run\\n' >> vendor/lib/.git/config;"
    act += "mv vendor v2; cp -r v2 vendor; printf '[core]\\nfsmonitor = ../../run\\n' >> vendor/lib/.git/config"
    with Sandbox(SandboxConfig(workspace=repository, tier=tier)) as box:
        box.run(["/bin/sh", "-c", act])
    git(repository / "vendor" / "lib", "status")
    assert bool([*repository.rglob("ran")]) is (tier == "process")


SETTINGS = {
    ".vscode": "tasks.json",
    ".envrc": "",
    ".mcp.json": "",
    ".claude": "settings.json",
    ".idea": "workspace.xml",
    ".bashrc": "",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_something_outside_would_run_are_not_changed(workspace: Path, name: str, tier: str) -> None:
    path = workspace / name
    if inner := SETTINGS[name]:
        path.mkdir()
        path /= inner
    path.write_text("as it was\n")
    acts = f"echo changed >> '{path}'; echo changed > x; mv -f x '{path}'; cd '{workspace}'; mv {name} y; rm -rf y {name}"
    with Sandbox(SandboxConfig(workspace=workspace, tier=tier)) as box:
        box.run(["/bin/sh", "-c", acts])
        assert box.run(["/bin/cat", str(path)]).ok is (tier == "namespaces")
    assert (path.exists() and path.read_text() == "as it was\n") is (tier == "namespaces")


def test_a_name_that_the_config_opens_is_open(workspace: Path) -> None:
    (workspace / ".vscode").mkdir()
    (workspace / ".envrc").write_text("")
    with Sandbox(SandboxConfig(workspace=workspace, writable=[".vscode", ".envrc"])) as box:
        assert box.run(["/bin/sh", "-ec", "echo x > .vscode/settings.json; echo x > .envrc"]).ok
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert not box.run(["/bin/sh", "-ec", "echo y > .vscode/settings.json"]).ok


def test_what_protect_names_is_read_and_not_written(repository: Path) -> None:
    (repository / "cfg").mkdir()
    (repository / "cfg" / "a.lock").write_text("1")
    (repository / "real").mkdir()
    (repository / "real" / "x").write_text("1")
    (repository / "behind").symlink_to("real")
    protect = ["**/*.lock", "behind/x", ".git/hooks", ".git/config", "gone/deeper"]
    with Sandbox(SandboxConfig(workspace=repository, protect=protect)) as box:
        for path in ("cfg/a.lock", "behind/x", "real/x", ".git/config"):
            assert attempt(box, f"say(open, '{path}', 'a')") == "EROFS"
            assert attempt(box, f"say(open, '{path}')") == "done"
        assert attempt(box, "say(open, '.git/hooks/x', 'w')") == "EROFS"
        assert attempt(box, "say(os.rename, 'real', 'r2')") == attempt(box, "say(os.unlink, 'behind')") == "EBUSY"
        assert attempt(box, "say(open, 'cfg/b', 'w')") == "done"  # the control
        assert not box.run(["git", "config", "a.b", "c"]).ok


def test_no_box_writes_the_policy_file_that_governs_it(workspace: Path) -> None:
    policy = workspace / "policy.yaml"
    policy.write_text("version: 1\n")
    limits = SandboxLimits(memory_bytes=None)  # which a policy file has to say for this version
    with Sandbox(SandboxConfig(workspace=workspace, policy_files=[str(policy)], limits=limits)) as box:
        assert attempt(box, "say(open, 'policy.yaml', 'a')") == "EROFS"
        assert attempt(box, "say(os.unlink, 'policy.yaml')") == "EBUSY"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert attempt(box, "say(open, 'policy.yaml', 'a')") == "done"  # the control


def test_protect_does_not_name_what_the_box_is_for(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="protect"), Sandbox(SandboxConfig(workspace=workspace, protect=["."])):
        pass


def test_links_out_of_the_workspace_are_held_and_never_followed(tmp_path: Path, workspace: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "bashrc").write_text("outside\n")
    for name, target in (
        (".bashrc", outside / "bashrc"),
        (".profile", tmp_path / "missing"),
        (".vscode", outside),
        (".git", outside),
    ):
        (workspace / name).symlink_to(target)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["/bin/true"]).ok
        for name in (".bashrc", ".profile", ".vscode"):
            assert attempt(box, f"say(os.unlink, '{name}')") == "EBUSY"
            assert attempt(box, f"say(open, '{name}')") == "ENOENT"  # where it leads is not in the box
            attempt(box, f"say(open, '{name}', 'w')")  # at most in the private /tmp
    assert (outside / "bashrc").read_text() == "outside\n"
    assert not (tmp_path / "missing").exists()


def test_a_link_that_leads_nowhere_or_round_stops_nothing(workspace: Path) -> None:
    (workspace / ".vscode").symlink_to(".vscode")
    (workspace / ".idea").symlink_to("a/b/../c")
    (workspace / ".envrc").symlink_to("later")
    (workspace / ".git").write_text("gitdir: /nowhere/at/all\n")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["/bin/true"]).ok
        assert attempt(box, "say(os.unlink, '.vscode')") == "EBUSY"
        assert attempt(box, "say(open, '.git', 'a')") == "EROFS"


@pytest.mark.parametrize("claim", ["the repository of another project", "a worktree that another one has"])
def test_a_link_that_a_box_wrote_gives_no_box_a_repository(tmp_path: Path, workspace: Path, claim: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "file").write_text("")
    git(other, "add", "file")
    git(other, "commit", "-qm", "one")
    git(other, "worktree", "add", "-q", "../wt")
    leads = other / ".git" if claim.startswith("the") else other / ".git" / "worktrees" / "wt"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["/bin/sh", "-c", f"echo gitdir: {leads} > .git"]).ok
    (workspace / ".git").write_text(f"gitdir: {leads}\n")  # whatever became of it
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert not box.run(["/bin/ls", str(other)]).ok
        assert any(str(other) in note for note in box.run(["/bin/true"]).notes)
    with Sandbox(SandboxConfig(workspace=tmp_path / "wt")) as box:  # the control: whose worktree it is
        assert box.run(["git", "log", "-1"]).ok


def test_a_folder_of_a_repository_that_lies_around_it_says_that_git_does_not_work_there(repository: Path) -> None:
    inner = repository / "part"
    inner.mkdir(exist_ok=True)
    inner.chmod(0o777)
    said = f"git does not work in {inner}: its repository {repository} lies around it"
    with Sandbox(SandboxConfig(workspace=inner)) as box:
        result = box.run(["git", "status"])
        assert not result.ok and any(note.startswith(said) for note in result.notes)
    with Sandbox(SandboxConfig(workspace=repository)) as box:  # the control
        result = box.run(["git", "-C", "part", "status"])
        assert result.ok and not any("git does not work" in note for note in result.notes)


def test_what_a_policy_holds_is_on_the_plan_and_the_enforcement(repository: Path) -> None:
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        protected = {each.path: each for each in box._open().prepared.plan.protected}
        lines = "\n".join(box._open().prepared.plan.describe())
        assert box.enforcement.protected.level is Level.PARTIAL
    git_directory = f"{repository}/.git"
    assert protected[git_directory].how == "pin"
    assert protected[f"{git_directory}/config"].how == protected[f"{git_directory}/hooks"].how == "private"
    assert protected[f"{repository}/.vscode"].how == "watch"
    assert f"pin {git_directory}: cannot be renamed" in lines
    with Sandbox(SandboxConfig(workspace=repository, mode="read-only")) as box:
        assert not box._open().prepared.plan.protected
        assert box.enforcement.protected.level is Level.FULL
    with Sandbox(SandboxConfig(workspace=repository, tier="process")) as box:
        assert box.enforcement.protected.level is Level.NONE


ALIASES = {
    ".git/hooks/pre-commit": "the hooks",
    ".vscode/tasks.json": "a folder of settings",
    ".envrc": "a file of settings",
    ".git/modules/sub/config": "the settings of a submodule",
}


@pytest.mark.parametrize("path", ALIASES)
def test_no_protected_file_has_a_second_name_that_a_box_could_write(repository: Path, path: str) -> None:
    if "modules" in path:
        git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "sub")
    protected = repository / path
    protected.parent.mkdir(exist_ok=True)
    protected.touch()
    os.link(protected, repository / "innocent")
    with pytest.raises(WorkspaceError, match="2 names"), Sandbox(SandboxConfig(workspace=repository)):
        pass
    with Sandbox(SandboxConfig(workspace=repository, mode="read-only")) as box:  # the control: there it is no way in
        assert box.run(["/bin/true"]).ok


def test_hooks_in_the_worktree_itself_are_held_one_by_one(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", ".")
    (repository / "pre-push").write_text("#!/bin/sh\n")
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        watched = {each.path for each in box._open().prepared.plan.protected if each.how == "watch"}
        assert f"{repository}/post-index-change" in watched
        assert attempt(box, "say(open, 'pre-push', 'a')") == "EROFS"
        assert attempt(box, "say(open, 'other', 'a')") == "done"  # the control


def test_what_may_not_be_read_is_covered_rather_than_copied(repository: Path) -> None:
    secret = repository / ".git" / "hooks" / "token"
    secret.write_text("secret")
    for deny in ([".git/hooks/token"], [".git/config"], [".git/hooks"]):
        with Sandbox(SandboxConfig(workspace=repository, deny=deny)) as box:
            assert box.run(["/bin/true"]).ok
            assert attempt(box, f"say(open, '{deny[0]}')") == "EACCES"
            assert (
                "secret" not in box.run(["/bin/sh", "-c", "cat /.ringfence/copies/*/*/* .git/hooks/*"]).stdout
                or "config" in deny[0]
            )


def test_a_file_of_another_owner_is_not_copied_to_who_may_not_read_it(repository: Path) -> None:
    config = repository / ".git" / "config"
    if os.geteuid() != 0:  # who can give no file away
        assert config.stat().st_uid == os.getuid()
        return
    for path in (repository, *repository.rglob("*")):
        os.lchown(path, 4321, 4321)
    os.chown(config, 0, 0)
    config.chmod(0o600)
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        assert attempt(box, "say(open, '.git/config')") == "EACCES"
        assert "core" not in box.run(["/bin/sh", "-c", "cat /.ringfence/copies/*/config"]).stdout
    config.chmod(0o644)
    with Sandbox(SandboxConfig(workspace=repository)) as box:
        assert attempt(box, "say(open, '.git/config')") == "done"  # the control


RACE = """
import os, time
until = time.monotonic() + 6
while time.monotonic() < until:
    for name in ('.git/config', '.git/hooks', '.vscode', 'sub'):
        try:
            os.rename(name, name + '.x')
            os.symlink('/etc', name) if os.path.isdir(name + '.x') else os.symlink('/etc/shadow', name)
            os.unlink(name)
            os.rename(name + '.x', name)
        except OSError:
            pass
"""


def test_a_box_made_while_its_paths_are_exchanged_is_right_or_is_not_made(repository: Path) -> None:
    git(repository, "clone", "-q", ".", "sub")
    (repository / ".vscode").mkdir()
    with (
        Sandbox(SandboxConfig(workspace=repository, tier="process")) as racer,
        racer.spawn(["/usr/bin/python3", "-c", RACE]) as racing,
    ):
        made = refused = 0
        while made + refused < 25:
            try:
                with Sandbox(SandboxConfig(workspace=repository)) as box:
                    made += 1
                    seen = box.run(["/bin/sh", "-c", "cat /.ringfence/copies/*/config; ls /.ringfence/copies/*/hooks/"]).stdout
                    assert "root:" not in seen and "passwd" not in seen
            except RingfenceError:
                refused += 1
        racing.kill()
        racing.wait()
    assert made + refused == 25


def test_a_folder_that_the_config_opens_inside_one_that_is_held_is_open_and_looked_into(repository: Path) -> None:
    inner = repository / ".claude" / "worktrees"
    inner.mkdir(parents=True)
    git(repository, "worktree", "add", "-q", ".claude/worktrees/wt")
    git(repository, "clone", "-q", ".", ".claude/worktrees/clone")
    with Sandbox(SandboxConfig(workspace=repository, writable=[".claude/worktrees"])) as box:
        assert attempt(box, "say(open, '.claude/worktrees/wt/new', 'w')") == "done"
        assert attempt(box, "say(open, '.claude/settings.json', 'w')") == "EROFS"
        assert attempt(box, "say(open, '.claude/worktrees/wt/.git', 'a')") == "EROFS"
        assert attempt(box, "say(os.rename, '.claude/worktrees/clone/.git', '.claude/worktrees/clone/x')") == "EBUSY"
        assert box.run(["git", "-C", ".claude/worktrees/wt", "status"]).ok


def test_more_than_can_be_held_is_refused_by_name(repository: Path) -> None:
    worktrees = repository / ".git" / "worktrees"
    worktrees.mkdir()
    for number in range(1001):
        (worktrees / str(number)).mkdir()
    with pytest.raises(WorkspaceError, match="1001 linked worktrees"), Sandbox(SandboxConfig(workspace=repository)):
        pass
    (worktrees / "0").rmdir()
    assert not [*repository.glob(".git/commondir")]
