"""Text of others, made safe to print: a name with an escape sequence in it is seen, and never acts on the terminal."""

from __future__ import annotations

import os
import re
from typing import TextIO

# What changes the order of what is shown without being seen itself: UAX #9, "Directional Formatting Characters".
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# What a terminal or a reader takes for the end of a line.
_SEPARATORS = (0x2028, 0x2029)
_NAMED = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x1B: "\\e"}


class _Visible(dict[int, str]):
    """A table for str.translate, filled as it is asked: code points that are left as they are raise LookupError."""

    def __missing__(self, code: int) -> str:
        if code < 0x20 or 0x7F <= code < 0xA0:
            text = f"\\x{code:02x}"
        elif 0xDC80 <= code < 0xDD00:  # a byte of a name that is not UTF-8 (PEP 383)
            text = f"\\x{code - 0xDC00:02x}"
        elif 0xD800 <= code < 0xE000 or code in _DIRECTIONS or code in _SEPARATORS:
            text = f"\\u{code:04x}"
        else:
            raise LookupError(code)
        self[code] = text
        return text


_visible = _Visible(_NAMED)


def shown(text: str, *, lines: bool = False) -> str:
    """text with C0 and C1 controls, DEL, directional marks, line separators and lone surrogates as escapes that can be seen.

    lines: line ends and tabs stay as they are, for a text of ours that is made of lines. Not promised: that the result can be
    turned back, since a backslash of the text itself is left alone.
    """
    if text.isascii() and text.isprintable():
        return text
    if lines:
        return "\n".join("\t".join(shown(part) for part in line.split("\t")) for line in text.split("\n"))
    return text.translate(_visible)


def heading(text: str, stream: TextIO) -> str:
    """text in bold where stream is a terminal that takes it. NO_COLOR, not empty, and TERM=dumb say that it is not."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return shown(text) if plain else f"\x1b[1m{shown(text)}\x1b[0m"


def folded(line: str, stream: TextIO) -> str:
    """line at the width of stream where it is a terminal, broken between words; what is below a table's column stays there."""
    if not stream.isatty():
        return line
    from shutil import get_terminal_size
    from textwrap import wrap

    columns = get_terminal_size().columns
    start = re.match(r" *\S+(?: \S+)* {2,}", line)
    hanging = len(start[0]) if start else 6
    return "\n".join(
        wrap(line, columns, subsequent_indent=" " * hanging, break_on_hyphens=False, break_long_words=False, drop_whitespace=True)
    )
