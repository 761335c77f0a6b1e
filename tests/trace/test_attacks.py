"""Whoever changes the file is found: rows edited, taken out, put in, moved, cut off; plans; forged anchors; all made anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.errors import ArgumentError, TraceError
from ringfence.policy.digest import digest
from ringfence.trace.chain import row_hash
from ringfence.trace.prune import prune
from ringfence.trace.reader import Reader
from ringfence.trace.verify import Head, Verdict, head, verify
from ringfence.trace.writer import Writer

ROWS = 20
Change = Callable[[sqlite3.Connection], object]


def fill(path: str, rows: int = ROWS) -> None:
    writer = Writer.of(path, "process")
    plan = b'{"plan":["one"]}'
    box = writer.append("box", 0, b'{"plan":"%b"}' % digest(plan).encode(), plan=(digest(plan), plan))
    for number in range(rows - 2):
        writer.append("run", box, b'{"argv":["true","%d"]}' % number, b"in", None)
    writer.release()


@pytest.fixture
def filled(path: str) -> str:
    """A trace of twenty rows."""
    fill(path)
    return path


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def verdict(path: str, against: Head | None = None) -> Verdict:
    with Reader(path) as reader:
        return verify(reader, against)


def last(path: str) -> Head:
    with Reader(path) as reader:
        return head(reader)


def moved(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE rows SET number = 1000 WHERE number = 5")
    connection.execute("UPDATE rows SET number = 5 WHERE number = 6")
    connection.execute("UPDATE rows SET number = 6 WHERE number = 1000")


def put_in(connection: sqlite3.Connection) -> None:
    """A row that is right by itself, in the middle: the ones after it are pushed on."""
    connection.execute("UPDATE rows SET number = -number WHERE number >= 8")
    connection.execute("UPDATE rows SET number = 1 - number WHERE number < 0")
    before = connection.execute("SELECT hash FROM rows WHERE number = 7").fetchone()[0]
    values = (8, 1, "run", 2, b"{}", None, None, row_hash(before, 8, 1, "run", 2, b"{}"))
    connection.execute("INSERT INTO rows VALUES (?,?,?,?,?,?,?,?)", values)


CHANGES: dict[str, tuple[Change, str]] = {
    "a body": (lambda c: c.execute("UPDATE rows SET body = '{}' WHERE number = 7"), "row 7"),
    "a body of the same bytes but for one": (
        lambda c: c.execute("UPDATE rows SET body = CAST(replace(body, 'true', 'trUe') AS BLOB) WHERE number = 7"),
        "row 7",
    ),
    "output": (lambda c: c.execute("UPDATE rows SET out = X'00' WHERE number = 7"), "row 7"),
    "output that becomes errors": (lambda c: c.execute("UPDATE rows SET err = out, out = NULL WHERE number = 7"), "row 7"),
    "output that becomes nothing": (lambda c: c.execute("UPDATE rows SET err = X'' WHERE number = 7"), "row 7"),
    "a time": (lambda c: c.execute("UPDATE rows SET at = at + 1 WHERE number = 7"), "row 7"),
    "a kind": (lambda c: c.execute("UPDATE rows SET kind = 'end' WHERE number = 7"), "row 7"),
    "what it belongs to": (lambda c: c.execute("UPDATE rows SET about = 3 WHERE number = 7"), "row 7"),
    "a hash": (lambda c: c.execute("UPDATE rows SET hash = zeroblob(32) WHERE number = 7"), "row 7"),
    "a number that is text": (lambda c: c.execute("UPDATE rows SET at = 'x' WHERE number = 7"), "row 7"),
    "one taken out": (lambda c: c.execute("DELETE FROM rows WHERE number = 7"), "row 7 missing"),
    "some taken out": (lambda c: c.execute("DELETE FROM rows WHERE number BETWEEN 7 AND 9"), "rows 7 to 9 missing"),
    "the first taken out": (lambda c: c.execute("DELETE FROM rows WHERE number = 1"), "row 1 missing"),
    "all taken out": (lambda c: c.execute("DELETE FROM rows"), "no row"),
    "two exchanged": (moved, "row 5"),
    "one put in": (put_in, "row 9"),
    "a plan": (lambda c: c.execute("UPDATE plans SET body = CAST('{}' AS BLOB)"), "plan"),
    "no plan": (lambda c: c.execute("DELETE FROM plans"), "the plan of row 2 is missing"),
    "an anchor": (
        lambda c: c.execute("DELETE FROM rows WHERE number < 7") and c.execute("UPDATE rows SET kind = 'anchor' WHERE number = 7"),
        "no later row says that they were pruned",
    ),
    "an anchor in the middle": (lambda c: c.execute("UPDATE rows SET kind = 'anchor' WHERE number = 7"), "anchor"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_and_named(filled: str, change: str) -> None:
    assert verdict(filled).ok
    act, said = CHANGES[change]
    with opened(filled) as connection:
        act(connection)
    found = verdict(filled)
    assert any(said in fault for fault in found.faults), found.faults


def test_rows_cut_off_the_end_are_found_by_a_head_that_was_kept(filled: str) -> None:
    kept = last(filled)
    assert verdict(filled, kept).ok
    with opened(filled) as connection:
        connection.execute("DELETE FROM rows WHERE number > 15")
    assert verdict(filled).ok  # nobody can tell without the head
    assert verdict(filled, kept).faults == (f"rows 16 to {ROWS} are missing at the end",)
    fill_on(filled)
    assert "another one" in verdict(filled, kept).faults[0]


def fill_on(path: str) -> None:
    writer = Writer.of(path, "process")
    for _ in range(10):
        writer.append("run", 2, b"{}")
    writer.release()


def test_a_head_stays_good_while_rows_are_added(filled: str) -> None:
    kept = last(filled)
    fill_on(filled)
    assert verdict(filled, Head.of(str(kept))).ok and last(filled).row == ROWS + 10


def test_a_trace_made_anew_is_not_the_one_of_the_head(filled: str) -> None:
    kept = last(filled)
    Path(filled).unlink()
    fill(filled, 30)
    assert verdict(filled).ok
    assert any("begun anew" in fault for fault in verdict(filled, kept).faults)


def test_a_chain_that_was_made_anew_from_a_row_on_is_found_by_a_head(filled: str) -> None:
    kept = last(filled)
    with opened(filled) as connection:
        connection.execute("UPDATE rows SET body = CAST('{}' AS BLOB) WHERE number = 7")
        rows = connection.execute("SELECT * FROM rows WHERE number >= 6 ORDER BY number").fetchall()
        before = rows[0][-1]
        for number, at, kind, about, body, out, err, _ in rows[1:]:
            before = row_hash(before, number, at, kind, about, body, out, err)
            connection.execute("UPDATE rows SET hash = ? WHERE number = ?", (before, number))
    assert verdict(filled).ok and not verdict(filled, kept).ok


@pytest.mark.parametrize("text", ["", "x", "a:b:c", "{}", '{"trace": 1}', "a" * 5000, "\x1b[2J"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        Head.of(text)


def test_pruning_leaves_an_anchor_and_a_row_that_says_so(filled: str) -> None:
    kept = last(filled)
    done = prune(filled, keep=5)
    assert (done.rows, done.through) == (ROWS - 5, ROWS - 5)
    found = verdict(filled, kept)
    assert found.ok and found.anchored == ROWS - 5 and found.rows == 5 + 2
    with Reader(filled) as reader:
        assert [row.kind for row in reader.rows()] == ["anchor", *["run"] * 5, "pruned"]
        assert reader.identity() == kept.trace
    fill_on(filled)
    assert prune(filled, keep=3).rows and verdict(filled).ok
    assert "was pruned" in verdict(filled, kept).faults[0]


def test_pruning_by_time_takes_the_older_ones_and_gives_room_back(path: str) -> None:
    fill(path, 3000)
    with Reader(path) as reader:
        middle = [row.at for row in reader.rows()][2000]
    size = Path(path).stat().st_size
    assert prune(path, before=middle - 1e-9).rows >= 1999
    assert verdict(path).ok and Path(path).stat().st_size < size / 2
    assert prune(path, before=0).rows == 0


def test_pruning_all_leaves_a_trace_that_goes_on(filled: str) -> None:
    assert prune(filled, keep=0).rows == ROWS
    assert verdict(filled).ok
    fill_on(filled)
    assert verdict(filled).ok


def test_an_anchor_that_was_moved_on_is_found(filled: str) -> None:
    prune(filled, keep=5)
    with opened(filled) as connection:
        anchor = connection.execute("SELECT number FROM rows WHERE kind = 'anchor'").fetchone()[0]
        connection.execute("DELETE FROM rows WHERE number = ?", (anchor,))
        connection.execute("UPDATE rows SET kind = 'anchor' WHERE number = ?", (anchor + 1,))
    assert "no later row says" in verdict(filled).faults[0]


def test_bytes_changed_in_the_file_itself_are_found(filled: str) -> None:
    content = Path(filled).read_bytes()
    at = content.index(b'{"argv":["true","3"]}')
    Path(filled).write_bytes(content[:at] + b'{"argv":["evil","3"]}' + content[at + 21 :])
    assert not verdict(filled).ok


def test_a_file_cut_short_is_found_or_cannot_be_read(path: str) -> None:
    fill(path, 2000)
    content = Path(path).read_bytes()
    found = 0
    for size in range(4096, len(content), len(content) // 7):
        Path(path).write_bytes(content[:size])
        try:
            found += not verdict(path).ok
        except TraceError as error:
            found += error.kind in ("corrupt", "foreign")
    assert found == len(range(4096, len(content), len(content) // 7))
