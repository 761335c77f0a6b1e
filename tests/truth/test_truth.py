"""Every case of the corpus is judged rightly by ringfence, on both tiers; a reader of words gets too many of them wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from truth import corpus
from truth.case import Case, Truth
from truth.matrix import matrix, wrong
from truth.place import Place
from truth.witness import disagreements


@pytest.fixture(scope="module")
def seed() -> int:
    seed = corpus.fresh_seed()
    print(f"RINGFENCE_TRUTH_SEED={seed} gives these cases again")
    return seed


@pytest.fixture(scope="module")
def chosen(seed: int) -> list[Case]:
    return corpus.cases(seed)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place() as made:
        yield made


def test_the_corpus_is_large_and_half_of_it_is_made_to_fool(chosen: list[Case]) -> None:
    fooling = [case for case in chosen if case.fools]
    generated = [case for case in fooling if case.id.startswith("generated")]
    assert len(chosen) >= 250
    assert len(fooling) * 2 >= len(chosen)
    assert len(generated) * 2 >= len(fooling)


def test_ringfence_is_right_about_every_case(tier: str, seed: int, chosen: list[Case], place: Place) -> None:
    said = corpus.by_ringfence(chosen, tier, place)
    mistakes = [
        f"{case.id}: {case.shown}\n  {case.on(tier)}\n  {verdict.shown}; {verdict.said!r}"
        for case, verdict in wrong(chosen, said, tier)
    ]
    print(matrix(f"ringfence, {tier}", chosen, said, tier))
    assert not mistakes, f"RINGFENCE_TRUTH_SEED={seed}\n" + "\n".join(mistakes)
    assert len(said) == sum(tier in case.tiers for case in chosen)


@pytest.mark.live("bwrap")
def test_a_reader_of_words_gets_at_least_forty_wrong(chosen: list[Case], place: Place) -> None:
    quick = [case for case in chosen if case.fools and case.witness == "status" and case.id.startswith(("exits", "words", "files"))]
    said = corpus.by_others(quick, place, ("keywords",))
    mistakes = wrong(chosen, said["keywords"], "namespaces")
    assert len(mistakes) >= 40, matrix("keywords", chosen, said["keywords"], "namespaces")


SAMPLE = {"status": 40, "trace": 8, "usage": 3, "refusal": 3, "far side": 1}
"""How many labels of each witness are held to it; RINGFENCE_TRUTH_WITNESS=all takes every one."""


def test_the_witnesses_agree_with_the_labels(seed: int, chosen: list[Case], place: Place) -> None:
    drawn = random.Random(seed).sample(chosen, len(chosen))
    if os.environ.get("RINGFENCE_TRUTH_WITNESS") != "all":
        drawn = [case for kind, count in SAMPLE.items() for case in [each for each in drawn if each.witness == kind][:count]]
    with ThreadPoolExecutor(corpus.WORKERS) as workers:
        said = [found for each in workers.map(lambda case: list(disagreements(case, place)), drawn) for found in each]
    assert not said, f"RINGFENCE_TRUTH_SEED={seed}\n" + "\n".join(said)


def test_a_wrong_label_is_found_by_its_witness(chosen: list[Case], place: Place) -> None:
    wrong_ones = {
        "status": Truth("exited 99"),
        "trace": Truth("exited 1", ("write /etc/nobody-touched-this",)),
        "usage": Truth("cap wall"),
    }
    for witness, truth in wrong_ones.items():
        case = next(case for case in chosen if case.witness == witness and case.truth.outcome in ("exited 1", "cap cpu"))
        assert list(disagreements(replace(case, truth=truth, limits={"cpu_seconds": 0.1}, timeout=1.0), place))
