"""What passes to a person's terminal and what does not, byte for byte, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.escapes import Filter

PASS_IN_A_LINE = [
    b"plain text\r\n\tand a tab\b\a",
    "é ü 漢字 \U0001f600 \u00a0".encode(),
    b"\x1b[31;1mred\x1b[0m",
    b"\x1b[2K\x1b[5G\x1b[3C\x1b[3D",
    b"\x1b(B\x1b=\x1b>",
    b"\x1b[?25l\x1b[?1049h\x1b[2J\x1b[3;4H",
]
NEVER_PASS = [
    b"\x1b]52;c;ZXZpbA==\a",
    b"\x1b]0;title\x1b\\",
    b"\x1b]8;;http://example.com\x1b\\",
    b"\x1bP$q q\x1b\\",
    b"\x1b_app\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\",
    b"\x1b[3;100;100t\x1b[5i",
    b"\x1bc",
    b"\x05\x0e\x0f",
    b"\xc2\x9b2J\xc2\x9d0;t\xc2\x9c"[:2],
]
ONLY_WHEN_TAKEN_OVER = [b"\x1b[2J", b"\x1b[1A", b"\x1b[3;4H", b"\x1b7\x1b8\x1bM", b"\x1b[6n\x1b[c", b"\x1b[1;5r", b"\x1b[>4;1m"]


@pytest.mark.parametrize("text", PASS_IN_A_LINE)
@pytest.mark.parametrize("line_mode", [True, False])
def test_text_colours_and_moves_within_a_line_pass(text: bytes, line_mode: bool) -> None:
    assert Filter().feed(text, line_mode=line_mode) == text


@pytest.mark.parametrize("text", NEVER_PASS)
@pytest.mark.parametrize("line_mode", [True, False])
def test_what_speaks_to_the_terminal_itself_never_passes(text: bytes, line_mode: bool) -> None:
    assert Filter().feed(b"a" + text + b"z", line_mode=line_mode) == b"az"


@pytest.mark.parametrize("text", ONLY_WHEN_TAKEN_OVER)
def test_moves_over_other_lines_pass_only_for_a_program_that_has_taken_the_terminal_over(text: bytes) -> None:
    assert Filter().feed(b"a" + text + b"z", line_mode=True) == b"az"
    assert Filter().feed(b"a" + text + b"z", line_mode=False) == b"a" + text + b"z"


PIECES = st.sampled_from([*PASS_IN_A_LINE, *NEVER_PASS, *ONLY_WHEN_TAKEN_OVER, b"\x1b", b"\x1b[", b"\x9b", b"\xc2", b"\xe6\xbc"])


@given(st.lists(PIECES | st.binary(max_size=8), max_size=8), st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_where_the_bytes_are_cut_makes_no_difference(pieces: list[bytes], cuts: list[int], line_mode: bool) -> None:
    data = b"".join(pieces)
    whole, parted = Filter(), Filter()
    at = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    found = b"".join(parted.feed(data[a:b], line_mode=line_mode) for a, b in pairwise(at))
    assert found == whole.feed(data, line_mode=line_mode)


@given(st.binary(max_size=300), st.booleans())
def test_nothing_is_invented_and_no_string_to_the_terminal_passes(data: bytes, line_mode: bool) -> None:
    found = Filter().feed(data, line_mode=line_mode)
    remaining = iter(data)
    assert all(byte in remaining for byte in found)  # a subsequence
    assert not any(b"\x1b" + bytes([kind]) in found for kind in b"]PX^_c")


def test_what_a_program_left_changed_is_set_back() -> None:
    made = Filter()
    made.feed(b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b[?2004h\x1b[?2004l", line_mode=False)
    back = made.restore()
    assert back.endswith(b"\x1b[0m")
    for expected in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1006l"):
        assert expected in back
    assert b"2004" not in back and made.restore() == b"\x1b[0m"


def test_a_sequence_without_end_is_not_kept_without_end() -> None:
    made = Filter()
    for _ in range(1000):
        made.feed(b"\x1b[" + b"1;" * 200, line_mode=False)
        made.feed(b"\x1b]52;" + b"x" * 200, line_mode=False)
    assert len(made._held) <= 500
