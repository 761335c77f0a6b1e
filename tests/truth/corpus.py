"""The corpus: every case with its name, and how all of them are run against one adapter."""

from __future__ import annotations

import importlib
import itertools
import os
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from truth import generator
from truth.adapters import keywords, plain
from truth.adapters.outside import Record, bare, boxed
from truth.adapters.ringfence import Ringfence
from truth.case import Case
from truth.place import Place
from truth.verdict import Verdict

TABLES = (
    "files",
    "exits",
    "words",
    "ordinary",
    "not_started",
    "caps",
    "memory",
    "disk",
    "refusing",
    "network",
    "syscalls",
    "planted",
    "ours",
)
WORKERS = 4
CHUNK, FEW = 12, 3
Verdicts = dict[str, Verdict]


def cases(seed: int) -> list[Case]:
    """Every case of the tables, named by its table and place in it, and as many again that fool, from a seed."""
    found = []
    for table in TABLES:
        rows: tuple[Case, ...] = importlib.import_module(f"truth.tables.{table}").CASES
        found += [replace(case, id=f"{table}-{number}") for number, case in enumerate(rows, 1)]
    made = generator.cases(seed, sum(case.fools for case in found))
    return found + [replace(case, id=f"generated-{number}") for number, case in enumerate(made, 1)]


def fresh_seed() -> int:
    """Another seed each time, or the one in RINGFENCE_TRUTH_SEED: what a run prints can be run again."""
    return int(os.environ.get("RINGFENCE_TRUTH_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def by_ringfence(chosen: Iterable[Case], tier: str, place: Place) -> Verdicts:
    """What ringfence says of each on a tier; cases that ask for the same share a box."""
    ours = [case for case in chosen if tier in case.tiers]

    def some(chunk: tuple[Case, ...]) -> Verdicts:
        with Ringfence(tier, place) as adapter:
            return {case.id: adapter.run(case) for case in chunk}

    return _merged(some, _chunks(ours))


def outside(chosen: Iterable[Case], place: Place, run: Callable[[Case, Place], Record]) -> dict[str, Record]:
    """The record of each run outside. Cases about boxes themselves have none, nor those without a boundary that need one."""
    able = [case for case in chosen if case.runs_outside(boxed=run is boxed)]
    with ThreadPoolExecutor(WORKERS) as workers:
        return dict(zip((case.id for case in able), workers.map(lambda case: run(case, place), able), strict=True))


JUDGES = {"subprocess": (bare, plain.judge), "bwrap": (boxed, plain.judge), "keywords": (boxed, keywords.judge)}
"""Each of the others: what it runs, and how it judges that."""


def by_others(chosen: list[Case], place: Place, names: Iterable[str] = tuple(JUDGES)) -> dict[str, Verdicts]:
    """What the others say: plain subprocess, bubblewrap, and a reader of words around bubblewrap."""
    records = {run: outside(chosen, place, run) for run in {JUDGES[name][0] for name in names}}
    return {name: {id: JUDGES[name][1](record) for id, record in records[JUDGES[name][0]].items()} for name in names}


def _chunks(chosen: list[Case]) -> list[tuple[Case, ...]]:
    """Cases that ask for the same, a few together; those with limits first and fewer, since they wait for what they are about."""
    chunks = []
    for _, alike in itertools.groupby(sorted(chosen, key=lambda case: (not case.limits, case.asked)), key=lambda case: case.asked):
        same = list(alike)
        size = FEW if same[0].limits else CHUNK
        chunks += [tuple(same[at : at + size]) for at in range(0, len(same), size)]
    return chunks


def _merged(some: Callable[[tuple[Case, ...]], Verdicts], chunks: list[tuple[Case, ...]]) -> Verdicts:
    with ThreadPoolExecutor(WORKERS) as workers:
        return dict(itertools.chain.from_iterable(found.items() for found in workers.map(some, chunks)))
