"""One walk of a folder serves what is covered in it and what is known of its repositories; both know what they would alone."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from ringfence.confine.protected.tree import Tree
from ringfence.errors import WorkspaceError
from ringfence.policy import walk
from ringfence.policy.inotify import Queue
from ringfence.policy.secrets import ANYWHERE_GLOBS
from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def queue() -> Queue:
    return Queue()


def tree_of(workspace: Path, queue: Queue | None) -> Tree:
    found = os.stat(workspace)
    return Tree(str(workspace), (found.st_dev, found.st_ino), queue)


def fill(workspace: Path, seed: int) -> None:
    """Folders with repositories of every kind in them, whole ones and parts, and secrets."""
    chance = random.Random(seed)
    folders = [workspace]
    for step in range(60):
        folder = chance.choice(folders) / chance.choice(("a", "b", "c", ".git", "objects", "refs", ".aws", f"d{step}"))
        if folder.is_file():
            continue
        folder.mkdir(exist_ok=True)
        folders.append(folder)
        kind = chance.randrange(6)
        if kind == 0:
            (folder / "HEAD").write_text("ref: refs/heads/main\n")
        elif kind == 1:
            git = folder / chance.choice(("", ".git"))
            if not git.is_file():
                (git / "objects" / "pack").mkdir(parents=True, exist_ok=True)
                (git / "refs").mkdir(exist_ok=True)
                (git / "HEAD").touch()
                (git / "index").touch()
        elif kind == 2:
            (folder / "credentials").write_text("x")
        elif kind == 3 and not (folder / ".git").exists():
            (folder / ".git").write_text("gitdir: elsewhere\n")
        elif kind == 4 and not (folder / ".git").is_symlink():
            (folder / "link").unlink(missing_ok=True)
            (folder / "link").symlink_to(workspace)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_along_is_what_a_look_of_its_own_finds(workspace: Path, queue: Queue, seed: int) -> None:
    fill(workspace, seed)
    along, alone = tree_of(workspace, queue), tree_of(workspace, queue)
    with_it = walk.Tree(str(workspace), ANYWHERE_GLOBS).find(along=along)
    along.look()
    alone.look()
    assert not along.stale
    assert (along.repositories, along.gitlinks, along._folders) == (alone.repositories, alone.gitlinks, alone._folders)
    assert with_it == walk.Tree(str(workspace), ANYWHERE_GLOBS).find()
    (workspace / "later" / ".git").mkdir(parents=True)  # and it is watched as if it had looked itself
    queue.dispatch()
    along.look()
    assert "later/.git" in along.repositories
    queue.close()


def test_a_folder_that_was_exchanged_after_it_was_listed_is_not_taken_for_it(
    workspace: Path, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a" / "inner").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inner" / ".git").mkdir(parents=True)
    along = tree_of(workspace, queue)
    reads = Tree.reads

    def exchanged(tree: Tree, path: str, descriptor: int, names: list[str], folders: list[os.DirEntry[str]]) -> None:
        reads(tree, path, descriptor, names, folders)
        if path == f"{workspace}/a":
            (workspace / "a").rename(workspace / "b")
            (workspace / "a").symlink_to(elsewhere)

    monkeypatch.setattr(Tree, "reads", exchanged)
    walk.Tree(str(workspace), ("/**/none",)).find(along=along)
    assert not along.repositories
    queue.dispatch()
    along.look()
    assert not along.repositories  # "a/inner" leads out of the workspace now
    (workspace / "b" / "inner" / ".git").mkdir()  # the control: by its new name it is found
    queue.dispatch()
    along.look()
    assert list(along.repositories) == ["b/inner/.git"]
    queue.close()


def test_a_walk_that_ends_early_leaves_the_look_to_be_done(workspace: Path, queue: Queue) -> None:
    for number in range(20):
        (workspace / "x" / f"d{number}" / ".git").mkdir(parents=True)
    along = tree_of(workspace, queue)
    with pytest.raises(WorkspaceError):
        walk.Tree(str(workspace), ("/**/none",)).find(10, along=along)
    assert along.stale
    along.look()
    assert len(along.repositories) == 20
    queue.close()


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each folder is read from now on, by inode."""
    read: Counter[int] = Counter()
    scandir = os.scandir

    def counted(place: int | str) -> os._ScandirIterator[str]:
        read[os.stat(place).st_ino] += 1
        return scandir(place)

    monkeypatch.setattr(os, "scandir", counted)
    return read


def test_the_first_box_reads_each_folder_of_its_workspace_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (workspace / f"d{number % 3}" / f"e{number}").mkdir(parents=True)
    inodes = {os.lstat(path).st_ino for path in (workspace, *workspace.rglob("*"))}
    read = counted_reads(monkeypatch)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert {inode: count for inode, count in read.items() if inode in inodes} == dict.fromkeys(inodes, 1)
        box.planted()  # the control: a whole look reads them again
        assert {count for inode, count in read.items() if inode in inodes} == {2}


def test_what_no_queue_tells_of_is_looked_at_once_while_a_box_is_made(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "a").mkdir()
    tree = tree_of(workspace, None)
    read = counted_reads(monkeypatch)
    began = time.monotonic_ns()
    tree.look(everything=True)
    (workspace / "a" / ".git").mkdir()
    tree.look(everything=True, since=began)
    assert set(read.values()) == {1}
    assert not tree.repositories
    tree.look(everything=True, since=time.monotonic_ns())  # the control: another box, or a later look
    assert list(tree.repositories) == ["a/.git"]
