"""Copies of trees that a box may have written: nothing of them leads out, nothing in them runs on the host, nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import Verification
from ringfence.agent.verification import copies, environments

pytestmark = pytest.mark.live("namespaces")
PATCH = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n"


def git(tree: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", tree, *identity, *arguments], capture_output=True, check=False)


def copied(source: Path, tmp_path: Path) -> Path:
    copying = copies.Copying(str(source), str(tmp_path / "copy"))
    copying.run()
    for venv in copying.venvs:
        environments.move(venv, str(source), str(tmp_path / "copy"))
    return tmp_path / "copy"


@pytest.mark.parametrize("how", ["fsmonitor", "hooks"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # two programs outside, and one call
async def test_git_that_applies_a_patch_runs_nothing_of_the_tree_on_the_host(
    how: str, workspace: Path, tmp_path: Path, anyio_backend: str
) -> None:
    marker = tmp_path / "PWNED"
    git(workspace, "init", "-q")
    (workspace / "file").write_text("one\n")
    git(workspace, "add", "file")
    planted = workspace / "planted"
    planted.mkdir()
    for name in ("monitor", "post-index-change", "pre-commit", "post-applypatch", "applypatch-msg"):
        (planted / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (planted / name).chmod(0o755)
    git(workspace, "config", *(("core.fsmonitor", "planted/monitor") if how == "fsmonitor" else ("core.hooksPath", "planted")))
    marker.unlink(missing_ok=True)
    for gate in (Verification.sandboxed(), Verification.no_sandbox()):
        verdict = await gate.verify(workspace, ["grep -q two file"], patch=PATCH)
        assert verdict.passed, verdict.for_model()
        # In the box git does start what the tree names: it is the place that holds, not luck.
        assert not marker.exists()
    in_box = await Verification.sandboxed().verify(workspace, ["git status; git commit -qm x; true"], patch=PATCH)
    assert in_box.passed
    assert not marker.exists()
    git(workspace, "status")  # the control
    git(workspace, "commit", "-qm", "x")
    assert marker.exists()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_patch_leads_out_of_no_tree(workspace: Path, tmp_path: Path, anyio_backend: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "out").symlink_to(outside)
    gate = Verification.sandboxed()
    for name in ("out/new", "../new", ".git/hooks/pre-commit"):
        verdict = await gate.verify(workspace, ["true"], patch=f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n")
        assert (verdict.status, verdict.command) == ("failed", "git apply"), name
    inside = await gate.verify(workspace, ["cat new"], patch="--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n")
    assert inside.passed, inside.for_model()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_patch_of_a_protected_name_is_no_failure_and_files_may_have_it(workspace: Path, anyio_backend: str) -> None:
    gate, name = Verification.sandboxed(), ".vscode/tasks.json"
    for there in (False, True):
        head = f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-old\n" if there else f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n"
        if there:
            (workspace / ".vscode").mkdir()
            (workspace / name).write_text("old\n")
        verdict = await gate.verify(workspace, ["true"], patch=head + "+new\n")
        assert verdict.could_not_verify, verdict.for_model()
        assert name.split("/")[0] in verdict.why
        assert (await gate.verify(workspace, [f"grep -q new {name}"], files={name: "new\n"})).passed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_text_that_is_no_unicode_is_a_verdict(workspace: Path, anyio_backend: str) -> None:
    gate = Verification.sandboxed()
    assert (await gate.verify(workspace, ["test -s file"], files={"file": "\ud800"})).passed
    assert (await gate.verify(workspace, ["true"], files={"\ud800": ""})).failed
    assert (await gate.verify(workspace, ["true"], patch="\ud800")).failed


def test_a_copy_keeps_what_builds_go_by_and_leaves_out_what_is_no_file(workspace: Path, tmp_path: Path) -> None:
    (workspace / "closed").mkdir()
    (workspace / "closed/tool").write_bytes(b"x" * 300_000)
    (workspace / "closed/tool").chmod(0o751)
    os.utime(workspace / "closed/tool", ns=(1_000_000_001, 2_000_000_002))
    (workspace / "closed").chmod(0o555)
    os.mkfifo(workspace / "fifo")
    (workspace / "away").symlink_to("/etc/passwd")
    (workspace / "own").symlink_to(workspace / "closed/tool")
    for name, text in {"linked": f"gitdir: {tmp_path}/elsewhere", "module": "gitdir: ../.git/modules/module"}.items():
        (workspace / name).mkdir()
        (workspace / name / ".git").write_text(text + "\n")
    copy = copied(workspace, tmp_path)
    found = (copy / "closed/tool").stat()
    assert (found.st_size, found.st_mode & 0o7777, found.st_mtime_ns) == (300_000, 0o751, 2_000_000_002)
    assert (copy / "closed").stat().st_mode & 0o777 == 0o555
    assert sorted(path.name for path in copy.iterdir()) == ["away", "closed", "linked", "module", "own"]
    assert os.readlink(copy / "away") == "/etc/passwd"
    assert os.readlink(copy / "own") == str(copy / "closed/tool")
    assert list((copy / "linked").iterdir()) == []
    assert (copy / "module/.git").exists()
    for folder in (workspace, copy):
        (folder / "closed").chmod(0o755)


def test_an_editable_install_imports_the_copy(workspace: Path, tmp_path: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src/mine.py").write_text("")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", workspace / ".venv"], check=True)
    packages = next((workspace / ".venv/lib").glob("python*/site-packages"))
    (packages / "mine.pth").write_text(f"{workspace}/src\n")
    script = workspace / ".venv/bin/where"
    script.write_text(f"#!{workspace}/.venv/bin/python\nimport mine\nprint(mine.__file__)\n")
    script.chmod(0o755)
    copy = copied(workspace, tmp_path)
    for tree in (workspace, copy):
        said = subprocess.run([tree / ".venv/bin/where"], capture_output=True, text=True, check=True).stdout
        assert said == f"{tree}/src/mine.py\n"


def test_whatever_is_in_a_copy_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with copies.holder(str(place)) as holder:
        here = os.open(holder, os.O_RDONLY)
        for _ in range(3000):  # far beyond PATH_MAX and the recursion of an interpreter
            os.mkdir("deep", dir_fd=here)
            below = os.open("deep", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        os.makedirs(f"{holder}/tree/closed/below")
        os.symlink("/etc", f"{holder}/tree/closed/link")
        os.chmod(f"{holder}/tree/closed", 0)
        os.mkdir(f"{holder}/.0", 0o500)
    assert list(place.iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_what_a_killed_caller_left_is_removed_by_the_next_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    code = """
import sys, time
from ringfence.agent.verification import copies
with copies.holder(sys.argv[1]) as holder:
    open(holder + "/file", "w").close()
    print(holder, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = other.stdout.readline().strip()
        with copies.holder(str(tmp_path)):
            assert os.path.exists(f"{left}/file")
        other.send_signal(signal.SIGKILL)
    assert os.path.exists(left)
    with copies.holder(str(tmp_path)):
        assert not os.path.exists(left)
    assert list(tmp_path.iterdir()) == []
