"""The files object: every operation is done inside the box, within bounds, with typed errors."""

from __future__ import annotations

import dataclasses
import inspect
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some

import ringfence
from ringfence import errors, sync, sync_files
from ringfence.outcome import CapHit, Exited
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.world import files

pytestmark = pytest.mark.live("namespaces")

NAMES = [
    b"a\nb",
    b"-rf",
    b" ",
    b"\xff\xfe",
    b"*",
    b"[x]",
    b"{a,b}",
    b"n" * 255,
    b"$(touch INJ)",
    b"...",
    b".dot",
    b"\\",
    "é".encode(),
]


@pytest.fixture
def outside(workspace: Path) -> Path:
    """A folder beside the workspace, which no box may touch, with a file in it."""
    folder = workspace.parent / "outside"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "existing").write_text("keep")
    (folder / "existing").chmod(0o666)
    return folder


def state(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_link_that_the_host_cannot_follow_leads_outside(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        (workspace / "first").symlink_to("/proc/1/root")
        (workspace / "inner").symlink_to(".")
        box.files.write("inner/file", "kept")
        for work in (box.files.read, box.files.stat, box.files.list, box.files.exists, box.files.remove):
            with pytest.raises(errors.OutsideError):
                work("first/etc/passwd")  # type: ignore[operator]
        with pytest.raises(errors.OutsideError):
            box.files.write("first/tmp/new", "x")
        assert box.files.read("inner/file") == "kept"


async def test_an_operation_that_is_cancelled_leaves_nothing_and_the_box_works(workspace: Path) -> None:
    (workspace / "big").write_bytes(b"x" * files.MAX_READ)
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        for delay in (0.0, 0.002, 0.01):
            with anyio.move_on_after(delay):
                await box.files.read_bytes("big")
            with anyio.move_on_after(delay):
                await box.files.write("copy", b"y" * (8 << 20))
        # A fork of the first process that was left would be a second process without a program of its own.
        assert (await box.execute_command("ls -d /proc/[0-9]* | wc -l")).stdout.strip() in ("4", "5")
        assert len(await box.files.read_bytes("big")) == files.MAX_READ


async def test_every_operation_works_with_await(workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        files = box.files
        assert await files.mkdir("a/b") == str(workspace / "a/b")
        assert await files.write("a/b/one.py", "é") == str(workspace / "a/b/one.py")
        assert await files.read("a/b/one.py") == "é" and await files.read_bytes("a/b/one.py") == "é".encode()
        info = await files.stat("a/b/one.py")
        assert (info.path, info.kind, info.size, info.executable) == (str(workspace / "a/b/one.py"), "file", 2, False)
        assert [each.path for each in await files.list()] == ["a"] and (await files.list("a"))[0].kind == "dir"
        assert await files.exists("a") and not await files.exists("c")
        assert await files.glob("**/*.py") == ["a/b/one.py"]
        assert await files.rename("a/b/one.py", "two.py") == str(workspace / "two.py")
        await files.remove("a", recursive=True)
        assert sorted(os.listdir(workspace)) == ["two.py"]
    with pytest.raises(errors.SandboxClosedError):
        await files.read("two.py")


def test_both_faces_have_the_same_operations_with_the_same_arguments() -> None:
    names = [name for name in vars(ringfence.Files) if not name.startswith("_")]
    assert sorted(names) == sorted(name for name in vars(sync_files.Files) if not name.startswith("_"))
    assert {"read", "read_bytes", "write", "stat", "list", "exists", "mkdir", "rename", "remove", "glob"} <= set(names)
    for name in names:
        one, other = getattr(ringfence.Files, name), getattr(sync_files.Files, name)
        assert [*inspect.signature(one).parameters.items()] == [*inspect.signature(other).parameters.items()], name


# What things are


def test_what_is_at_a_path_is_told_by_kind_size_mode_and_time(box: Sandbox, workspace: Path) -> None:
    (workspace / "plain").write_bytes(b"12345")
    (workspace / "plain").chmod(0o640)
    os.utime(workspace / "plain", ns=(5, 1_234_567_890_123_456_789))
    (workspace / "tool").write_text("#!/bin/sh\n")
    (workspace / "tool").chmod(0o755)
    (workspace / "folder").mkdir()
    (workspace / "link").symlink_to("plain")
    (workspace / "away").symlink_to("/etc/passwd")
    os.mkfifo(workspace / "fifo")
    with open(workspace / "sparse", "wb") as sparse:
        sparse.truncate(10 << 30)
    listed = {info.path: info for info in box.files.list()}
    kinds = {name: info.kind for name, info in listed.items()}
    assert kinds == {
        **dict.fromkeys(("plain", "tool", "sparse"), "file"),
        "folder": "dir",
        "link": "link",
        "away": "link",
        "fifo": "other",
    }
    assert (listed["plain"].size, listed["plain"].mode, listed["plain"].modified) == (5, 0o640, 1_234_567_890_123_456_789)
    assert listed["sparse"].size == 10 << 30 and listed["tool"].executable and not listed["plain"].executable
    for name, info in listed.items():
        assert dataclasses.replace(box.files.stat(name), path=name) == info
    with pytest.raises(dataclasses.FrozenInstanceError):
        listed["plain"].size = 0  # type: ignore[misc]


def test_names_of_every_kind_survive_every_operation(box: Sandbox, workspace: Path) -> None:
    for name in NAMES:
        text = os.fsdecode(name)
        box.files.write(text, name)
        assert (Path(os.fsdecode(os.fsencode(workspace) + b"/" + name))).read_bytes() == name == box.files.read_bytes(text)
        assert box.files.stat(text).size == len(name) and box.files.exists(text)
        assert [info.path for info in box.files.list()] == [text] == box.files.glob("*") == box.files.glob("**")
        box.files.rename(text, "moved")
        box.files.rename("moved", text)
        box.files.remove(text)
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", [".hidden.py", "top.py"]),
        ("**/*.py", [".config/deep.py", ".hidden.py", "src/a.py", "src/in/b.py", "top.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**", ["src/.env", "src/a.py", "src/in", "src/in/b.py", "src/in/note.txt"]),
        ("**/.env", [".env", "src/.env"]),
        ("./src/[!b].py", ["src/a.py"]),
        ("src/in/[ab].py", ["src/in/b.py"]),
        ("src", ["src"]),
        ("src/in/", ["src/in"]),
        ("nowhere/*", []),
        ("top.py/*", []),
        ("loop/**", []),
        ("s?c", ["src"]),
    ],
)
def test_a_glob_finds_what_its_pattern_says(pattern: str, expected: list[str], box: Sandbox, workspace: Path) -> None:
    for name in ("top.py", ".hidden.py", ".env", "src/a.py", "src/.env", "src/in/b.py", "src/in/note.txt", ".config/deep.py"):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (workspace / "loop").symlink_to("loop")
    assert box.files.glob(pattern) == expected


def test_a_glob_follows_no_link_and_stays_below_the_workspace(box: Sandbox, workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "real/f.py").write_text("")
    (workspace / "up").symlink_to("..")
    (workspace / "again").symlink_to("real")
    assert box.files.glob("**/*.py") == ["real/f.py"]
    assert box.files.glob(f"{workspace}/*/f.py") == [f"{workspace}/real/f.py"]
    for pattern, error in (
        ("../*", errors.ArgumentError),
        ("{a,b}", errors.ArgumentError),
        ("", errors.ArgumentError),
        ("/etc/*", errors.OutsideError),
    ):
        with pytest.raises(error):
            box.files.glob(pattern)
    with pytest.raises(errors.OutsideError):
        box.files.glob("up/*")


# Links that were made inside


def plant(box: Sandbox, outside: Path) -> None:
    box.execute(
        f"import os\nos.symlink('/etc/passwd', 'report.txt')\nos.symlink({str(outside)!r}, 'out')\n"
        "os.symlink('.', 'loop')\nos.symlink('/', 'rootlink')\nos.symlink('me', 'me')\n"
        "os.mkdir('sub')\nopen('sub/kept', 'w').write('kept')\nos.symlink('sub', 'inside')"
    ).raise_for_status()


def test_no_operation_goes_through_a_link_that_leads_out(box: Sandbox, workspace: Path, outside: Path) -> None:
    plant(box, outside)
    before = state(outside)
    f = box.files
    acts = {
        "read": lambda: f.read("report.txt"),
        "read below": lambda: f.read("out/existing"),
        "write": lambda: f.write("out/new.txt", b"x"),
        "overwrite": lambda: f.write("out/existing", b"x"),
        "write over": lambda: f.write("report.txt", b"x"),
        "remove": lambda: f.remove("out/existing"),
        "remove recursively": lambda: f.remove("out/existing", recursive=True),
        "make": lambda: f.mkdir("out/folder"),
        "rename from": lambda: f.rename("out/existing", "taken"),
        "rename to": lambda: f.rename("sub/kept", "out/kept"),
        "stat": lambda: f.stat("out/existing"),
        "exists": lambda: f.exists("out/existing"),
        "list": lambda: f.list("out"),
        "glob": lambda: f.glob("out/*"),
        "through the root": lambda: f.read("rootlink/etc/passwd"),
        "read_file": lambda: box.read_file("out/existing"),
        "write_file": lambda: box.write_file("out/existing", ""),
    }
    wrong = {}
    for kind, act in acts.items():
        try:
            act()  # type: ignore[no-untyped-call]
            wrong[kind] = "was done"
        except errors.OutsideError:
            pass
        except Exception as other:
            wrong[kind] = repr(other)
    assert wrong == {} and state(outside) == before
    # Links that stay inside keep working, and a link itself can be looked at, moved and removed.
    assert f.read("inside/kept") == "kept" == f.read("loop/loop/sub/kept")
    f.write("inside/new", "x")
    assert (workspace / "sub/new").read_text() == "x" and f.stat("out").kind == "link"
    f.rename("out", "renamed")
    f.remove("renamed", recursive=True)
    f.remove("rootlink")
    f.remove("loop", recursive=True)
    assert state(outside) == before and (workspace / "sub/kept").read_text() == "kept"


@pytest.mark.parametrize("tier", ["namespaces", "process"])
def test_a_box_without_a_folder_of_the_host_follows_the_same_rule(tier: str, outside: Path) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        plant(box, outside)
        for path in ("report.txt", "rootlink/etc/passwd"):
            with pytest.raises(errors.OutsideError):
                box.files.read(path)
        with pytest.raises(errors.PathError):  # in the namespaces box the name leads to its own temporary folder
            box.files.read("out/existing")
        # The control: without ringfence's rule the same names lead there, where the tier has no boundary.
        reached = box.run(["cat", "out/existing"])
        assert (reached.stdout == "keep") is (tier == "process")
        assert box.files.read("inside/kept") == "kept"
    assert state(outside) == {str(outside / "existing"): "keep"}


def test_a_name_that_turns_into_a_link_under_the_call_reaches_nothing_outside(box: Sandbox, workspace: Path, outside: Path) -> None:
    (workspace / "d").mkdir()
    swap = f"import os\nos.mkdir('e')\nos.symlink({str(outside)!r}, 'l')\n"
    swap += "while True:\n os.rename('d', 'x'); os.rename('l', 'd'); os.rename('d', 'l'); os.rename('x', 'd')"
    with box.spawn(["python3", "-c", swap], timeout=60):
        for at in range(60):
            for act in (lambda at=at: box.files.write(f"d/f{at}", "x"), lambda: box.files.read("d/existing")):
                try:
                    assert act() != "keep"
                except (errors.PathError, FileNotFoundError):
                    pass
    assert state(outside) == {str(outside / "existing"): "keep"}


# Files that are no plain files


@pytest.fixture
def odd(workspace: Path) -> Iterator[Path]:
    os.mkfifo(workspace / "fifo")
    with open(workspace / "sparse", "wb") as sparse:
        sparse.truncate(10 << 30)
    (workspace / "me").symlink_to("me")
    (workspace / "plain").write_text("x")
    (workspace / "full").mkdir()
    (workspace / "full/f").write_text("")
    (workspace / "closed").mkdir()
    (workspace / "closed/f").write_text("")
    (workspace / "closed").chmod(0)
    yield workspace
    (workspace / "closed").chmod(0o755)


def test_each_thing_that_cannot_be_done_has_its_own_error(box: Sandbox, odd: Path) -> None:
    f = box.files
    expected: dict[str, tuple[object, type[Exception], type[Exception]]] = {
        "read a fifo": (lambda: f.read("fifo"), errors.NotAFileError, ValueError),
        "read a sparse file": (lambda: f.read("sparse"), errors.FileTooLargeError, ValueError),
        "read a folder": (lambda: f.read("full"), errors.NotAFileError, ValueError),
        "read nothing": (lambda: f.read("none"), errors.PathNotFoundError, FileNotFoundError),
        "read a loop": (lambda: f.read("me"), errors.PathNotFoundError, FileNotFoundError),
        "write a fifo": (lambda: f.write("fifo", "x"), errors.NotAFileError, ValueError),
        "stat nothing": (lambda: f.stat("none"), errors.PathNotFoundError, FileNotFoundError),
        "list a file": (lambda: f.list("plain"), errors.NotAFolderError, NotADirectoryError),
        "list nothing": (lambda: f.list("none"), errors.PathNotFoundError, FileNotFoundError),
        "list what is closed": (lambda: f.list("closed"), errors.FileRefusedError, OSError),
        "read what is closed": (lambda: f.read("closed/f"), errors.FileRefusedError, OSError),
        "make what is there": (lambda: f.mkdir("full", parents=False), errors.PathExistsError, FileExistsError),
        "make over a file": (lambda: f.mkdir("plain"), errors.PathExistsError, FileExistsError),
        "make below nothing": (lambda: f.mkdir("a/b", parents=False), errors.PathNotFoundError, FileNotFoundError),
        "remove nothing": (lambda: f.remove("none"), errors.PathNotFoundError, FileNotFoundError),
        "remove a full folder": (lambda: f.remove("full"), errors.FolderNotEmptyError, OSError),
        "remove the workspace": (lambda: f.remove(".", recursive=True), errors.OutsideError, PermissionError),
        "rename the workspace": (lambda: f.rename(".", "x"), errors.OutsideError, PermissionError),
        "rename nothing": (lambda: f.rename("none", "x"), errors.PathNotFoundError, FileNotFoundError),
        "rename onto a full folder": (lambda: (f.mkdir("e"), f.rename("e", "full")), errors.FolderNotEmptyError, OSError),
        "a NUL": (lambda: f.stat("a\0"), errors.ArgumentError, ValueError),
        "outside": (lambda: f.list("/etc"), errors.OutsideError, PermissionError),
    }
    wrong = {}
    for kind, (act, error, cousin) in expected.items():
        try:
            act()  # type: ignore[operator]
            wrong[kind] = "was done"
        except error as caught:
            if not isinstance(caught, cousin) or not str(caught).endswith("."):
                wrong[kind] = f"{caught!r}: {caught}"
        except Exception as other:
            wrong[kind] = repr(other)
    assert wrong == {}
    assert not f.exists("me") and not f.exists("none") and f.exists("fifo") and f.stat("me").kind == "link"
    assert (odd / "plain").read_text() == "x" and stat.S_ISFIFO((odd / "fifo").stat().st_mode)
    f.remove("fifo")
    f.remove("sparse")
    f.remove("me")
    f.remove("full", recursive=True)
    assert sorted(os.listdir(odd)) == ["closed", "e", "plain"]


def test_a_file_that_grows_while_it_is_read_is_returned_within_the_bound_or_refused(box: Sandbox, workspace: Path) -> None:
    stop = threading.Event()

    def grow() -> None:
        with open(workspace / "log", "ab", buffering=0) as file:
            while not stop.is_set() and file.tell() < files.MAX_READ * 2:
                file.write(b"x" * 65536)

    (workspace / "log").write_bytes(b"")
    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(8):
            try:
                assert len(box.files.read_bytes("log")) <= files.MAX_READ
            except errors.FileTooLargeError:
                break
    finally:
        stop.set()
        writer.join()
    (workspace / "log").write_bytes(b"y" * files.MAX_READ)
    assert len(box.files.read_bytes("log")) == files.MAX_READ
    with open(workspace / "log", "ab") as file:
        file.write(b"y")
    with pytest.raises(errors.FileTooLargeError):
        box.files.read_bytes("log")


def test_a_folder_of_a_hundred_thousand_entries_is_listed_whole_and_removed() -> None:
    with Sandbox() as box:  # its workspace is memory
        make = "import os\nos.mkdir('many')\nfor n in range(100_000): os.close(os.open(f'many/{n:06}', os.O_CREAT))"
        box.execute(make).raise_for_status()
        listed = box.files.list("many")
        assert len(listed) == 100_000 and listed[0].path == "000000" and listed[-1].path == "099999"
        assert box.files.glob("many/0999*9") == [f"many/0999{n}9" for n in range(10)]
        box.files.remove("many", recursive=True)
        assert not box.files.exists("many")


def test_an_operation_that_does_not_end_is_ended_and_says_so() -> None:
    error = files.refused(CapHit("wall", 30.0, 30.0, "guest"), b"", "slow")
    assert isinstance(error, errors.FileTimeError) and isinstance(error, TimeoutError) and "30" in str(error)


def test_a_read_only_box_changes_nothing(workspace: Path) -> None:
    (workspace / "kept").write_text("kept")
    for mode, allowed in (("read-only", False), ("workspace-write", True)):
        with Sandbox(SandboxConfig(workspace=workspace, mode=mode)) as box:
            f = box.files
            acts = (lambda f=f: f.mkdir("d"), lambda f=f: f.rename("kept", "moved"), lambda f=f: f.remove("moved"))
            for act in acts:
                if allowed:
                    act()
                else:
                    with pytest.raises(errors.OutsideError):
                        act()
            assert allowed or f.read("kept") == "kept"
    assert os.listdir(workspace) == ["d"]


def test_looking_at_files_takes_no_new_name_from_a_run(box: Sandbox) -> None:
    with box.spawn(["sh", "-c", "echo x > made; read line"]) as process:
        while not box.files.exists("made"):
            pass
        box.files.list()
        process.stdin.write(b"\n")
        assert process.wait().files_created == ("made",)
    box.files.write("by the caller", "x")
    assert box.run(["true"]).files_created == ()


# What the box says is believed in nothing


@given(some.binary(max_size=64) | some.text("0123456789 -fd/.\0", max_size=40).map(str.encode))
def test_an_entry_is_one_or_is_refused(data: bytes) -> None:
    try:
        info = files.parse_entry(data)
    except errors.ProtocolError:
        return
    assert info.kind in ("file", "dir", "link", "other") and info.size >= 0 and 0 <= info.mode <= 0o7777
    assert "/" not in info.path and info.path not in ("", ".", "..")


@given(some.integers(0, 0o177777), some.integers(0, (1 << 63) - 1), some.integers(-(1 << 62), 1 << 62), some.binary(min_size=1))
def test_an_entry_that_is_one_is_read_as_it_is(mode: int, size: int, modified: int, name: bytes) -> None:
    if b"/" in name or b"\0" in name or name in (b".", b".."):
        return
    info = files.parse_entry(b"%o %d %d %b" % (mode, size, modified, name))
    assert (info.size, info.mode, info.modified, os.fsencode(info.path)) == (size, mode & 0o7777, modified, name)


@given(some.binary(max_size=200))
def test_a_refusal_is_a_path_error_whatever_it_says(said: bytes) -> None:
    for outcome in (Exited(3), Exited(1), Exited(200)):
        assert isinstance(files.refused(outcome, said, "p"), errors.PathError)


def test_the_blocking_face_is_the_one_of_sync(box: sync.Sandbox) -> None:
    assert isinstance(box.files, sync_files.Files)
