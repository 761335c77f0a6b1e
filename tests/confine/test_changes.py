"""What a box changed in its own git settings and hooks is shown, and of it only what nobody runs can be taken over."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.confine.protected.changes import shown
from ringfence.confine.protected.harmless import is_harmless, offered, take_over
from ringfence.errors import ArgumentError, HostError
from ringfence.outcome import Change, lines_of
from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def project(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=workspace, check=True)
    return workspace


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def shell(box: Sandbox, script: str) -> None:
    result = box.run(["/bin/sh", "-ec", script])
    assert result.ok, result.stderr


SETTINGS = """
git remote add origin https://example.com/x.git
git config user.name 'A "quoted" \\\\ name; # not a comment'
git config branch.main.remote origin
git config branch.main.merge refs/heads/main
git config branch.main.pushRemote origin
git config core.fsmonitor 'touch pwned'
git config remote.evil.url 'ext::sh -c touch% pwned'
git config branch.main.description 'x'
git config url.https://example.org/.insteadOf https://example.com/
"""


def test_the_changes_are_shown_and_the_hosts_files_are_as_they_were(project: Path) -> None:
    before = (project / ".git/config").read_bytes()
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert box.changes() == ()
        shell(box, SETTINGS + "echo 'exit 1' > .git/hooks/pre-commit; ln -s /etc/passwd .git/hooks/post-commit")
        changes = {os.path.relpath(change.path, project): change for change in box.changes()}
        assert set(changes) == {".git/config", ".git/hooks/pre-commit", ".git/hooks/post-commit"}
        assert "+\tfsmonitor = touch pwned\n" in changes[".git/config"].diff
        assert changes[".git/hooks/pre-commit"].diff.endswith("+exit 1\n")
        assert changes[".git/hooks/post-commit"].diff == "a link to /etc/passwd\n"
    assert (project / ".git/config").read_bytes() == before


def test_hooks_that_git_brings_again_and_never_runs_are_no_change(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        shell(box, "git init -q . && ls .git/hooks/pre-commit.sample")
        assert [os.path.relpath(change.path, project) for change in box.changes()] in ([], [".git/config"])
        shell(box, "cp .git/hooks/pre-commit.sample .git/hooks/pre-commit")
        assert f"{project}/.git/hooks/pre-commit" in [change.path for change in box.changes()]


def test_harmless_settings_are_offered_and_git_reads_what_was_taken_over_as_the_box_had_it(project: Path) -> None:
    with Sandbox(SandboxConfig(workspace=project)) as box:
        shell(box, SETTINGS)
        keys = [key for change in box.changes() for key, _ in change.offered]
        assert set(keys) == {
            *("remote.origin.url", "remote.origin.fetch", "user.name"),
            *("branch.main.remote", "branch.main.merge", "branch.main.pushremote"),
        }
        with pytest.raises(ArgumentError, match="fsmonitor"):
            box.apply_changes(["core.fsmonitor"])
        assert box.apply_changes(["user.name"]) == [f"{project}/.git/config"]
        result = box.run(["git", "config", "user.name"])
        assert result.denials == ()  # the file is the same, so its mount did not come off
    assert box.apply_changes([key for key in keys if key != "user.name"])
    assert git(project, "config", "user.name") == 'A "quoted" \\\\ name; # not a comment\n'
    assert git(project, "config", "remote.origin.fetch") == "+refs/heads/*:refs/remotes/origin/*\n"
    assert git(project, "config", "branch.main.pushRemote") == "origin\n"
    assert "fsmonitor" not in git(project, "config", "--list")
    assert not (project / ".git/config.lock").exists()


def test_what_the_host_has_already_is_not_offered(project: Path) -> None:
    git(project, "remote", "add", "origin", "https://example.com/mine.git")
    with Sandbox(SandboxConfig(workspace=project)) as box:
        shell(box, "git remote set-url origin https://example.org/theirs.git")
        (change,) = box.changes()
        assert "+\turl = https://example.org/theirs.git" in change.diff
        assert change.offered == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user.name", "A B"),
        ("user.email", "a@example.com"),
        ("remote.origin.url", "https://example.com/x.git"),
        ("remote.origin.url", "https://a@example.com:8443/x/y.git"),
        ("remote.origin.url", "ssh://git@example.com/x.git"),
        ("remote.origin.url", "git@example.com:x/y.git"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("branch.a/b.remote", "origin"),
        ("branch.a.remote", "."),
        ("branch.a.merge", "refs/heads/a/b"),
        ("branch.a.rebase", "merges"),
    ],
)
def test_these_are_harmless(key: str, value: str) -> None:
    assert is_harmless(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "true"),
        ("core.hookspath", "x"),
        ("core.sshcommand", "x"),
        ("user.signingkey", "x"),
        ("user.name", "a\nb"),
        ("user.name", "\x1b[2J"),
        ("user.name", "-x"),
        ("remote.origin.url", "ext::sh -c touch% pwned"),
        ("remote.origin.url", "https://-oProxyCommand=x/y"),
        ("remote.origin.url", "ssh://-oProxyCommand=x/y"),
        ("remote.origin.url", "-oProxyCommand@example.com:x"),
        ("remote.origin.url", "git@-oProxyCommand=x:y"),
        ("remote.origin.url", "--upload-pack=x"),
        ("remote.origin.url", "/tmp/evil"),
        ("remote.origin.url", "../evil"),
        ("remote.origin.url", "file:///tmp/evil"),
        ("remote.origin.url", "fd::3"),
        ("remote.origin.url", "https://example.com/x\n[core]"),
        ("remote.origin.url", "https::https://example.com"),
        ("remote.origin.pushurl", "https://example.com/x"),
        ("remote.origin.fetch", "+refs/heads/*:refs/heads/*"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/other/*"),
        ("remote.origin.uploadpack", "x"),
        ("remote.origin.receivepack", "x"),
        ("remote.origin.proxy", "x"),
        ("remote.origin.vcs", "x"),
        ("remote.-x.url", "https://example.com/x"),
        ("remote.x/y.url", "https://example.com/x"),
        ('remote.x"]\n[core.url', "https://example.com/x"),
        ("branch.a.remote", "ext::x"),
        ("branch.a.remote", "../evil"),
        ("branch.a.pushremote", "/tmp/evil"),
        ("branch.a.merge", "refs/tags/x"),
        ("branch.a.merge", "refs/heads/../../x"),
        ("branch.a.rebase", "interactive"),
        ("branch.a.description", "x"),
        ("url.https://example.org/.insteadof", "https://example.com/"),
        ("include.path", "x"),
        ("alias.x", "!x"),
    ],
)
def test_these_are_not(key: str, value: str) -> None:
    assert not is_harmless(key, value)


def test_a_branch_is_offered_only_with_a_remote_that_there_is(project: Path) -> None:
    branch = b'[branch "a"]\n\tremote = other\n'
    assert offered(b"", branch) == ()
    assert offered(b'[remote "other"]\n\turl = https://example.com/x\n', branch) == (("branch.a.remote", "other"),)
    bad = b'[remote "other"]\n\turl = https://example.com/x\n\turl = ext::x\n'
    assert offered(b"", bad) == ()  # the one of two values alone would mean something else


@given(st.binary(max_size=400))
def test_no_settings_of_a_box_offer_what_is_not_harmless(content: bytes) -> None:
    assert all(is_harmless(key, value) for key, value in offered(b"", b"[user]\n" + content))


def test_a_lock_of_another_program_is_respected_and_a_link_is_not_written_through(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.confine.protected.harmless.LOCK_SECONDS", 0.1)
    config, lock = project / ".git/config", project / ".git/config.lock"
    before = config.read_bytes()
    lock.touch()
    with pytest.raises(HostError, match=r"config\.lock"):
        take_over(str(config), [("user.name", "x")])
    assert lock.exists()
    lock.unlink()
    victim = tmp_path / "victim"
    victim.write_text("keep")
    config.unlink()
    config.symlink_to(victim)
    with pytest.raises(HostError):
        take_over(str(config), [("user.name", "x")])
    assert victim.read_text() == "keep"
    assert not lock.exists()
    config.unlink()
    config.write_bytes(before.rstrip(b"\n"))
    take_over(str(config), [("user.name", "x")])
    assert git(project, "config", "user.name") == "x\n"
    assert git(project, "config", "core.bare") == "false\n"


def test_what_a_terminal_would_act_on_is_spelled_out() -> None:
    assert shown("a\x1b[2J\u202eb\tc\n") == "a\\x1b[2J\\u202eb\tc\n"
    change = Change("/x/.git/config", "", (("user.name", "x"),))
    assert lines_of([change]) == [
        "/x/.git/config was changed in the box only; the host's is as it was",
        "may be taken over: user.name",
    ]
    assert lines_of([]) == []


def test_a_box_that_fills_its_copies_is_refused_an_answer_by_name(project: Path) -> None:
    from ringfence.errors import PathError

    with Sandbox(SandboxConfig(workspace=project)) as box:
        shell(box, "head -c 6000000 /dev/zero > .git/hooks/large")
        with pytest.raises(PathError):
            box.changes()
        shell(box, "rm .git/hooks/large; head -c 100000 /dev/zero > .git/hooks/zero; mkfifo .git/hooks/fifo")
        (change,) = box.changes()
        assert "too large to be shown" in change.diff
