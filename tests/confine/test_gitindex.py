"""The gitlinks of an index are found in every form that git writes, and nothing in an index can do harm."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.confine.protected import gitindex

WHO = {f"GIT_{role}_{field}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def repository(folder: Path, *options: str) -> Path:
    """A repository with thirty files and two gitlinks."""
    git(folder, "init", "-q", *options, ".")
    for number in range(30):
        (folder / f"file-{number}-{'x' * number}").write_text("x")
    git(folder, "add", ".")
    name = git(folder, "hash-object", "-w", "--stdin")
    for path in ("vendor/lib", "z"):
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{name.strip()},{path}")
    return folder


def gitlinks(folder: Path) -> set[str]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return set(gitindex.gitlinks_of(root, ".git"))
    finally:
        os.close(root)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_is_read(workspace: Path, version: int) -> None:
    repository(workspace)
    git(workspace, "update-index", "--index-version", "4" if version == 4 else "2")
    if version == 3:  # git takes it where an entry has a flag of the extended kind
        (workspace / "later").touch()
        git(workspace, "add", "-N", "later")
    assert (workspace / ".git/index").read_bytes()[4:8] == bytes([0, 0, 0, version])
    assert gitlinks(workspace) == {"vendor/lib", "z"}
    git(workspace, "update-index", "--force-remove", "z")
    assert gitlinks(workspace) == {"vendor/lib"}


def test_the_index_of_a_repository_with_longer_object_names_is_read(workspace: Path) -> None:
    assert gitlinks(repository(workspace, "--object-format=sha256")) == {"vendor/lib", "z"}


def test_a_gitlink_in_the_shared_part_of_a_split_index_is_found(workspace: Path) -> None:
    repository(workspace)
    git(workspace, "update-index", "--split-index")
    assert b"vendor/lib" not in (workspace / ".git/index").read_bytes()
    assert gitlinks(workspace) == {"vendor/lib", "z"}


def test_an_entry_that_became_a_gitlink_in_a_split_index_is_seen_though_it_has_no_name_there(workspace: Path) -> None:
    git(workspace, "init", "-q", ".")
    for number in range(30):
        (workspace / f"{number}").write_text("x")
    git(workspace, "add", ".")
    git(workspace, "update-index", "--split-index")
    name = git(workspace, "hash-object", "-w", "--stdin").strip()
    assert gitlinks(workspace) == set()
    git(workspace, "update-index", "--cacheinfo", f"160000,{name},7")
    assert gitlinks(workspace) & {gitindex.UNREADABLE, "7"}


def test_an_index_of_100_000_gitlinks_is_read(workspace: Path) -> None:
    git(workspace, "init", "-q", ".")
    entry = bytes(24) + b"\0\0\xe0\0" + bytes(12) + bytes(20)
    entries = [entry + struct.pack(">H", 9) + b"l/%07d" % number + b"\0" * 1 for number in range(100_000)]
    assert len(entries[0]) % 8 == 0
    (workspace / ".git/index").write_bytes(b"DIRC" + struct.pack(">II", 2, 100_000) + b"".join(entries) + bytes(20))
    assert len(gitlinks(workspace)) == 100_000


def test_what_cannot_be_read_is_said_and_never_taken_for_an_index_without_gitlinks(workspace: Path, tmp_path: Path) -> None:
    index = repository(workspace) / ".git/index"
    whole = index.read_bytes()
    index.write_bytes(whole[: len(whole) // 2] + b"\0\0\xe0\0")
    assert gitlinks(workspace) == {gitindex.UNREADABLE}
    with index.open("r+b") as file:
        file.truncate(gitindex.MAX_BYTES + 1)
    assert gitlinks(workspace) == {gitindex.UNREADABLE}
    index.unlink()
    os.mkfifo(index)
    assert gitlinks(workspace) == {gitindex.UNREADABLE}
    index.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    index.symlink_to(tmp_path / "elsewhere")  # git follows it, so it counts
    assert gitlinks(workspace) == {"vendor/lib", "z"}
    index.unlink()
    assert gitlinks(workspace) == set()


@given(st.binary(max_size=300), st.sampled_from([2, 3, 4]), st.integers(0, 2**32 - 1), st.sampled_from([20, 32]))
def test_no_bytes_give_anything_but_paths_or_a_refusal(rest: bytes, version: int, count: int, width: int) -> None:
    try:
        found = gitindex.parse(b"DIRC" + struct.pack(">II", version, count) + rest, width)
    except gitindex.BadIndexError:
        return
    assert all(isinstance(path, str) for path in found)
