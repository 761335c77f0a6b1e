"""Timing things side by side: rounds alternate between the contenders, so that a noisy moment meets all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Sorted samples, in milliseconds."""

    samples: tuple[float, ...]

    @property
    def p50(self) -> float:
        return self.samples[len(self.samples) // 2]

    @property
    def p95(self) -> float:
        return self.samples[int(len(self.samples) * 0.95)]

    def __str__(self) -> str:
        return f"{self.p50:.2f} ms (p95 {self.p95:.2f})"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, what ringfence took, what the others took, what must be reached, and whether it was."""

    work: str
    ours: str
    others: str
    must: str
    reached: bool

    def __str__(self) -> str:
        return f"| {self.work} | {self.ours} | {self.others} | {self.must} | {'yes' if self.reached else '**no**'} |"


SETTLED = 5
"""Turns of the event loop between two contenders."""

HEADING = "| work | ringfence | beside it | must reach | reached |\n|---|---|---|---|---|"


def side_by_side(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Each contender once a round, after one round that does not count."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for at in range(rounds + 1):
        for name, act in contenders.items():
            began = time.perf_counter()
            act()
            if at:
                samples[name].append((time.perf_counter() - began) * 1000)
    return {name: Times(tuple(sorted(found))) for name, found in samples.items()}


async def side_by_side_awaited(contenders: Mapping[str, Callable[[], Awaitable[object]]], rounds: int) -> dict[str, Times]:
    """The same for coroutines."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for at in range(rounds + 1):
        for name, act in contenders.items():
            for _ in range(SETTLED):  # what the one before left for the loop to do is not this one's
                await asyncio.sleep(0)
            began = time.perf_counter()
            await act()
            if at:
                samples[name].append((time.perf_counter() - began) * 1000)
    return {name: Times(tuple(sorted(found))) for name, found in samples.items()}
