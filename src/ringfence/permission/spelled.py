"""Text of others as it is put before a person who decides by it: whole, and nothing in it hides or passes for something else.

Controls, what is not seen, what joins the letter before it, and what changes the order of what is read stand as escapes; their
number is told, since the same escape can be written out in the text. Line ends are kept, behind a gutter that no text can draw. A
text that is longer than anybody reads is folded in the middle, and then it is said how long it is.
"""

from __future__ import annotations

import unicodedata

from ringfence.for_model import UNSEEN
from ringfence.values import frozen

MOST_ROWS = 400
HEAD_ROWS, TAIL_ROWS = 200, 100
"""Rows of a text that are shown where it has more than MOST_ROWS: its beginning and its end."""
MOST_NAMED = 8
LINE, GOES_ON = "  | ", "  : "
"""Before a line, and before the rest of one that is wider than the terminal."""

_NAMED = {"\t": "\\t", "\r": "\\r", "\x1b": "\\e"}


@frozen
class Spelled:
    """rows: what is shown, each with its gutter. notes: what a reader could not see in it."""

    rows: tuple[str, ...]
    notes: tuple[str, ...]


def spelled(text: str, columns: int, *, whole: bool = False) -> Spelled:
    """text in rows of at most columns cells. whole: nothing is folded away."""
    room = max(columns - len(LINE), 10)
    rows: list[str] = []
    escaped = 0
    foreign: dict[str, None] = {}
    for line in text.split("\n"):
        parts: list[str] = []
        used, gutter = 0, LINE
        for char in line:
            part, cells = (char, 1) if " " <= char <= "~" else _spelled(char)
            if part != char:
                escaped += 1
            elif char > "~":
                foreign[char] = None
            if used + cells > room:
                rows.append(gutter + "".join(parts))
                parts, used, gutter = [], 0, GOES_ON
            parts.append(part)
            used += cells
        rows.append(gutter + "".join(parts))
    notes = []
    if escaped:
        notes.append(f"{escaped} of its characters cannot be shown, and stand as escapes such as \\x1b.")
    if foreign:
        notes.append(_of_foreign(list(foreign)))
    if len(rows) > MOST_ROWS and not whole:
        left = len(rows) - HEAD_ROWS - TAIL_ROWS
        notes.append(
            f"It has {len(text)} characters in {len(rows)} rows; the {left} rows in the middle are folded: all shows them."
        )
        rows = [*rows[:HEAD_ROWS], f"  ~ {left} rows are folded here", *rows[-TAIL_ROWS:]]
    return Spelled(tuple(rows), tuple(notes))


def _spelled(char: str) -> tuple[str, int]:
    """A character that is no printable ASCII, as it is shown, and the cells that this takes."""
    hidden = unicodedata.category(char)[0] in "CMZ" or char in UNSEEN
    if not hidden and unicodedata.bidirectional(char) not in ("R", "AL", "AN"):  # letters that are written from right to left
        return char, 2 if unicodedata.east_asian_width(char) in "WF" else 1
    code = ord(char)
    part = _NAMED.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return part, len(part)


def _of_foreign(characters: list[str]) -> str:
    """Letters that may look like others, by their names."""
    named = ", ".join(f"{each} is {unicodedata.name(each, f'U+{ord(each):04X}')}" for each in characters[:MOST_NAMED])
    more = f", and {len(characters) - MOST_NAMED} more" if len(characters) > MOST_NAMED else ""
    return f"Not all of it is ASCII: {named}{more}."
