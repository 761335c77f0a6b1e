"""The walk over a workspace: what it finds, that it is bounded, and that what it remembers is never old."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from ringfence.errors import WorkspaceError
from ringfence.policy import walk
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
