from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spans import Spans, SpansError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("3", [3]),
        ("1-4", [1, 2, 3, 4]),
        ("1-4,7", [1, 2, 3, 4, 7]),
        (" 2 - 3 , 9 ", [2, 3, 9]),
        ("-2", [0, 1, 2]),
        ("5,1", [1, 5]),
        ("1-3,2-5", [1, 2, 3, 4, 5]),
    ],
)
def test_text_is_read_as_numbers(text: str, numbers: list[int]) -> None:
    assert list(Spans.parse(text)) == numbers


@pytest.mark.parametrize("text", ["x", "1-x", "1--2", "4-1", "-", "1 2", "3-"])
def test_text_that_is_no_list_of_ranges_is_refused(text: str) -> None:
    with pytest.raises(SpansError):
        Spans.parse(text)


def test_an_open_range_reaches_to_the_end_that_is_given() -> None:
    assert list(Spans.parse("8-", end=10)) == [8, 9, 10]


@pytest.mark.parametrize(("text", "canonical"), [("1,2,3", "1-3"), ("7,1-2", "1-2,7"), ("1-2,3-4", "1-4")])
def test_text_is_written_in_its_shortest_form(text: str, canonical: str) -> None:
    assert str(Spans.parse(text)) == canonical


@pytest.mark.parametrize(("operation", "expected"), [("__or__", "1-6,9"), ("__and__", "3-4,9"), ("__sub__", "1-2")])
def test_two_sets_combine(operation: str, expected: str) -> None:
    combined = getattr(Spans.parse("1-4,9"), operation)(Spans.parse("3-6,9"))
    assert str(combined) == expected


def test_the_complement_and_the_set_share_nothing_and_miss_nothing() -> None:
    spans = Spans.parse("2-3,5,8-20")
    rest = spans.complement(10)
    assert str(rest) == "0-1,4,6-7"
    assert len(rest & spans) == 0
    assert list(Spans.parse("0-10") - spans) == list(rest)


def test_nothing_minus_something_is_nothing() -> None:
    assert Spans() - Spans.parse("1-4") == Spans()


def test_a_large_range_takes_no_room() -> None:
    spans = Spans([(0, 10**12)])
    assert len(spans) == 10**12 + 1
    assert 10**11 in spans
    assert -1 not in spans


def test_equal_sets_are_equal_and_hash_alike() -> None:
    assert {Spans.parse("1-2"), Spans.parse("2,1")} == {Spans([(1, 2)])}
    assert Spans() != "1"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    Spans.parse("1-4,7").save(path)
    assert path.read_text() == "1-4\n7\n"
    assert Spans.load(path) == Spans.parse("1-4,7")
    assert [entry.name for entry in tmp_path.iterdir()] == ["pages"]


def test_its_representation_makes_it_again() -> None:
    spans = Spans.parse("1-4,7")
    assert eval(repr(spans)) == spans


def test_threads_can_share_it() -> None:
    spans = Spans.parse("0-9999")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(len, [spans] * 100)) == [10000] * 100


def test_another_process_reads_what_this_one_saved(tmp_path: Path) -> None:
    Spans.parse("3-5").save(tmp_path / "pages")
    code = "import sys, pathlib, spans; print(*spans.Spans.load(pathlib.Path(sys.argv[1])))"
    folder = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pages")], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "3 4 5\n"


@pytest.mark.skipif(sys.version_info < (4,), reason="kept so that a skip is counted too")
def test_a_later_python_is_skipped() -> None:
    raise AssertionError
