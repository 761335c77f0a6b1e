"""What is put before a person who decides: nothing of it hides, and nothing of it is cut without saying so."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.permission.spelled import GOES_ON, LINE, MOST_ROWS, spelled


def text_of(rows: tuple[str, ...]) -> str:
    """What the rows show, put together again."""
    lines: list[str] = []
    for row in rows:
        if row.startswith(LINE):
            lines.append(row.removeprefix(LINE))
        else:
            assert row.startswith(GOES_ON)
            lines[-1] += row.removeprefix(GOES_ON)
    return "\n".join(lines)


def test_plain_text_is_shown_as_it_is_with_its_lines() -> None:
    assert spelled("make test\nls -l", 80).rows == ("  | make test", "  | ls -l")
    assert spelled("make test\nls -l", 80).notes == ()


def test_a_line_that_is_wider_than_the_terminal_goes_on_behind_another_gutter() -> None:
    found = spelled("x" * 100, 40)
    assert [row[:4] for row in found.rows] == [LINE, GOES_ON, GOES_ON]
    assert all(len(row) <= 40 for row in found.rows)
    assert text_of(found.rows) == "x" * 100


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b[2J", "\\e[2J"),
        ("\r", "\\r"),
        ("\x08", "\\x08"),
        ("\x9b", "\\x9b"),
        ("\u202e", "\\u202e"),  # right-to-left override
        ("\u2066", "\\u2066"),
        ("\u200b", "\\u200b"),  # zero-width space
        ("\ufeff", "\\ufeff"),
        ("\u3164", "\\u3164"),  # a filler that is a letter, and shows nothing
        ("\u00a0", "\\xa0"),
        ("\u2028", "\\u2028"),
        ("e\u0301", "e\\u0301"),
        ("\u05d0", "\\u05d0"),  # a letter that turns the order of its neighbours round
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_hides_or_acts_stands_as_an_escape_and_is_counted(hidden: str, shown: str) -> None:
    found = spelled(f"a{hidden}b", 80)
    assert found.rows == (f"  | a{shown}b",)
    assert "1 of its characters cannot be shown" in found.notes[0]


def test_letters_that_look_like_others_are_named() -> None:
    found = spelled("rm d\u0430ta", 80)
    assert found.rows == ("  | rm d\u0430ta",)
    assert "CYRILLIC SMALL LETTER A" in found.notes[0]


def test_an_escape_that_is_written_out_is_told_from_a_real_one() -> None:
    assert spelled("a\\x1bb", 80).notes == ()
    assert spelled("a\x1bb", 80).notes != ()


def test_wide_characters_take_two_cells() -> None:
    rows = spelled("漢" * 40, 44).rows
    assert all(len(row) - 4 <= 20 for row in rows)
    assert text_of(rows) == "漢" * 40


def test_a_very_long_text_is_folded_with_its_true_length_and_can_be_had_whole() -> None:
    text = "\n".join(str(each) for each in range(10_000))
    folded = spelled(text, 80)
    assert len(folded.rows) <= MOST_ROWS
    assert folded.rows[0] == "  | 0"
    assert folded.rows[-1] == "  | 9999"
    assert f"{len(text)} characters in 10000 rows; the 9700 rows in the middle are folded" in folded.notes[0]
    assert "  ~ 9700 rows are folded here" in folded.rows
    assert text_of(spelled(text, 80, whole=True).rows) == text


def test_a_mebibyte_in_one_line_is_folded_too() -> None:
    found = spelled("x" * (1 << 20), 80)
    assert len(found.rows) <= MOST_ROWS
    assert "1048576 characters" in found.notes[0]


@settings(max_examples=200, deadline=None)
@given(st.text(), st.integers(1, 200))
def test_no_text_leaves_its_gutter_or_acts_on_a_terminal(text: str, columns: int) -> None:
    for row in spelled(text, columns).rows:
        assert row.startswith((LINE, GOES_ON))
        assert row.isprintable()
        assert not any(unicodedata.bidirectional(each) in ("R", "AL", "AN") for each in row)
