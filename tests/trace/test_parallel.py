"""Many write at once: nobody meets a lock, no row is lost, and kill -9 of one of them costs nothing that was reported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from ringfence import sync
from ringfence.errors import TraceError
from ringfence.trace import Trace
from ringfence.trace.reader import Reader
from ringfence.trace.verify import verify
from trace_killing import rounds
from trace_writing import rows

WRITING = Path(__file__).parent.parent / "trace_writing.py"


def writers(path: str, processes: int, threads: int, count: int) -> None:
    started = [
        subprocess.Popen([sys.executable, str(WRITING), "rows", path, str(threads), str(count)], stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    said = [each.communicate(timeout=100)[1] for each in started]
    assert [each.returncode for each in started] == [0] * processes, said


def counted(path: str) -> Counter[str]:
    with Reader(path) as reader:
        assert verify(reader).ok
        return Counter(row.kind for row in reader.rows())


def test_sixteen_processes_with_eight_threads_each_begin_one_trace_and_lose_no_row(path: str) -> None:
    reading = threading.Event()
    failed: list[BaseException] = []

    def poll() -> None:
        while not reading.wait(0.05):
            try:
                with Reader(path) as reader:
                    reader.runs(20)
            except TraceError as error:  # it is not made yet
                if error.kind not in ("access", "foreign"):
                    failed.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        writers(path, 16, 8, 20)
    finally:
        reading.set()
        reader.join()
    assert not failed
    assert counted(path) == {"trace": 1, "run": 2560}


def test_sixty_four_processes_write_at_once(path: str) -> None:
    rows(path, 1, 1)
    writers(path, 64, 1, 20)
    assert counted(path) == {"trace": 1, "run": 1 + 64 * 20}


@pytest.mark.live("namespaces")
def test_threads_of_one_process_record_their_boxes_in_one_trace(path: str) -> None:
    failed: list[BaseException] = []

    def work(trace: Trace) -> None:
        try:
            with sync.Sandbox(trace=trace) as box:
                for _ in range(5):
                    assert box.run(["true"]).notes == ()
        except BaseException as error:
            failed.append(error)

    with Trace() as trace:
        threads = [threading.Thread(target=work, args=(trace,)) for _ in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not failed
    assert counted(path) == {"trace": 1, "box": 6, "run": 30, "end": 30, "gone": 6}


@pytest.mark.live("namespaces")
def test_what_was_reported_is_there_after_kill_9_of_anybody(tmp_path: Path) -> None:
    seen = rounds(str(tmp_path), 6, 1)
    assert set(seen) == {"caller", "zygote", "writer"} and sum(seen.values()) >= 6
