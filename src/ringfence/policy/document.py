"""A policy file as a value with a place for each part of it: which line and column a later complaint is about.

YAML and TOML are read by the same rules: text, numbers, true, false, null, lists and maps; nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ringfence.errors import PolicyError
from ringfence.values import frozen

MAX_DEPTH = 8
"""Levels of nesting; the schema has four."""
MAX_INTEGER = (1 << 53) - 1
"""The largest integer that every reader of JSON, YAML and TOML takes for the same number (RFC 8259, section 6)."""

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
Path: TypeAlias = "tuple[str | int, ...]"
Places: TypeAlias = "dict[Path, tuple[int, int]]"


@frozen
class Document:
    """What a file says. places: line and column, from 1, of each key and each entry of a list, by its path."""

    file: str
    value: dict[str, Value]
    places: Places

    def fault(self, path: Path, what: str, hint: str | None = None) -> PolicyError:
        """The error about the part at path, or about what holds it where the part is missing."""
        at = path
        while at and at not in self.places:
            at = at[:-1]
        line, column = self.places.get(at, (1, 1))
        return PolicyError(what, file=self.file, line=line, column=column, key=key_of(path), hint=hint)


def key_of(path: Path) -> str:
    """A path as it is written: `resources.cpu.limit`, `filesystem.deny[2]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def part_at(value: Value, path: Path) -> Value:
    """The part of a value at path, or None where there is none."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def faults_of(value: object) -> Iterator[tuple[Path, str]]:
    """What no policy of any version says: other kinds of values, endless numbers, characters that no path can carry."""
    waiting: list[tuple[Path, object]] = [((), value)]
    while waiting:
        path, here = waiting.pop()
        if len(path) > MAX_DEPTH:
            yield path, f"is nested more than {MAX_DEPTH} levels deep."
        elif isinstance(here, dict):
            entries: Mapping[object, object] = here
            for key, below in entries.items():
                if not isinstance(key, str) or _unusable(key):
                    yield path, f"has a key that is no text: {key!a}."
                else:
                    waiting.append(((*path, key), below))
        elif isinstance(here, list):
            waiting += [((*path, at), below) for at, below in enumerate(here)]
        elif isinstance(here, str):
            if _unusable(here):
                yield path, "holds a NUL or half a character, which no path or name can carry."
        elif isinstance(here, float) and not math.isfinite(here):
            yield path, "is not a finite number."
        elif isinstance(here, int) and abs(here) > MAX_INTEGER:
            yield path, "is a number larger than any that means something here."
        elif here is not None and not isinstance(here, (bool, int, float)):
            yield path, f"is a {type(here).__name__}, which no key of a policy takes; put it in quotes if text is meant."


def _unusable(text: str) -> bool:
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)
