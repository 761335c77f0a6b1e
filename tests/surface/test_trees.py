"""Files and trees go into a box and come out of it; what comes out reaches nothing but the place that was named."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some

import ringfence
from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.world import files
from ringfence.world.trees import places, receive, send
from ringfence.world.trees.write import Writer, leads_inside

pytestmark = pytest.mark.live("namespaces")

NAMES = [b"plain", b"a\nb", b"-rf", b" ", b"\xff\xfe", b"*", b"n" * 255, b"...", b".dot", b"end"]


def make_tree(root: Path) -> None:
    (root / "src/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    for name in NAMES:
        with open(os.fsencode(root / "src") + b"/" + name, "wb") as file:
            file.write(name * 10)
    (root / "src/deep/tool").write_text("#!/bin/sh\necho ran\n")
    (root / "src/deep/tool").chmod(0o755)
    (root / "src/private").write_text("p")
    (root / "src/private").chmod(0o600)
    (root / "src/empty").write_text("")
    (root / "big").write_bytes(os.urandom(3 << 20))
    (root / "link").symlink_to("src/plain")
    (root / "src/up").symlink_to("../big")
    (root / "src/dangling").symlink_to("nowhere")
    os.utime(root / "big", ns=(1, 1_500_000_000_123_456_789))


def told(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Every entry below root: its kind, its permission bits, its content or target."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    for folder, folders, names in os.walk(os.fsencode(root)):
        for name in folders + names:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(root))
            if stat.S_ISLNK(info.st_mode):
                found[key] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                found[key] = ("dir", info.st_mode & 0o777, b"")
            else:
                with open(path, "rb") as file:
                    found[key] = ("file", info.st_mode & 0o7777, file.read())
    return found


@pytest.fixture
def caller(tmp_path: Path) -> Path:
    """A folder of the caller's, which no box shares."""
    folder = tmp_path / "caller"
    folder.mkdir()
    return folder


# There and back


def test_a_tree_comes_back_as_it_went(tier: str, caller: Path) -> None:
    (caller / "tree").mkdir()
    make_tree(caller / "tree")
    with Sandbox(SandboxConfig(tier=tier)) as box:
        sent = box.upload(caller / "tree", "in/tree")
        assert sent.path.endswith("/in/tree") and sent.refused == ()
        assert box.run(["in/tree/src/deep/tool"]).stdout == "ran\n"
        assert box.run(["cat", "in/tree/link"]).stdout == "plain" * 10
        assert (
            box.run(["stat", "-c", "%a %Y", "in/tree/big"]).stdout
            == f"{(caller / 'tree/big').stat().st_mode & 0o777:o} 1500000000\n"
        )
        back = box.download("in/tree", caller / "back")
    assert back.path == str(caller / "back") and back.refused == ()
    assert (back.files, back.folders, back.links, back.bytes) == (sent.files, sent.folders, sent.links, sent.bytes)
    assert told(caller / "back") == told(caller / "tree")
    assert (caller / "back/big").stat().st_mtime_ns == 1_500_000_000_123_456_789
    assert (sent.files, sent.links) == (len(NAMES) + 4, 3)


def test_one_file_goes_and_comes_too(box: Sandbox, workspace: Path, caller: Path) -> None:
    (caller / "one").write_bytes(b"\0\xff" * 100_000)
    assert box.upload(caller / "one", "d/one").files == 1
    assert (workspace / "d/one").read_bytes() == b"\0\xff" * 100_000
    os.symlink("one", workspace / "d/link")
    assert box.download("d/link", caller / "two").files == 1
    assert (caller / "two").read_bytes() == b"\0\xff" * 100_000 and not (caller / "two").is_symlink()
    (caller / "mine").symlink_to("one")  # a link of the caller's own is followed
    assert box.upload(caller / "mine", "three").files == 1 and (workspace / "three").is_file()


async def test_both_go_with_await(workspace: Path, caller: Path) -> None:
    (caller / "tree").mkdir()
    make_tree(caller / "tree")
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        sent = await box.upload(caller / "tree", "tree")
        assert isinstance(sent, ringfence.Transfer) and sent.refused == ()
        await box.download("tree", caller / "back")
    assert told(caller / "back") == told(caller / "tree") == told(workspace / "tree")


def test_what_is_there_is_replaced_only_when_that_was_said(box: Sandbox, workspace: Path, caller: Path) -> None:
    (caller / "tree/sub").mkdir(parents=True)
    (caller / "tree/sub/f").write_text("new")
    (workspace / "tree/sub").mkdir(parents=True)
    (workspace / "tree/sub/f").write_text("old")
    (workspace / "tree/sub/other").write_text("other")
    for act, there in (
        (lambda **how: box.upload(caller / "tree", "tree", **how), workspace / "tree/sub/f"),
        (lambda **how: box.download("tree", caller / "tree", **how), caller / "tree/sub/f"),
    ):
        before = there.read_text()
        with pytest.raises(errors.PathExistsError) as caught:
            act()  # type: ignore[no-untyped-call]
        assert isinstance(caught.value, FileExistsError) and there.read_text() == before
        there.write_text("to be replaced")
        act(overwrite=True)  # type: ignore[no-untyped-call]
        assert there.read_text() == "new"
    assert sorted(os.listdir(caller / "tree/sub")) == ["f", "other"]
    with pytest.raises(errors.PathError):
        box.upload(caller / "tree/sub/f", "tree/sub", overwrite=True)
    (caller / "file").write_text("")
    with pytest.raises(errors.PathExistsError):
        box.download("tree", caller / "file", overwrite=True)
    with pytest.raises(errors.PathExistsError):
        box.download("tree/sub/f", caller / "tree", overwrite=True)


# What a box plants


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "f").write_text("keep")
    (folder / "f").chmod(0o600)
    return folder


def unharmed(victim: Path) -> bool:
    return told(victim) == {b"f": ("file", 0o600, b"keep")}


def test_links_that_lead_out_are_left_out_by_name_and_those_that_stay_are_kept(
    box: Sandbox, workspace: Path, caller: Path, victim: Path
) -> None:
    box.execute(
        f"import os\nos.makedirs('t/in/er')\nos.chdir('t')\nopen('real', 'w').write('x')\n"
        f"for name, target in {{'abs': {str(victim)!r}, 'up': '../..', 'root': '/', 'dots': 'in/../..', 'trick': 'self/../x',\n"
        "  'self': '.', 'ok': 'real', 'in/ok': '../real', 'in/er/ok': '../../in/ok', 'gone': 'nowhere', 'loop': 'loop'}.items():\n"
        "    os.symlink(target, name)\nos.mkfifo('fifo')\nimport socket; socket.socket(socket.AF_UNIX).bind('sock')"
    ).raise_for_status()
    got = box.download("t", caller / "t")
    assert {name: why for name, why in got.refused if "link" not in why} == {"fifo": "it is a FIFO", "sock": "it is a socket"}
    assert sorted(name for name, why in got.refused if "link" in why) == ["abs", "dots", "root", "trick", "up"]
    assert (got.links, got.files, got.folders) == (6, 1, 3) and unharmed(victim)
    for folder, folders, names in os.walk(caller / "t"):
        for name in folders + names:
            real = os.path.realpath(os.path.join(folder, name))
            assert real == str(caller / "t") or real.startswith(f"{caller}/t/"), name
    assert (caller / "t/in/er/ok").read_text() == "x"


def test_nothing_is_written_through_a_link_at_the_destination(box: Sandbox, workspace: Path, caller: Path, victim: Path) -> None:
    (workspace / "t/sub").mkdir(parents=True)
    (workspace / "t/sub/f").write_text("from the box")
    (workspace / "t/f").write_text("from the box")
    shapes: dict[str, Callable[[Path], None]] = {
        "the destination": lambda at: at.symlink_to(victim),
        "a folder in it": lambda at: (at.mkdir(), (at / "sub").symlink_to(victim), None)[-1],
        "a file in it": lambda at: (at.mkdir(), (at / "f").symlink_to(victim / "f"), None)[-1],
    }
    for overwrite in (False, True):
        for kind, make in shapes.items():
            at = caller / f"{kind} {overwrite}"
            make(at)
            if kind == "a file in it" and overwrite:
                box.download("t", at, overwrite=True)  # the link itself is replaced
                assert (at / "f").read_text() == "from the box" and not (at / "f").is_symlink()
            else:
                with pytest.raises(errors.PathExistsError):
                    box.download("t", at, overwrite=overwrite)
            assert unharmed(victim), kind
    # A second name of a victim's file is replaced and not written through either; and the control: a plain folder is written.
    (caller / "hard").mkdir()
    os.link(victim / "f", caller / "hard/f")
    box.download("t", caller / "hard", overwrite=True)
    assert (caller / "hard/f").read_text() == "from the box" and unharmed(victim)
    assert box.download("t", caller / "plain").files == 2


def test_a_new_link_does_not_lead_through_an_older_one(box: Sandbox, workspace: Path, caller: Path, victim: Path) -> None:
    (workspace / "t").mkdir()
    (workspace / "t/new").symlink_to("old/f")
    (caller / "t").mkdir()
    (caller / "t/old").symlink_to(victim)
    with pytest.raises(errors.PathExistsError):
        box.download("t", caller / "t", overwrite=True)
    assert sorted(os.listdir(caller / "t")) == ["old"]
    (caller / "t/old").unlink()
    assert box.download("t", caller / "t", overwrite=True).links == 1


def test_a_path_of_the_caller_s_goes_through_no_link_of_the_box(box: Sandbox, workspace: Path, caller: Path, victim: Path) -> None:
    (victim / "secret").mkdir()
    (victim / "secret/key").write_text("key")
    (workspace / "t").write_text("x")
    box.execute(f"import os\nos.symlink({str(victim)!r}, 'out')\nos.mkdir('real')\nos.symlink('real', 'alias')").raise_for_status()
    (caller / "mine").symlink_to(workspace)  # the caller's own way into the workspace
    (caller / "deeper").symlink_to(workspace / "out/secret")
    for local in (
        workspace / "out/secret/key",
        workspace / "out",
        caller / "mine/out/secret",
        caller / "deeper",
        caller / "deeper/key",
    ):
        with pytest.raises(errors.OutsideError):
            box.upload(local, "stolen")
    for local in (workspace / "out/new", workspace / "alias/new", caller / "mine/out/new", caller / "deeper/new"):
        with pytest.raises(errors.OutsideError):
            box.download("t", local)
    assert not (workspace / "stolen").exists() and sorted(os.listdir(victim)) == ["f", "secret"]
    # The control: ways without a planted link lead where they say, and the caller's own links are followed.
    assert box.download("t", caller / "mine/real/new").files == 1 and (workspace / "real/new").read_text() == "x"
    assert box.upload(caller / "mine/real", "copied").files == 1
    (caller / "own").symlink_to(victim / "secret")
    assert box.upload(caller / "own", "given").files == 1 and (workspace / "given/key").read_text() == "key"


def test_a_tree_sent_in_goes_through_no_link_on_either_side(box: Sandbox, workspace: Path, caller: Path, victim: Path) -> None:
    (caller / "t").mkdir()
    (caller / "t/away").symlink_to(victim)
    (caller / "t/f").write_text("new")
    os.mkfifo(caller / "t/fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(caller / "t", os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{here}/sock")
        os.close(here)
        sent = box.upload(caller / "t", "t")
    assert (sent.files, sent.links, dict(sent.refused)) == (1, 1, {"fifo": "it is a FIFO", "sock": "it is a socket"})
    assert os.readlink(workspace / "t/away") == str(victim) and box.run(["ls", "t/away/"]).exit_code != 0
    (workspace / "t/f").unlink()
    (workspace / "t/f").symlink_to(victim / "f")
    with pytest.raises(errors.PathExistsError):
        box.upload(caller / "t", "t")
    (workspace / "t/away").unlink()
    box.upload(caller / "t", "t", overwrite=True)
    assert (workspace / "t/f").read_text() == "new" and not (workspace / "t/f").is_symlink() and unharmed(victim)
    (workspace / "out").symlink_to(victim)
    with pytest.raises(errors.OutsideError):
        box.upload(caller / "t", "out/t")
    with pytest.raises(errors.NotAFileError):
        box.upload(caller / "t/fifo", "x")
    with pytest.raises(errors.PathNotFoundError):
        box.upload(caller / "none", "x")


def test_set_id_bits_never_come_out(box: Sandbox, workspace: Path, caller: Path) -> None:
    (workspace / "t").mkdir()
    (workspace / "t/f").write_text("x")
    (workspace / "t/f").chmod(0o6755)
    (workspace / "t/d").mkdir()
    (workspace / "t/d").chmod(0o3777)
    box.download("t", caller / "t")
    assert stat.S_IMODE((caller / "t/f").stat().st_mode) == 0o755
    assert not stat.S_IMODE((caller / "t/d").stat().st_mode) & 0o7000
    before = os.umask(0o077)
    try:
        box.download("t/f", caller / "masked")
    finally:
        os.umask(before)
    assert stat.S_IMODE((caller / "masked").stat().st_mode) == 0o700


# Bounds


def test_both_ways_are_bounded_by_bytes_and_by_entries(box: Sandbox, workspace: Path, caller: Path) -> None:
    for root in (workspace, caller):
        (root / "t").mkdir()
        for number in range(5):
            (root / f"t/{number}").write_bytes(b"x" * 1000)
        with open(root / "sparse", "wb") as sparse:
            sparse.truncate(10 << 30)
    ways = {
        "up": lambda name, **how: box.upload(caller / name, f"up/{name}", overwrite=True, **how),
        "down": lambda name, **how: box.download(name, caller / f"down {name}", overwrite=True, **how),
    }
    for way in ways.values():
        for how in ({"max_bytes": 4999}, {"max_files": 4}):
            with pytest.raises(errors.FileTooLargeError):
                way("t", **how)
        assert way("t", max_bytes=5000, max_files=6).files == 5
        with pytest.raises(errors.FileTooLargeError):
            way("sparse")
        for bad in ({"max_bytes": 0}, {"max_files": -1}, {"max_files": True}, {"timeout": 0}, {"max_bytes": 1.5}):
            with pytest.raises(errors.ArgumentError):
                way("t", **bad)
    assert sum(len(files) for _, _, files in os.walk(caller / "down sparse")) == 0


def test_what_cannot_be_read_is_named_and_the_rest_comes(box: Sandbox, workspace: Path, caller: Path) -> None:
    box.execute(
        "import os\nos.makedirs('t/closed')\nopen('t/closed/f', 'w')\nopen('t/unreadable', 'w')\nopen('t/ok', 'w')\n"
        "os.chmod('t/closed', 0)\nos.chmod('t/unreadable', 0)\n"
        "os.makedirs('t/deep'); os.chdir('t/deep')\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w')"
    ).raise_for_status()
    got = box.download("t", caller / "t")
    refused = dict(got.refused)
    assert (refused["closed"], refused["unreadable"]) == ("Permission denied",) * 2 and len(refused) == 3
    assert sorted(os.listdir(caller / "t")) == ["closed", "deep", "ok"] and got.files == 1
    box.execute("import os\nos.chmod('t/closed', 0o700)").raise_for_status()


def test_a_local_side_that_refuses_is_an_error_of_the_host(box: Sandbox, workspace: Path, caller: Path) -> None:
    (workspace / "f").write_text("x")
    with pytest.raises(errors.PathNotFoundError):
        box.download("f", caller / "none/f")
    (caller / "file").write_text("")
    with pytest.raises(errors.NotAFolderError):
        box.download("f", caller / "file/f")
    with pytest.raises(errors.HostError):
        box.download("f", "/sys/kernel/f")
    with pytest.raises(errors.ArgumentError):
        box.download("f", f"{caller}/a\0b")
    with pytest.raises(errors.PathNotFoundError):
        box.download("none", caller / "x")
    assert box.download("f", caller / "g").files == 1 and not (caller / "x").exists()


def test_a_transfer_that_takes_too_long_is_ended_and_says_so(box: Sandbox, caller: Path) -> None:
    box.execute("import os\nos.mkdir('t')\nfor n in range(3000): os.close(os.open(f't/{n}', os.O_CREAT))").raise_for_status()
    with pytest.raises(errors.FileTimeError) as caught:
        box.download("t", caller / "late", timeout=0.001)
    assert isinstance(caught.value, TimeoutError)
    assert box.download("t", caller / "t").files == 3000  # the control
    with pytest.raises(errors.FileTimeError):
        box.upload(caller / "t", "back", timeout=0.001)
    assert box.upload(caller / "t", "back", overwrite=True).files == 3000


STOPPER = """
import os, signal
print("ready", flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) not in (1, os.getpid()): os.kill(int(pid), signal.SIGSTOP)
        except OSError: pass
"""


def test_a_program_that_stops_whatever_works_for_the_caller_does_not_hold_the_call(box: Sandbox, caller: Path) -> None:
    (caller / "big").write_bytes(b"x" * (16 << 20))
    with box.spawn(["python3", "-c", STOPPER]) as process:
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(errors.FileTimeError):
            box.upload(caller / "big", "big", timeout=1)
    assert box.upload(caller / "big", "big", overwrite=True).files == 1  # the control, and the box goes on


async def test_a_transfer_that_is_cancelled_ends_and_the_box_works(workspace: Path, caller: Path) -> None:
    (workspace / "big").write_bytes(b"x" * (64 << 20))
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        with anyio.move_on_after(0.01) as scope:
            await box.download("big", caller / "cut")
        assert scope.cancelled_caught and (caller / "cut").stat().st_size < 64 << 20
        with anyio.move_on_after(0.01) as scope:
            await box.upload(workspace / "big", "again")
        assert scope.cancelled_caught
        assert (await box.download("big", caller / "whole")).bytes == 64 << 20 == (caller / "whole").stat().st_size


def test_a_guest_that_sends_no_tree_loses_its_box(caller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(SandboxConfig(tier="process")) as box:
        box.files.write("evil", HOSTILE["a name that goes up"])
        asked = files.FileWork.request

        def lying(self: files.FileWork, do: str, path: str, more: dict[str, object], *, write: bool = False) -> dict[str, object]:
            return asked(self, "read", path, {"most": 1 << 20}) if do == "pack" else asked(self, do, path, more, write=write)

        monkeypatch.setattr(files.FileWork, "request", lying)  # the box answers with the bytes of a file instead
        with pytest.raises(errors.ProtocolError):
            box.download("evil", caller / "x")
        assert not (caller.parent / "x").exists() and os.listdir(caller / "x") == []
        with pytest.raises(errors.SandboxLostError):
            box.run(["true"])


# A hostile stream


class Recorded:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.made: dict[receive.Parts, bytes] = {}
        self.at: receive.Parts = ()

    def folder(self, parts: receive.Parts, mode: int) -> None:
        assert not mode & ~0o777
        self.made[parts] = b"/"

    def file(self, parts: receive.Parts, mode: int, modified: int) -> None:
        assert not mode & ~0o777
        self.at = parts
        self.made[parts] = b""

    def content(self, data: bytes) -> None:
        self.made[self.at] += data

    def end_of_file(self) -> None:
        pass

    def link(self, parts: receive.Parts, target: bytes) -> str | None:
        return None if leads_inside(len(parts) - 1, target) else "out"


ROOT = b"40755 0 0 \0"
END = b"end\0"
HOSTILE = {
    "a name that goes up": ROOT + b"100644 1 0 ../x\0a" + END,
    "a name that goes up later": ROOT + b"40755 0 0 a\0" + b"100644 1 0 a/../../x\0a" + END,
    "an absolute name": ROOT + b"100644 1 0 /etc/x\0a" + END,
    "an empty part": ROOT + b"100644 1 0 a//b\0a" + END,
    "a dot": ROOT + b"100644 1 0 ./a\0a" + END,
    "a long part": ROOT + b"100644 1 0 " + b"n" * 256 + b"\0a" + END,
    "a long record": ROOT + b"100644 1 0 " + b"n/" * 4000,
    "a second root": ROOT + ROOT + END,
    "no root": b"100644 1 0 a\0a" + END,
    "a root that is a link": b"120777 1 0 \0a" + END,
    "a root that is a device": b"20666 0 0 \0" + END,
    "an entry below a file": b"100644 0 0 \0" + b"100644 0 0 a\0" + END,
    "nothing": END,
    "less than nothing": b"",
    "cut in a record": ROOT + b"100644 1 0",
    "cut in content": ROOT + b"100644 5 0 a\0abc",
    "cut before the end": ROOT + b"100644 1 0 a\0a",
    "more after the end": ROOT + END + b"x",
    "a negative size": ROOT + b"100644 -1 0 a\0" + END,
    "a size past all files": ROOT + b"100644 99999999999999999999 0 a\0" + END,
    "a mode past all modes": ROOT + b"7777777 1 0 a\0a" + END,
    "an endless link": ROOT + b"120777 99999 0 a\0" + END,
    "no link": ROOT + b"120777 0 0 a\0" + END,
    "words": ROOT + b"mode size time a\0" + END,
}


def feed(parser: receive.Parser, stream: bytes, size: int) -> None:
    for start in range(0, len(stream), size):
        parser.feed(stream[start : start + size])
    parser.end()


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_stream_that_no_guest_of_ours_sends_is_refused_and_makes_nothing_outside(kind: str, size: int, caller: Path) -> None:
    at = caller / "at"
    writer = Writer(places.find(str(at), (), follow=False), str(at), overwrite=True)
    parser = receive.Parser(writer, 1 << 20, 100)
    stream = HOSTILE[kind]
    try:
        with pytest.raises(errors.ProtocolError):
            feed(parser, stream, size)
    finally:
        writer.close()
    assert set(os.listdir(caller)) <= {"at"}


def test_an_entry_of_a_folder_that_was_a_link_is_refused(caller: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    target = str(tmp_path / "victim").encode()
    link = b"120777 %d 0 d\0" % len(target) + target
    for stream in (ROOT + link + b"100644 1 0 d/f\0a" + END, ROOT + b"100644 1 0 d/f\0a" + END):
        at = caller / "at"
        writer = Writer(places.find(str(at), (), follow=False), str(at), overwrite=True)
        try:
            with pytest.raises(errors.ProtocolError):
                receive.Parser(writer, 1 << 20, 100).feed(stream)
        finally:
            writer.close()
    assert os.listdir(tmp_path / "victim") == []


PIECES = [
    b"40755 0 0 ",
    b"100644 3 0 ",
    b"100644 0 0 ",
    b"120777 2 0 ",
    b"10644 0 0 ",
    b"0 13 0 ",
    b"a",
    b"b",
    b"/",
    b"..",
    b"\0",
    b"abc",
    END,
]


@given(some.lists(some.sampled_from(PIECES), max_size=30).map(b"".join) | some.binary(max_size=200), some.integers(1, 64))
def test_whatever_comes_it_is_a_tree_or_an_error(stream: bytes, size: int) -> None:
    sink = Recorded()
    parser = receive.Parser(sink, 1 << 10, 20)
    try:
        feed(parser, stream, size)
    except (errors.ProtocolError, errors.FileTooLargeError):
        pass
    for parts in sink.made:
        assert not {"", ".", ".."} & set(parts) and not any("/" in part or "\0" in part for part in parts)
    assert len(sink.made) <= 20 and sum(map(len, sink.made.values())) <= 20 + (1 << 10)


@given(
    some.lists(some.sampled_from(["a", "b", "..", ".", "", "l"]), max_size=6),
    some.lists(some.sampled_from(["a", "b", "..", "l"]), max_size=6),
)
def test_links_that_are_kept_never_resolve_outside_whatever_they_are_together(one: list[str], two: list[str]) -> None:
    """Resolved here as the kernel does, in a tree with the folders a, b, a/a, a/b, with the links l and a/l."""
    links = {("l",): "/".join(one), ("a", "l"): "/".join(two)}
    kept = {at: target for at, target in links.items() if leads_inside(len(at) - 1, target.encode())}
    for start, target in kept.items():
        at = list(start[:-1])
        left = target.split("/")
        for _ in range(60):
            if not left:
                break
            name = left.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                assert at, (links, start)
                at.pop()
            elif (*at, name) in kept:
                left = kept[(*at, name)].split("/") + left
            else:
                at.append(name)


def test_the_two_sides_agree_on_the_stream(caller: Path) -> None:
    (caller / "t").mkdir()
    make_tree(caller / "t")
    place = places.find(str(caller / "t"), (), follow=True)
    sink = Recorded()
    parser = receive.Parser(sink, 1 << 30, 1000)
    for piece in send.Sending("t", 1 << 30, 1000).pieces(place):
        parser.feed(piece)
    place.close()
    parser.end()
    expected = {
        tuple(os.fsdecode(name).split("/")): value for name, (kind, _, value) in told(caller / "t").items() if kind == "file"
    }
    assert {parts: value for parts, value in sink.made.items() if value != b"/"} == expected
