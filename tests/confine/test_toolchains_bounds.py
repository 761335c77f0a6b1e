"""What a PATH must never bring into a box: the home, secrets, what a box can write, and what an agent planted."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confine.toolchain_host import Host, below
from ringfence.confine.toolchains import discover
from ringfence.confine.toolchains.claims import MAX_FOLLOWED
from ringfence.confine.toolchains.hostfiles import MAX_CALLS
from ringfence.confine.toolchains.table import ROWS, prefixes


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# What is dropped


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "relative"),
        (".", "relative"),
        ("bin", "relative"),
        ("/nonexistent/bin", "does not exist"),
        ("{home}/file", "not a folder"),
        ("{home}", "home folder"),
        ("{home}/../home", "home folder"),
        ("{home}/to-home", "home folder"),
        ("{home}/..", "home folder"),
        ("/", "home folder"),
        ("/tmp", "one tool|home folder"),
        ("/etc", "one tool"),
        ("/proc/self", "one tool"),
        ("/dev/shm", "one tool"),
        ("{home}/.ssh/bin", "secrets"),
        ("{home}/to-ssh", "secrets"),
        ("{home}/.config", "dot folder"),
        ("{home}/.local/share", "secrets"),
        ("{home}/loop", "loop"),
        ("{ws}/bin", "writable folder"),
        ("{ws}/.venv/bin", "writable folder"),
        ("{home}/to-ws", "writable folder"),
        ("{ws}/../home/bin", "writable folder"),
        ("{ws}/..", "home folder|writable folder"),
        ("{home}/locked", "not readable"),
        ("{home}/shared", "every user can write"),
        ("/usr/bin\0/x", "does not exist"),
    ],
)
def test_a_path_entry_that_must_not_be_followed_is_dropped_and_the_note_says_why(host: Host, entry: str, why: str) -> None:
    for name in ("file", ".ssh/bin/x", ".ssh/id_ed25519", ".config/x", ".local/share/x", "locked/x", "shared/x"):
        host.file(name)
    for name in ("bin/x", ".venv/bin/x"):
        host.file(host.workspace / name)
    (host.home / "locked").chmod(0o710)  # root's box is another user; a user's own group does not count
    os.chmod(host.home / "locked", 0o010 if os.geteuid() else 0o710)
    (host.home / "shared").chmod(0o1777)
    for name, target in (("to-home", host.home), ("to-ssh", ".ssh/bin"), ("to-ws", host.workspace / "bin")):
        host.link(name, target)
    host.link("loop", "loop")
    found = host.discover(entry.format(home=host.home, ws=host.workspace), "/usr/bin")
    os.chmod(host.home / "locked", 0o755)
    assert found.path == ("/usr/bin",)
    assert found.read_only == ()
    (note,) = found.notes
    assert note.startswith("PATH entry ")
    assert any(reason in note for reason in why.split("|"))


def test_the_same_kinds_of_entry_are_kept_where_nothing_is_wrong_with_them(host: Host) -> None:
    for name in ("bin/x", ".config/tool/bin/x", ".local/share/tool/x", "shared/x"):
        host.file(name)
    host.link("to-bin", "bin")
    entries = [host.home / name for name in ("bin", ".config/tool/bin", ".local/share/tool", "shared", "to-bin")]
    found = host.discover(*entries)
    assert found.path == tuple(map(str, entries))
    assert found.notes == ()


def test_an_environment_that_is_the_home_itself_is_dropped(host: Host) -> None:
    host.environment(".", host.python("py/3.12"))
    found = host.discover(host.home / "bin")
    assert found.path == ()
    assert found.read_only == ()
    assert "home folder" in found.notes[0]


def test_a_folder_beside_the_workspace_is_not_widened_over_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.file("conda/conda-meta/history")
    host.file("conda/bin/python")
    host.workspace = host.home / "conda/ws"
    host.workspace.mkdir()
    found = host.discover(host.home / "conda/bin")
    assert found.read_only == ()
    assert "contains a writable folder" in found.notes[0]


def test_a_path_of_thousands_of_entries_is_cut_with_a_note(host: Host) -> None:
    kept = host.file("tools/bin/x").parent
    found = host.discover(kept, *(host.home / f"missing{n}" for n in range(MAX_CALLS)), "/srv", "/usr/bin")
    assert found.path == (str(kept), "/usr/bin")
    assert "too many" in found.notes[-1]
    found = host.discover(kept, *(host.home / f"missing{n}" for n in range(100)), "/usr/bin")
    assert found.path == (str(kept), "/usr/bin")


def test_a_folder_of_hundreds_of_links_leaves_the_later_entries_alone(host: Host) -> None:
    for n in range(MAX_FOLLOWED + 1):
        host.file(f".linuxbrew/Cellar/p{n}/1.0/bin/p{n}")
        host.link(f".linuxbrew/bin/p{n}", f"../Cellar/p{n}/1.0/bin/p{n}")
        host.file(f"src/{n}/x{n}")
        host.link(f"bin/x{n}", host.home / f"src/{n}/x{n}")
    own = host.file("tools/bin/x").parent
    found = host.discover(host.home / ".linuxbrew/bin", host.home / "bin", own)
    assert len(found.path) == 3
    assert any("too many links" in note for note in found.notes)
    assert not any("linuxbrew" in note for note in found.notes)


@pytest.mark.parametrize(
    ("folder", "tool", "prefix"),
    [
        ("/opt/cmake-3.29/bin", "opt", "/opt/cmake-3.29"),
        ("/opt/vendor/tool/usr/bin", "opt", "/opt/vendor"),
        ("/snap/go/10500/bin", "snap", "/snap/go/10500"),
        ("/nix/store/0a-jq-1.7/bin", "nix", "/nix/store"),
        ("/home/linuxbrew/.linuxbrew/sbin", "linuxbrew", "/home/linuxbrew/.linuxbrew"),
        ("/home/u/.pyenv/versions/3.12.1/envs/x/bin", "pyenv", "/home/u/.pyenv/versions/3.12.1"),
        ("/home/u/.pyenv/plugins/pyenv-virtualenv/shims", "pyenv", "/home/u/.pyenv"),
        ("/home/v/.pyenv/versions/3.12.1/bin", "", ""),
        ("/optional/bin", "", ""),
        ("/opt", "", ""),
        ("/nix/storeroom/bin", "", ""),
        ("/home/u/.nvm/versions", "", ""),
    ],
)
def test_the_place_of_a_folder_tells_its_tool(folder: str, tool: str, prefix: str) -> None:
    places = ((row.tool, found) for row in ROWS for found, marked in prefixes(row, folder, "/home/u") if not marked)
    assert next(places, ("", "")) == (tool, prefix)


# What an agent could plant


def plant_environment(host: Host, prefix: Path, base: Path) -> None:
    host.file(prefix / "pyvenv.cfg", f"home = {base}/bin\n", 0o644)
    host.link(prefix / "bin/python", base / "bin/python3")
    host.link(prefix / "bin/home", host.home)
    host.file(prefix / "lib/python3.12/x.py")


def test_an_environment_in_the_workspace_decides_nothing(host: Host) -> None:
    base = host.python("py/3.12")
    planted = host.workspace / ".venv"
    plant_environment(host, planted, base)
    for interpreter in (planted / "bin/python", Path("/usr/bin/python3")):
        assert host.discover(planted / "bin", interpreter=interpreter).read_only == ()
    outside = host.home / "venv"
    plant_environment(host, outside, base)
    assert "py/3.12/bin" in host.mounts(host.discover(outside / "bin"))


@pytest.mark.parametrize("base", [".ssh", ".", "ws", "docs", "js/node_modules/private"])
def test_an_environment_never_brings_a_base_that_is_no_python_installation(host: Host, base: str) -> None:
    host.file(".ssh/bin/python3")
    host.file(".ssh/lib/python3.12/os.py")
    host.file("docs/bin/python3")
    host.file("js/node_modules/private/bin/python3.9")  # the planted link dangles: the settings file alone names it
    host.python(host.workspace / "py")
    target = host.workspace / "py" if base == "ws" else host.home / base
    plant_environment(host, host.home / "venv", target)
    found = host.discover(host.home / "venv/bin", interpreter=host.home / "venv/bin/python")
    assert host.mounts(found) == {"venv"}


def test_links_planted_in_the_workspace_lead_nowhere(host: Host) -> None:
    host.python("py/3.12")
    host.link(host.workspace / "tools", host.home / "py")
    host.link("tools", host.workspace / "tools")
    found = host.discover(host.home / "tools/3.12/bin", interpreter=host.home / "tools/3.12/bin/python3")
    assert found.read_only == ()
    (host.home / "tools").unlink()
    host.link("tools", host.home / "py")
    assert "py/3.12/bin" in host.mounts(host.discover(host.home / "tools/3.12/bin"))


def test_nothing_is_run_and_a_pipe_in_place_of_a_settings_file_blocks_nothing(host: Host) -> None:
    ran = host.home / "ran"
    for name in (
        ".cargo/bin/rustup",
        ".cargo/bin/uv",
        ".pyenv/libexec/pyenv",
        ".pyenv/shims/python3",
        "venv/bin/python",
    ):
        host.file(name, f"#!/bin/sh\necho >{ran}\n")
    os.mkfifo(host.home / "venv/pyvenv.cfg")
    host.discover(
        host.home / ".cargo/bin",
        host.home / ".pyenv/shims",
        host.home / "venv/bin",
        interpreter=host.home / "venv/bin/python",
    )
    assert not ran.exists()
    subprocess.run([host.home / ".cargo/bin/rustup"], check=True)
    assert ran.exists()


# A home behind a link


def test_a_home_behind_a_link_keeps_its_name_inside(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.home.rename(tmp_path / "disk")
    host.home.symlink_to("disk")
    host.file(".cargo/bin/rustup")
    host.file(".rustup/toolchains/a/bin/cargo")
    host.file("dots/foo/bin/x")
    host.link(".foo", "dots/foo")
    found = host.discover(host.home / ".cargo/bin", host.home / ".foo/bin")
    assert set(found.read_only) == {f"{tmp_path}/disk/{n}" for n in (".cargo/bin", ".rustup/toolchains", "dots/foo/bin")}
    assert found.path == (f"{host.home}/.cargo/bin", f"{host.home}/.foo/bin")
    assert not any(link == str(host.home) for link, _ in found.links)


def test_a_home_that_is_not_absolute_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute"):
        discover(path="/usr/bin", home="", interpreter="/usr/bin/python3", writable=[])


# Whatever PATH is made of

NAMES = ("bin", "lib", "python3.12", ".pyenv", "versions", "shims", "node_modules", ".ssh", ".local", "opt", "a")
FOLDERS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
ROOTS = st.sampled_from(("home", "ws", "home/ws2", "other", "."))
MARKS = st.sampled_from(("pyvenv.cfg", "conda-meta", "uv", "rustup", "VERSION", "go", "pip.conf"))


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]], list[tuple[str, str]], list[str]]:
    folders = [f"{draw(ROOTS)}/{folder}" for folder in draw(st.lists(FOLDERS, min_size=1, max_size=8))]
    anywhere = st.sampled_from([*folders, "home", "ws", "home/ws2", ".", "home/.ssh"])
    marks = [(draw(anywhere), mark) for mark in draw(st.lists(MARKS, max_size=6))]
    links = [(f"{draw(anywhere)}/{draw(st.sampled_from(NAMES))}", draw(anywhere)) for _ in range(draw(st.integers(0, 5)))]
    deeper = st.builds(lambda a, b: f"{a}/{b}", anywhere, st.sampled_from((*NAMES, "..")))
    return folders, marks, links, draw(st.lists(anywhere | deeper, min_size=1, max_size=8))


@settings(max_examples=150, deadline=None)
@given(tree=trees(), interpreter=st.integers(0, 7))
def test_no_path_whatever_mounts_the_home_the_root_or_what_a_box_can_write(
    tree: tuple[list[str], list[tuple[str, str]], list[tuple[str, str]], list[str]], interpreter: int
) -> None:
    folders, marks, links, entries = tree
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        host = Host(root)
        for folder in ("home/ws2", "other", "home/.ssh", *folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for folder, mark in marks:
            if (root / folder).is_dir() and not (root / folder / mark).exists():
                (root / folder / mark).write_text(f"home = {root / entries[0]}\n")
        attempt(lambda link, target: (root / link).symlink_to(root / target), links)
        found = discover(
            path=":".join(str(root / entry) for entry in entries),
            home=str(host.home),
            interpreter=str(root / entries[interpreter % len(entries)] / "python"),
            writable=[str(host.workspace), str(host.home / "ws2")],
        )
        host.check(found)
        for mount in found.read_only:
            for writable in (os.path.realpath(host.workspace), str(host.home / "ws2")):
                assert not below(mount, writable)
                assert not below(writable, mount)
            assert mount not in ("/", str(root))


def attempt(act: Callable[[str, str], object], arguments: list[tuple[str, str]]) -> None:
    for one, two in arguments:
        try:
            act(one, two)
        except FileExistsError:
            pass
