"""Sets of non-negative whole numbers, kept as sorted ranges that neither touch nor overlap."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_ITEM = re.compile(r"\s*(?P<first>\d+)?\s*(?:(?P<dash>-)\s*(?P<last>\d+)?\s*)?\Z")


class SpansError(ValueError):
    """A text that is not a list of ranges."""


class Spans:
    """An immutable set of whole numbers; `Spans([(1, 4), (7, 7)])` holds 1, 2, 3, 4 and 7."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges = tuple(_merged(ranges))

    @classmethod
    def parse(cls, text: str, *, end: int | None = None) -> Spans:
        """Read `1-4,7,10-`. A range without a last number reaches to `end`, and needs one.

        Raises SpansError, which names the item that is wrong.
        """
        return cls(_parse_item(item, end) for item in text.split(",") if item.strip())

    @classmethod
    def load(cls, path: Path) -> Spans:
        """Read a file as `save` writes it: one item a line."""
        return cls.parse(",".join(path.read_text(encoding="utf-8").splitlines()))

    def save(self, path: Path) -> None:
        """Write one item a line, through a second file, so that no reader sees half of it."""
        part = path.with_name(path.name + ".part")
        part.write_text("".join(f"{item}\n" for item in str(self).split(",") if item), encoding="utf-8")
        part.replace(path)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges in order, both ends included."""
        return self._ranges

    def complement(self, end: int) -> Spans:
        """What is missing from 0 to `end`, both included."""
        gaps, start = [], 0
        for first, last in self._ranges:
            gaps.append((start, min(first - 1, end)))
            start = last + 1
        gaps.append((start, end))
        return Spans((first, last) for first, last in gaps if first <= last)

    def __or__(self, other: Spans) -> Spans:
        return Spans([*self._ranges, *other._ranges])

    def __and__(self, other: Spans) -> Spans:
        return Spans((max(a, c), min(b, d)) for a, b in self._ranges for c, d in other._ranges if max(a, c) <= min(b, d))

    def __sub__(self, other: Spans) -> Spans:
        return self & other.complement(self._ranges[-1][1]) if self._ranges else self

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def __eq__(self, other: object) -> bool:
        return self._ranges == other._ranges if isinstance(other, Spans) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self._ranges)

    def __repr__(self) -> str:
        return f"Spans.parse({str(self)!r})"


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if first < 0 or last < first:
            raise SpansError(f"{first}-{last} is not a range of whole numbers")
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _parse_item(item: str, end: int | None) -> tuple[int, int]:
    match = _ITEM.match(item)
    if match is None or (match["first"] is None and match["last"] is None):
        raise SpansError(f"{item.strip()!r} is not a number or a range")
    if match["dash"] is None:
        return int(match["first"]), int(match["first"])
    first = int(match["first"] or 0)
    if match["last"] is not None:
        return first, int(match["last"])
    if end is None:
        raise SpansError(f"{item.strip()!r} has no end, and none is known")
    return first, end
