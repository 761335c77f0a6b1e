"""A trace that cannot be used stops no run: the result is there and says that it was not recorded, unless that is required."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringfence import sync
from ringfence.errors import TraceError
from ringfence.outcome import Exited
from ringfence.recorder import NOT_RECORDED
from ringfence.trace import Trace, schema
from ringfence.trace.reader import Reader
from ringfence.trace.verify import verify

pytestmark = pytest.mark.live("namespaces")


def kept(path: str, rows: int = 300) -> None:
    """A trace with something in it."""
    from ringfence.trace.writer import Writer

    writer = Writer.of(path, "process")
    for _ in range(rows):
        writer.append("run", 0, b"{}", b"x" * 200)
    writer.release()


def other_program(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.commit()


def newer(path: str) -> None:
    kept(path, 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")


def corrupt(path: str) -> None:
    kept(path)
    content = bytearray(Path(path).read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    Path(path).write_bytes(content)


def cut(path: str) -> None:
    kept(path)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2 - 100])


FILES: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "text": (lambda path: Path(path).write_text("no database" * 1000), ("foreign",)),
    "another program's": (other_program, ("foreign",)),
    "newer": (newer, ("newer",)),
    "corrupt": (corrupt, ("corrupt",)),
    "cut short": (cut, ("corrupt",)),
    "a folder": (os.mkdir, ("access",)),
    "a link": (lambda path: os.symlink("/dev/null", path), ("access",)),
    "open to others": (lambda path: os.chmod(path, 0o644) if not kept(path) else None, ("access",)),
    "with a further name": (lambda path: os.link(path, f"{path}-2") if not kept(path) else None, ("access",)),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_trace_of_ours_is_left_alone_and_named(path: str, state: Path, what: str) -> None:
    state.mkdir(mode=0o700)
    make, kinds = FILES[what]
    make(path)
    if os.path.isfile(path) and what != "open to others":
        os.chmod(path, 0o600)
    before = Path(path).read_bytes() if os.path.isfile(path) else None
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        result = box.run(["echo", "x"])
    assert result.outcome == Exited(0) and result.stdout == "x\n"
    assert result.notes[-1].startswith(NOT_RECORDED) and path in result.notes[-1]
    with Trace(required=True) as trace, pytest.raises(TraceError) as caught, sync.Sandbox(trace=trace):
        pass
    assert caught.value.kind in kinds and caught.value.next_step
    if before is not None:
        assert Path(path).read_bytes() == before


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_refused(state: Path, mode: int) -> None:
    state.mkdir()
    state.chmod(mode)
    with Trace(required=True) as trace, pytest.raises(TraceError, match="open to others"), sync.Sandbox(trace=trace):
        pass
    state.chmod(0o700)
    with Trace(required=True) as trace, sync.Sandbox(trace=trace) as box:
        assert box.run(["true"]).ok


@pytest.mark.live("root")
def test_a_folder_of_somebody_else_is_refused(state: Path) -> None:
    state.mkdir(mode=0o700)
    os.chown(state, 12345, 12345)
    with Trace(required=True) as trace, pytest.raises(TraceError, match="belongs to uid 12345"), sync.Sandbox(trace=trace):
        pass


def test_a_lock_that_is_held_for_long_costs_one_wait_and_then_little(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "DEADLINE_SECONDS", 0.3)
    kept(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder, Trace() as trace:
        holder.execute("BEGIN IMMEDIATE")
        with sync.Sandbox(trace=trace) as box:
            results = [box.run(["echo", "x"]) for _ in range(5)]
            assert all(result.ok and "held by another program" in result.notes[-1] for result in results)
            holder.execute("ROLLBACK")
            assert box.run(["true"]).notes == ()  # and it goes on by itself
    with Reader(path) as reader:
        assert verify(reader).ok


def test_a_lock_that_is_held_for_a_while_is_waited_for(path: str) -> None:
    kept(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder, Trace(required=True) as trace:
        holder.execute("BEGIN IMMEDIATE")
        later = threading.Timer(0.3, holder.execute, ["ROLLBACK"])
        later.start()
        with sync.Sandbox(trace=trace) as box:
            assert box.run(["true"]).notes == ()
        later.join()


def test_a_trace_that_is_removed_while_it_is_open_is_begun_anew(path: str) -> None:
    with Trace() as trace, sync.Sandbox(trace=trace) as box:
        box.run(["true"])
        for name in (path, f"{path}-wal", f"{path}-shm"):
            os.unlink(name)
        assert box.run(["echo", "later"]).notes == ()
        with Reader(path) as reader:
            assert verify(reader).ok and reader.runs()[0].begun.body["argv"] == ["echo", "later"]


def until_full(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KiB, which only this test has."""
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.live("root")
def test_a_full_disk_stops_no_run_and_recording_goes_on_when_there_is_room(small_disk: Path) -> None:
    path = str(small_disk / "trace.db")
    with Trace(path) as trace, sync.Sandbox(trace=trace) as box:
        assert box.run(["true"]).notes == ()
        filler = small_disk / "filler"
        until_full(filler)
        results = [box.run(["sh", "-c", "head -c 40000 /dev/urandom"]) for _ in range(3)]
        assert all(result.ok and result.usage.stdout_bytes == 40000 for result in results)
        assert "disk" in results[-1].notes[-1] and results[-1].notes[-1].startswith(NOT_RECORDED)
        filler.unlink()
        assert box.run(["true"]).notes == ()
    with Reader(path) as reader:
        assert verify(reader).ok


@pytest.mark.live("root")
def test_a_required_record_that_finds_no_room_is_an_error_that_has_the_result(small_disk: Path) -> None:
    path = str(small_disk / "trace.db")

    def record_much() -> None:
        with Trace(path, required=True) as trace, sync.Sandbox(trace=trace) as box:
            for _ in range(100):
                box.run(["sh", "-c", "head -c 60000 /dev/urandom"])

    with pytest.raises(TraceError) as caught:
        record_much()
    assert caught.value.kind == "full"


@pytest.mark.live("root")
def test_a_file_system_that_cannot_be_written_is_named_and_can_be_read(small_disk: Path) -> None:
    path = str(small_disk / "trace.db")
    kept(path, 3)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Trace(path) as trace, sync.Sandbox(trace=trace) as box:
        result = box.run(["true"])
        assert result.ok and "cannot be" in result.notes[-1]
    with Reader(path) as reader:
        assert verify(reader).ok and len(list(reader.rows())) == 4


@pytest.mark.live("user")
def test_a_file_that_may_not_be_written_is_named_and_can_be_read(path: str, state: Path) -> None:
    kept(path, 3)
    os.chmod(path, 0o400)
    os.chmod(state, 0o500)
    try:
        with Trace() as trace, sync.Sandbox(trace=trace) as box:
            result = box.run(["true"])
            assert result.ok and result.notes[-1].startswith(NOT_RECORDED)
        with Reader(path) as reader:
            assert verify(reader).ok
    finally:
        os.chmod(state, 0o700)


def test_a_recorder_that_fails_in_its_own_way_is_a_note_too() -> None:
    class Broken(Trace):
        def run_ended(self, ended: object) -> None:
            raise KeyError("x")

    with Broken() as trace, sync.Sandbox(trace=trace) as box:
        assert "KeyError" in box.run(["true"]).notes[-1]
    with Broken(required=True) as trace, sync.Sandbox(trace=trace) as box, pytest.raises(TraceError) as caught:
        box.run(["true"])
    assert caught.value.result is not None and caught.value.result.outcome == Exited(0)


def test_what_is_required_and_cannot_be_recorded_leaves_no_box(state: Path) -> None:
    state.mkdir(mode=0o755)
    with Trace(required=True) as trace:
        box = sync.Sandbox(trace=trace)
        with pytest.raises(TraceError):
            box.__enter__()
        assert box._world is None


def test_a_policy_says_whether_it_is_recorded(state: Path, path: str, workspace: Path) -> None:
    config = sync.SandboxConfig(workspace=workspace, trace="required", trace_durability="power")
    with sync.Sandbox(config) as box:
        assert box.run(["true"]).notes == ()
    with Reader(path) as reader:
        assert [row.kind for row in reader.rows()] == ["trace", "box", "run", "end", "gone"]
    state.chmod(0o755)
    with pytest.raises(TraceError), sync.Sandbox(config):
        pass
    from ringfence.errors import ConfigError

    with Trace() as trace, pytest.raises(ConfigError), sync.Sandbox(config, trace=trace):
        pass


def test_a_fork_of_the_caller_has_a_connection_of_its_own(path: str) -> None:
    code = (
        "import os\nfrom ringfence.trace import Trace\nfrom ringfence.recorder import RunStarted\n"
        "trace = Trace()\nsay = lambda: trace.run_started(RunStarted(box_row=0, kind='argv', argv=('x',)))\n"
        "say()\n"
        "pids = [os.fork() or (say(), say(), trace.close(), os._exit(0)) for _ in range(4)]\n"
        "say()\nfor pid in pids: assert os.waitpid(pid, 0)[1] == 0\nsay()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with Reader(path) as reader:
        assert verify(reader).ok and len(reader.runs()) == 3 + 8


def test_reading_goes_on_while_others_write(path: str) -> None:
    kept(path, 1)
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            kept(path, 20)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen, until = 0, time.monotonic() + 20
        while seen < 400 and time.monotonic() < until:
            with Reader(path) as reader:
                assert verify(reader).ok
                seen = reader.last().number
    finally:
        over.set()
        writer.join()
    assert seen >= 400


def test_a_trace_without_a_file_is_an_error_to_read(path: str, state: Path) -> None:
    for folder in (False, True):
        if folder:
            state.mkdir(mode=0o700)
        with pytest.raises(TraceError, match="no trace"):
            Reader(path)
    shutil.rmtree(state)
