"""Takes secrets out of what is to be recorded, before anything of it is stored or hashed.

A secret is a value that the caller declared, the value of a variable that is declared or whose name says so, or what has
the shape of a known token. Declared values are also found as programs commonly write them: in base64 wherever it begins,
percent-encoded, as hexadecimal digits, with the escapes of JSON. The rule costs a false alarm now and then: what looks like a
token is hidden. Not promised: values that were changed in other ways, by a program that wants them recorded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping

from ringfence.trace import shapes

HIDDEN = b"[hidden]"
SHORT = 6
"""Characters below which a value that is only guessed to be secret is hidden in its variable alone: `true`, `1`."""


class Scrubber:
    """What is secret for one trace: it grows with each box and run, since one may write what another was given."""

    def __init__(self, secrets: Iterable[str | bytes] = (), variables: Iterable[str] = ()) -> None:
        self._named = frozenset(variables)
        self._values: set[bytes] = set()
        self._spelled: tuple[bytes, ...] = ()
        self._pattern: re.Pattern[bytes] | None = None
        self._guard = threading.Lock()
        self._add(each.encode("utf-8", "surrogateescape") if isinstance(each, str) else each for each in secrets)

    def is_secret(self, name: str) -> bool:
        """Whether the value of this variable is secret."""
        return name in self._named or bool(shapes.NAMES.search(name) and not shapes.NOT_SECRET.search(name))

    def learn(self, variables: Mapping[str, str]) -> None:
        """Take note of the values of variables that a box or run has."""
        if variables:
            known = (
                value for name, value in variables.items() if name in self._named or (self.is_secret(name) and len(value) >= SHORT)
            )
            self._add(value.encode("utf-8", "surrogateescape") for value in known)

    def variable(self, name: str, value: str) -> str:
        return HIDDEN.decode() if value and self.is_secret(name) else self.text(value)

    def data(self, data: bytes, *, cut_end: bool = False, cut_start: bool = False) -> bytes:
        """data without secrets. cut_start, cut_end: it is a piece, so that a part of a secret may be at its edge."""
        if not data:
            return data
        if cut_start:
            data = self._at_start(data)
        if cut_end:
            data = self._at_end(data)
        if self._pattern is not None:
            data = self._pattern.sub(HIDDEN, data)
        return shapes.TOKENS.sub(_without, data)

    def text(self, text: str) -> str:
        return self.data(encoded(text)).decode("utf-8", "surrogateescape")

    def argv(self, words: Iterable[str]) -> list[str]:
        """Words of a command line; what follows an option that takes a secret is one."""
        kept, follows = [], False
        for word in words:
            kept.append(HIDDEN.decode() if follows and word else self.text(word))
            follows = bool(shapes.OPTIONS.match(word))
        return kept

    def _add(self, values: Iterable[bytes]) -> None:
        new = {*values} - {b""} - self._values
        if not new:
            return
        with self._guard:
            self._values |= new
            spelled = {spelling for value in self._values for spelling in _spellings(value)}
            self._spelled = tuple(sorted(spelled, key=lambda each: (-len(each), each)))  # the longest first
            self._pattern = re.compile(b"|".join(map(re.escape, self._spelled)))

    def _at_end(self, data: bytes) -> bytes:
        most = max((_overlap(data, value) for value in self._spelled), default=0)
        if most:
            data = data[:-most] + HIDDEN
        return shapes.BEGUN.sub(HIDDEN, data)

    def _at_start(self, data: bytes) -> bytes:
        turned = data[: len(self._spelled[0])][::-1] if self._spelled else b""
        most = max((_overlap(turned, value[::-1]) for value in self._spelled), default=0)
        if most:
            data = HIDDEN + data[most:]
        return shapes.KEY_WITHOUT_BEGINNING.sub(HIDDEN, data)


def encoded(text: str) -> bytes:
    """text as bytes, whatever is in it."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _overlap(data: bytes, value: bytes) -> int:
    """How much of the beginning of value the end of data is; 0 where that is nothing, or all of it."""
    for size in range(min(len(value) - 1, len(data)), 0, -1):
        if data.endswith(value[:size]):
            return size
    return 0


def _without(found: re.Match[bytes]) -> bytes:
    return (found[found.lastgroup] if found.lastgroup else b"") + HIDDEN


def _spellings(value: bytes) -> Iterator[bytes]:
    """value as it is, its lines, and as programs write it."""
    from base64 import b64encode
    from json import dumps
    from urllib.parse import quote_from_bytes

    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 8)
    if len(value) < SHORT:
        return
    yield quote_from_bytes(value, safe="").encode()
    yield quote_from_bytes(value).encode()
    yield value.hex().encode()
    yield value.hex().upper().encode()
    yield dumps(value.decode("utf-8", "replace"))[1:-1].encode()
    for shift in range(3):  # the characters of base64 that depend on nothing but the value, wherever it begins
        whole = b64encode(bytes(shift) + value).rstrip(b"=")
        core = whole[(0, 2, 3)[shift] : len(whole) - (1 if (len(value) + shift) % 3 else 0)]
        yield core
        yield core.replace(b"+", b"-").replace(b"/", b"_")
