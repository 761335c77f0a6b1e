"""What a box leaves in its workspace for the git of the host to run: it is found, named, and dealt with as the policy says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.confine.protected.planted import TREES
from ringfence.errors import PlantedError, WorkspaceError
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


BARE = "git init -q --bare store.git && git -C store.git config core.fsmonitor 'touch \"$PWNED\"; false'"


@pytest.mark.parametrize(
    ("script", "target"),
    [
        ("git init -q .", ".git"),
        ("mkdir a && git init -q a/b", "a/b/.git"),
        ("mkdir deep && cd deep && for i in 1 2 3 4 5; do mkdir d; cd d; done; git init -q .", "deep/d/d/d/d/d/.git"),
        (BARE, "store.git"),
        ("mkdir w && cp /dev/null w/HEAD && mkdir w/objects w/refs", "w"),
        ("mkdir w && printf 'ref: refs/heads/x' > w/HEAD && printf ../x > w/commondir", "w"),
        ("mkdir s && ln -s ../elsewhere s/.git", "s/.git"),
        ("mkdir f && echo 'gitdir: ../elsewhere' > f/.git", "f/.git"),
        ("git init -q x && mv x y", "y/.git"),
        ("mkdir half half/.git", "half/.git"),
    ],
)
def test_every_kind_of_repository_is_found_wherever_it_is_put(workspace: Path, script: str, target: str) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert planted(shell(box, "mkdir -p src && echo x > src/HEAD")) == []
        assert planted(shell(box, script)) == [f"{workspace}/{target}"]


def test_what_is_made_bit_by_bit_over_several_runs_is_found_when_it_is_one(workspace: Path) -> None:
    (workspace / "there").mkdir()
    (workspace / "started" / ".git").mkdir(parents=True)
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        for name in ("there", "started/.git"):
            assert planted(shell(box, f"cd {name} && mkdir objects")) == []
            assert planted(shell(box, f"cd {name} && echo 'ref: refs/heads/x' > HEAD")) == []
            assert planted(shell(box, f"cd {name} && mkdir refs")) == [f"{workspace}/{name}"]


def test_what_was_there_before_is_nobodys_plant_and_what_is_gone_after_the_run_is_no_plant(project: Path) -> None:
    (project / "old").mkdir()
    git(project / "old", "init", "-q", ".")
    git(project, "init", "-q", "--bare", "bare.git")
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert planted(shell(box, "git init -q gone && rm -rf gone; git status --short; git gc -q; git commit -qm x --allow-empty "
                                  "--author 'x <x@example.com>' || true")) == []  # fmt: skip
        assert box.planted() == ()
        assert planted(shell(box, "git init -q new")) == [f"{project}/new/.git"]


def test_a_box_over_the_same_workspace_reports_only_what_is_new_since_its_own_beginning(workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace)
    with Sandbox(config) as first:
        shell(first, "git init -q one")
        with Sandbox(config) as second:
            assert planted(shell(second, "git init -q two")) == [f"{workspace}/two/.git"]
        assert planted(shell(first, "true")) == [f"{workspace}/two/.git"]
    with Sandbox(config) as third:
        assert planted(shell(third, "true")) == []
        assert third.planted() == ()


def test_more_new_names_than_the_kernel_remembers_hide_nothing(workspace: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    flood = f"import os\nfor n in range({most} + 10): open(f'd/{{n}}', 'w').close(); os.unlink(f'd/{{n}}')\n"
    (workspace / "d").mkdir()
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert planted(shell(box, f'python3 -c "{flood}" && git init -q a/b/c')) == [f"{workspace}/a/b/c/.git"]


def test_remove_takes_the_repository_away_and_leaves_the_files_beside_it(project: Path, tmp_path: Path, tier: str) -> None:
    with Sandbox(SandboxConfig(workspace=project, tier=tier, on_planted="remove")) as box:
        result = shell(box, GITLINK + f"; cd {project}; " + BARE + "; touch store.git/mine")
        assert set(planted(result)) == {f"{project}/store.git", f"{project}/vendor/lib", f"{project}/vendor/lib/.git"}
        assert not (project / "vendor/lib/.git").exists()
        assert (project / "vendor/lib/f").read_text() == "x\n"
        assert os.listdir(project / "store.git") == ["mine"]
        assert result.denials[1].detail.endswith("removed")
        assert not runs_code(project, tmp_path / "pwned")
        again = shell(box, "git init -q vendor/lib")  # the inode may have the number of the one before
        assert planted(again) == [f"{project}/vendor/lib/.git"]
        assert not (project / "vendor/lib/.git").exists()


def test_nothing_is_removed_under_a_run_that_still_goes_on(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, on_planted="remove")) as box:
        with box.spawn(["/bin/sh", "-c", "git init -q mine && echo up && read word && test -d mine/.git"]) as process:
            assert process.stdout.read(3) == b"up\n"
            result = shell(box, "true")
            assert planted(result) == [f"{workspace}/mine/.git"]
            assert result.denials[0].detail.endswith("to be removed when nothing runs in the box")
            process.stdin.write(b"on\n")
            assert process.wait().exit_code == 0
        assert not (workspace / "mine" / ".git").exists()


def test_refuse_makes_the_result_a_failure_with_the_repository_in_the_error(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, on_planted="refuse")) as box:
        assert shell(box, "true").ok
        result = shell(box, "git init -q vendor")
        assert result.exit_code == 0
        assert not result.ok
        with pytest.raises(PlantedError, match=r"vendor/\.git") as caught:
            result.raise_for_status()
        assert caught.value.result is result
        assert caught.value.denials == result.denials


def test_refuse_ends_the_block_with_an_error_for_what_no_result_has_told(workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace, on_planted="refuse")

    def plant(path: str, error: Exception | None = None) -> None:
        with Sandbox(config) as box:
            box.write_file(path, "gitdir: ../elsewhere")
            if error:
                raise error

    with pytest.raises(PlantedError, match=r"late/\.git") as caught:
        plant("late/.git")
    assert caught.value.result is None
    with pytest.raises(KeyError):  # what the block itself raised is not hidden by it
        plant("later/.git", KeyError())


def test_more_than_anybody_reads_is_counted(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        result = shell(box, "n=0; while [ $n -lt 250 ]; do mkdir r$n; echo x > r$n/.git; n=$((n+1)); done")
        assert len(planted(result)) == 201
        assert result.denials[-1].detail == "one of 50 more that are not told one by one"
        assert len(planted(shell(box, "mkdir more; echo x > more/.git"))) == 1


def test_a_folder_that_was_closed_to_us_hides_nothing(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        result = shell(box, "mkdir d && git init -q d/x && chmod 0 d")
        if os.geteuid() == 0:
            assert planted(result) == [f"{workspace}/d/x/.git"]
        else:
            assert planted(result) == []  # an ordinary thing to do
            assert planted(shell(box, "chmod 700 d")) == [f"{workspace}/d/x/.git"]
            shell(box, "mkdir e && git init -q e/x && chmod 0 e")
            last = box.planted()[-1]
            assert (last.target, last.detail) == (f"{workspace}/e", "a folder that cannot be looked into")
            shell(box, "mkdir f && git init -q f/x && chmod 0 f")
    if os.geteuid():
        assert box.planted()[-1].target == f"{workspace}/f"
        with Sandbox(SandboxConfig(workspace=workspace, on_planted="refuse")) as box:
            assert planted(shell(box, "mkdir g && chmod 0 g")) == [f"{workspace}/g"]
    for closed in workspace.iterdir():
        closed.chmod(0o700)


def test_what_is_too_much_to_look_through_is_told_and_refused_where_that_was_asked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.confine.protected.tree.MAX_ENTRIES", 100)
    make = "mkdir d; n=0; while [ $n -lt 200 ]; do mkdir d/$n; n=$((n+1)); done"
    with Sandbox(SandboxConfig(workspace=workspace, on_planted="refuse")) as box:
        result = shell(box, make)
        assert "too much" in result.denials[0].detail
        assert not result.ok
    with pytest.raises(WorkspaceError, match="too large"):
        Sandbox(SandboxConfig(workspace=workspace, on_planted="remove")).__enter__()
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert "too large to be looked through" in shell(box, "true").notes[-1]


def test_on_a_host_that_tells_of_no_changes_it_is_found_at_the_end_and_after_each_run_where_more_was_asked(workspace: Path) -> None:
    program = f"""
from ringfence.sync import Sandbox, SandboxConfig
for action in ("report", "remove"):
    with Sandbox(SandboxConfig(workspace={str(workspace)!r}, on_planted=action)) as box:
        result = box.run(["git", "init", "-q", action])
        print(len(result.denials), len([note for note in result.notes if "only when the box ends" in note]), end=" ")
    print(len(box.planted()))
"""
    # The limit is of a user namespace (namespaces(7), /proc/sys/user): no instance of inotify for those in it.
    script = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, sys.executable, program], capture_output=True, text=True
    )
    assert done.stdout == "0 1 1\n1 0 1\n", done.stderr
    assert not (workspace / "remove" / ".git").exists()
    assert (workspace / "report" / ".git").exists()


def test_a_fork_of_the_caller_takes_no_event_away(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        shell(box, "true")
        if (child := os.fork()) == 0:
            os._exit(TREES.descriptor != -1)
        assert os.waitpid(child, 0)[1] == 0
        assert planted(shell(box, "git init -q x")) == [f"{workspace}/x/.git"]
