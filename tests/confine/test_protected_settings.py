"""The reader of git's settings: it sees whatever git sees, and nothing makes it fail or run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.confine.protected import gitconfig
from ringfence.confine.protected.gitconfig import parse, settings_of

PIECES = st.sampled_from([
    "[core]", "[core]\n", '[a "b"]', '[A "x\\"y\\\\"]', "[include]", "[a.b]", "\n", "\n", "\r\n", "path", "=", " = ",
    "hooksPath = .h", '"', "\\", "\\\n", "#c", ";", " ", "\t", "x", "\\n", '\\"', "fsmonitor",
    "[", "] ", 'name = "a b" c', "é", "key\n", "[core]y = 1", "\ufeff",
])  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(PIECES, max_size=14).map("".join))
def test_every_entry_that_git_reads_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text("[core]\n" + text, encoding="utf-8", newline="")
    done = subprocess.run(
        ["git", "config", "--list", "-z", "--no-includes", "-f", str(file)],
        env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, capture_output=True, timeout=10, check=False,
    )  # fmt: skip
    entries = {(key, " ".join(value.split())) for key, value in parse("[core]\n" + text)}
    if done.returncode == 0:  # else git runs nothing of it
        read = [entry.partition("\n") for entry in done.stdout.decode().split("\0")[:-1]]
        # git turns a tab between two words of a value into a blank; before 2.45 at least.
        assert {(key, " ".join((value if equals else "true").split())) for key, equals, value in read} <= entries


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=300))
def test_no_text_is_too_odd_to_read(text: str) -> None:
    list(parse(text))


def test_paths_are_as_git_takes_them(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "config").write_text(
        '[core]\n hooksPath = "~/hooks"\n worktree = ../w\n fsmonitor = ./run --now\n'
        "[include]\n path = more/a\n[includeIf \"onbranch:x\"]\n path = ~/b\n[alias]\n s = !tools/s 'a b' && other\n"
    )
    (tmp_path / "more" / "a").write_text('[core]\nhooksPath = rel\n[filter "f"]\nclean = sh ../clean.sh %f\n[include]\npath = c\n')
    found = settings_of((str(tmp_path / "config"),), "/tree", "/home/u")
    assert found.worktree == "../w"
    assert set(found.hooks) == {"/home/u/hooks", "/tree/rel"}
    assert set(found.included) == {f"{tmp_path}/more/a", "/home/u/b", f"{tmp_path}/more/c"}
    assert set(found.run) == {"/tree/./run", "/tree/sh", "/tree/../clean.sh", "/tree/%f"}


@pytest.mark.parametrize("kind", ["itself", "a pipe", "a folder", "nothing", "large", "without end"])
def test_what_is_no_file_of_settings_stops_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config"
    match kind:
        case "itself":
            path.write_text(f"[include]\npath = {path}\npath = config\n")
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "large":
            path.write_text("[core]\n" + "x = y\n" * gitconfig.MAX_BYTES)
        case "without end":
            for number in range(100):
                (tmp_path / f"c{number}").write_text(f"[include]\npath = c{number + 1}\n")
            path.write_text("[include]\npath = c0\n")
    found = settings_of((str(path),), "/tree", "/home/u")
    assert not found.hooks
    assert len(found.included) <= gitconfig.MAX_FILES + 1


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for name in ("one", "two"):
        path.write_text(f"[core]\nhooksPath = {name}\n")
        assert settings_of((str(path),), "/tree", "/home/u").hooks == (f"/tree/{name}",)
