"""A planted repository is taken away whatever shape it has, and nothing else is, whatever the box does meanwhile."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from ringfence.confine.protected import removal


def remove(root: Path, path: str, *, layout_only: bool = False, owner: int | None = None) -> None:
    found = os.lstat(root / path)
    removal.remove(str(root), path, (found.st_dev, found.st_ino), layout_only=layout_only, owner=owner)


def test_a_tree_deeper_than_a_path_can_be_is_removed(tmp_path: Path) -> None:
    deep = 'import os\nos.mkdir("x/.git"); os.chdir("x/.git")\nfor n in range(3000): os.mkdir("d"*99); os.chdir("d"*99)'
    (tmp_path / "x").mkdir()
    subprocess.run(["python3", "-c", deep], cwd=tmp_path, check=True)
    remove(tmp_path, "x/.git")
    assert os.listdir(tmp_path / "x") == []


def test_folders_that_are_closed_to_their_own_owner_are_removed(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "a" / "b").mkdir(parents=True)
    (git / "a" / "b" / "f").touch()
    for folder in (git / "a" / "b", git / "a", git):
        folder.chmod(0)
    remove(tmp_path, ".git")
    assert os.listdir(tmp_path) == []


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "HEAD").write_text("keep")
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "objects").symlink_to(victim)
    (root / ".git" / "other").symlink_to(victim)
    (root / "l").mkdir()
    (root / "l" / ".git").symlink_to(victim)
    (root / "way").symlink_to(victim)
    remove(root, ".git")
    remove(root, "l/.git")
    with pytest.raises(NotADirectoryError):
        remove(root, "way/HEAD")
    assert (victim / "HEAD").read_text() == "keep"
    assert sorted(os.listdir(root)) == ["l", "way"]


def test_another_file_that_has_the_name_by_now_is_left(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(FileNotFoundError):
        removal.remove(str(tmp_path), ".git", (1, 1), layout_only=False, owner=None)
    assert (tmp_path / ".git").is_dir()


def test_of_a_folder_that_was_there_before_only_what_git_keeps_in_it_goes(tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs", "mine"):
        (tmp_path / "src" / name).mkdir(parents=True)
    remove(tmp_path, "src", layout_only=True)
    assert os.listdir(tmp_path / "src") == ["mine"]
    (tmp_path / "HEAD").touch()
    remove(tmp_path, "", layout_only=True)
    assert os.listdir(tmp_path) == ["src"]


def test_a_folder_of_another_owner_that_got_the_name_is_not_emptied_with_rights_that_the_box_has_not(tmp_path: Path) -> None:
    (tmp_path / ".git" / "inner").mkdir(parents=True)
    (tmp_path / ".git" / "inner" / "keep").touch()
    with pytest.raises(PermissionError, match="belongs to another"):
        remove(tmp_path, ".git", owner=os.geteuid() + 1)
    assert (tmp_path / ".git" / "inner" / "keep").exists()
    remove(tmp_path, ".git", owner=os.geteuid())  # the control
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_exchanged_for_a_link_while_it_is_removed_leads_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name in ("HEAD", "config", "d/f"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("keep")
    root, stop = tmp_path / "root", threading.Event()
    root.mkdir()
    (root / "link").symlink_to(victim)

    def swap() -> None:
        while not stop.is_set():
            for name in (".git", ".git/d", ".git/d/e"):
                try:
                    os.rename(root / name, root / "aside")
                    os.symlink(victim, root / name)
                    os.unlink(root / name)
                    os.rename(root / "aside", root / name)
                except OSError:
                    pass

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(150):
            try:
                (root / ".git" / "d" / "e").mkdir(parents=True, exist_ok=True)
                (root / ".git" / "d" / "e" / "f").touch()
                remove(root, ".git")
            except OSError:
                pass  # it was exchanged: that it fails is as good as that it succeeds
    finally:
        stop.set()
        swapper.join()
    # What this test makes can itself go through a link; what was there before must all be there.
    assert {"HEAD", "config", "d"} <= set(os.listdir(victim))
    assert (victim / "d" / "f").read_text() == "keep"
