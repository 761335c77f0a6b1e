"""What is printed of others' text can be seen and does nothing."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.shown import shown

ACTING = ("Cc", "Cs", "Zl", "Zp")
DIRECTIONAL = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain/name.py", "plain/name.py"),
        ("Grüße/資料", "Grüße/資料"),
        ("a\x1b[31mred", "a\\e[31mred"),
        ("a\x9b31m", "a\\x9b31m"),
        ("a\x7fb\x00", "a\\x7fb\\x00"),
        ("two\nlines\tand\r", "two\\nlines\\tand\\r"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("a\u2066b\u2069\u200f\u061c", "a\\u2066b\\u2069\\u200f\\u061c"),
        (os.fsdecode(b"not\xff utf-8"), "not\\xff utf-8"),
        ("\ud800", "\\ud800"),
        ("end\u2028", "end\\u2028"),
    ],
)
def test_controls_are_shown_and_everything_else_is_left_as_it_is(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_text_of_lines_keeps_its_lines() -> None:
    assert shown("a\tb\n\x1b]0;title\x07\n", lines=True) == "a\tb\n\\e]0;title\\x07\n"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_acts_is_left_and_all_can_be_written(text: str) -> None:
    out = shown(text)
    out.encode()
    assert not [each for each in out if unicodedata.category(each) in ACTING or unicodedata.bidirectional(each) in DIRECTIONAL]
    assert shown(out) == out
