"""TOML by the standard library, which gives values without places; the places are found here, in text that is known to be valid.

Only what stands between the values is read (toml.io/en/v1.0.0): headers, keys, and where strings, lists and inline tables end.
"""

from __future__ import annotations

import re
import tomllib

from ringfence.errors import PolicyError
from ringfence.policy.document import Path, Places, Value

AT = re.compile(r"(?P<what>.*) \(at (line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)
BLANK = re.compile(r"([ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
STRING = re.compile(r'"""(\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
BARE = re.compile(r"[A-Za-z0-9_-]+")
DOTTED = re.compile(r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){33}""")
"""A key of more parts than any has: the standard library takes a time that grows with the square of their number."""
PLAIN = re.compile(r"[^,\]}#\n]+")


def parse(text: str, file: str) -> tuple[Value, Places]:
    """The value of the text, and the place of each key and list entry. Raises PolicyError."""
    if deep := DOTTED.search(text):
        line, column = text.count("\n", 0, deep.start()) + 1, deep.start() - text.rfind("\n", 0, deep.start())
        raise PolicyError("a key has more than 32 parts here.", file=file, line=line, column=column)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = AT.fullmatch(str(error))
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(said["line"]), int(said["column"])) if said and said["line"] else end
        what = (said["what"] if said else str(error)).encode("unicode_escape").decode("ascii")
        raise PolicyError(f"this is not TOML: {what}.", file=file, line=line, column=column) from None
    except (RecursionError, ValueError) as error:
        raise PolicyError(f"this cannot be read: {type(error).__name__}.", file=file) from None
    places: Places = {}
    try:
        _Finder(text, places).document()
    except (RecursionError, IndexError):
        pass  # the places found so far serve: a complaint is then about what holds the part that is meant
    return value, places


class _Finder:
    """Walks valid TOML and writes down where each key and entry begins."""

    def __init__(self, text: str, places: Places) -> None:
        self._text, self._places, self._at = text, places, 0
        self._tables: dict[Path, int] = {}
        self._line, self._line_at = 1, 0  # the line of a position that was looked up before: positions only grow

    def document(self) -> None:
        table: Path = ()
        while self._skip(BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        several = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if several else 1
        path: Path = ()
        for name in self._key():
            path = self._entered((*path, name))
            self._note(path, start)
        if several:
            whole = path[:-1] if isinstance(path[-1], int) else path
            self._note(whole, start)
            count = self._tables.get(whole, 0)
            self._tables[whole] = count + 1
            path = (*whole, count)
        self._note(path, start)
        self._at = self._text.index("]", self._at) + (2 if several else 1)
        return path

    def _entered(self, path: Path) -> Path:
        """A table of an array of tables is its last one."""
        return (*path, self._tables[path] - 1) if path in self._tables else path

    def _pair(self, table: Path) -> None:
        start = self._skip(SPACE)
        path = table
        for name in self._key():
            path = (*path, name)
            self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(SPACE)
            found = STRING.match(self._text, self._at) or BARE.match(self._text, self._at)
            if not found:
                return names
            name = found[0]
            names.append(tomllib.loads(f"x={name}")["x"] if name[0] in "\"'" else name)
            self._at = found.end()
            self._skip(SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(SPACE)
        opening = self._text[self._at]
        if opening == "[":
            self._at += 1
            count = 0
            while self._text[self._skip(BLANK)] != "]":
                self._note((*path, count), self._at)
                self._value((*path, count))
                count += 1
                self._comma()
            self._at += 1
        elif opening == "{":
            self._at += 1
            while self._text[self._skip(BLANK)] != "}":
                self._pair(path)
                self._comma()
            self._at += 1
        elif opening in "\"'":
            found = STRING.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)
        else:
            found = PLAIN.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)

    def _comma(self) -> None:
        if self._text[self._skip(BLANK)] == ",":
            self._at += 1

    def _skip(self, what: re.Pattern[str]) -> int:
        found = what.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _note(self, path: Path, position: int) -> None:
        self._line += self._text.count("\n", self._line_at, position)
        self._line_at = max(self._line_at, position)
        column = position - self._text.rfind("\n", 0, position)
        self._places.setdefault(path, (self._line, column))
