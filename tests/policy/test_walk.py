"""The walk over a workspace: what it finds, that it is bounded, and that what it remembers is never old."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence.errors import WorkspaceError
from ringfence.policy import walk, watched
from ringfence.policy.walk import Tree


def paths(tree: Tree, **bounds: int) -> list[str]:
    return sorted(os.path.relpath(each.path, tree.root) for each in tree.find(**bounds))


@pytest.fixture
def tree(workspace: Path) -> Tree:
    return Tree(str(workspace), (f"{workspace}/**/.env", "/**/.aws/credentials", f"{workspace}/*.key"))


def test_names_are_found_wherever_they_lie_and_only_there(tree: Tree, workspace: Path) -> None:
    for name in (".env", "a/b/.env", ".aws/credentials", "credentials", "x.key", "a/x.key", "a/.env.example"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x")
    assert paths(tree) == [".aws/credentials", ".env", "a/b/.env", "x.key"]


def test_no_folder_is_walked_that_is_too_deep_for_every_pattern(workspace: Path) -> None:
    for name in ("a/b/c/d", "a/b/.x", ".x"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x")
    assert paths(Tree(str(workspace), (f"{workspace}/*/b/.x", f"{workspace}/.x*")), most=5) == [".x", "a/b/.x"]
    with pytest.raises(WorkspaceError):
        Tree(str(workspace), (f"{workspace}/**/.x",)).find(5)


def test_nothing_below_a_match_and_nothing_behind_a_link_is_walked(tree: Tree, workspace: Path, tmp_path: Path) -> None:
    (workspace / ".env" / "deep").mkdir(parents=True)
    (workspace / ".env" / "deep" / ".env").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".env").write_text("x")
    (workspace / "link").symlink_to(outside)
    (workspace / "loop").symlink_to(".")
    assert paths(tree) == [".env"]


def settle(workspace: Path) -> None:
    """Wait until every folder changed long enough ago to be remembered."""
    newest = max(os.lstat(path).st_ctime_ns for path in (workspace, *workspace.rglob("*")))
    while time.time_ns() <= newest + walk.SETTLED_NS:
        time.sleep(0.01)


def test_a_folder_that_is_as_it_was_is_not_read_again(tree: Tree, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / ".env").write_text("x")
    settle(workspace)
    assert paths(tree) == ["a/.env"]
    read = []
    scandir = os.scandir
    monkeypatch.setattr(walk.os, "scandir", lambda descriptor: read.append(descriptor) or scandir(descriptor))
    assert paths(tree) == ["a/.env"]
    assert read == []
    (workspace / "a" / "new").write_text("x")  # the control
    assert paths(tree) == ["a/.env"]
    assert len(read) == 1


def test_a_change_in_the_same_tick_of_the_clock_is_found(tree: Tree, workspace: Path) -> None:
    for number in range(200):  # no waiting between the walk and the change: only what has settled may be believed
        (workspace / f"d{number}").mkdir()
        paths(tree)
        (workspace / f"d{number}" / ".env").write_text("x")
        assert f"d{number}/.env" in paths(tree)


def test_a_time_that_was_set_back_hides_no_change(tree: Tree, workspace: Path) -> None:
    (workspace / "a").mkdir()
    os.utime(workspace / "a", ns=(10**18, 10**18))
    settle(workspace)
    assert paths(tree) == []
    (workspace / "a" / ".env").write_text("x")
    os.utime(workspace / "a", ns=(10**18, 10**18))
    assert paths(tree) == ["a/.env"]


def test_what_is_remembered_is_what_a_new_walk_finds_after_any_changes(tree: Tree, workspace: Path) -> None:
    chance = random.Random(7)
    folders = [workspace]
    for step in range(150):
        folder = chance.choice([each for each in folders if each.is_dir()])
        act = chance.randrange(5)
        if act == 0:
            folders.append(folder / f"d{step}")
            folders[-1].mkdir()
        elif act == 1:
            (folder / ".env").write_text("x")
        elif act == 2:
            (folder / ".env").unlink(missing_ok=True)
        elif act == 3 and folder != workspace:
            target = workspace / f"m{step}"
            folder.rename(target)
            folders.append(target)
        elif act == 4:
            (folder / ".aws").mkdir(exist_ok=True)
            (folder / ".aws" / "credentials").write_text("x")
        fresh = Tree(str(workspace), (f"{workspace}/**/.env", "/**/.aws/credentials", f"{workspace}/*.key"))
        assert paths(tree) == paths(fresh), f"after step {step}"


def test_more_entries_than_the_bound_are_an_error_with_two_ways_out(tree: Tree, workspace: Path) -> None:
    for number in range(50):
        (workspace / f"f{number}").write_text("")
    assert paths(tree, most=50) == []
    with pytest.raises(WorkspaceError, match=r"more than 49 entries.*smaller folder.*walk_entries"):
        tree.find(most=49)
    assert paths(tree, most=50) == []


def test_further_names_of_a_wanted_file_are_found_by_its_inode(tree: Tree, workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / ".env").write_text("x")
    os.link(workspace / ".env", workspace / "a" / "innocent")
    (found,) = tree.find()
    assert found.links == 2
    assert tree.want({(found.device, found.inode)})
    assert paths(tree) == [".env", "a/innocent"]
    assert not tree.want({(found.device, found.inode)})


def test_a_folder_that_cannot_be_read_is_named(tree: Tree, workspace: Path) -> None:
    closed = workspace / "closed"
    closed.mkdir()
    (closed / ".env").write_text("x")
    closed.chmod(0)
    try:
        if os.geteuid() == 0:  # who can read it
            assert paths(tree) == ["closed/.env"]
            assert tree.unlisted == {}
        else:
            assert paths(tree) == []
            assert tree.unlisted == {str(closed): walk.CLOSED}
    finally:
        closed.chmod(0o700)


def untold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a walk asks for from now on, by lstat."""
    asked: list[str] = []
    lstat = os.lstat
    monkeypatch.setattr(walk.os, "lstat", lambda path, **more: asked.append(str(path)) or lstat(path, **more))
    return asked


def test_a_walk_that_is_told_of_changes_asks_only_for_what_changed(
    tree: Tree, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (workspace / f"d{number}").mkdir()
    settle(workspace)
    for _ in range(2):  # the first walk reads, the second one begins to watch
        assert paths(tree) == []
    asked = untold(monkeypatch)
    assert paths(tree) == []
    assert asked == [str(workspace)]
    (workspace / "d7" / ".env").write_text("x")  # the control
    assert paths(tree) == ["d7/.env"]


def test_another_folder_in_the_place_of_one_above_is_noticed(tmp_path: Path) -> None:
    for name in ("above", "other"):
        (tmp_path / name / "root" / "a").mkdir(parents=True)
    (tmp_path / "other" / "root" / "a" / ".env").write_text("x")
    settle(tmp_path)
    root = tmp_path / "above" / "root"
    tree = Tree(str(root), (f"{root}/**/.env",))
    for _ in range(3):
        assert paths(tree) == []
    (tmp_path / "above").rename(tmp_path / "moved")
    (tmp_path / "other").rename(tmp_path / "above")
    assert paths(tree) == ["a/.env"]


def test_more_changes_than_the_kernel_tells_hide_none(tree: Tree, workspace: Path) -> None:
    for name in ("a", "b"):
        (workspace / name).mkdir()
    for _ in range(2):
        assert paths(tree) == []
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 10):  # a name that comes and goes: two events
        file = workspace / "a" / str(number)
        file.touch()
        file.unlink()
    (workspace / "b" / ".env").write_text("x")
    assert paths(tree) == ["b/.env"]


def test_on_a_file_system_that_others_may_write_every_folder_is_asked(
    tree: Tree, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "LOCAL", frozenset())
    (workspace / "a").mkdir()
    settle(workspace)
    for _ in range(2):
        assert paths(tree) == []
    asked = untold(monkeypatch)
    assert paths(tree) == []
    assert sorted(asked) == [str(workspace), str(workspace / "a")]


UNDER_MOUNTS = """
import subprocess, sys
from ringfence.policy.walk import Tree
root = sys.argv[1]
tree = Tree(root, (f"{root}/**/.env",))
for _ in range(3):
    print(len(tree.find()))
subprocess.run(["mount", "-t", "tmpfs", "none", f"{root}/a"], check=True)
print(len(tree.find()))
subprocess.run(["umount", f"{root}/a"], check=True)
print(len(tree.find()))
"""


def test_what_a_mount_hides_and_shows_again_is_noticed(workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / ".env").write_text("x")
    settle(workspace)
    wrapper = ("unshare", "--user", "--map-root-user", "--mount")
    found = subprocess.run([*wrapper, sys.executable, "-c", UNDER_MOUNTS, workspace], capture_output=True, text=True)
    assert (found.stdout.split(), found.stderr) == (["1", "1", "1", "0", "1"], "")
