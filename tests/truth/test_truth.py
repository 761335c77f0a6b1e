"""Every case of the corpus is judged rightly by ringfence, on both tiers; a reader of words gets too many of them wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from truth import corpus
from truth.case import Case
from truth.matrix import matrix, wrong
from truth.place import Place


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
    said = corpus.by_others([case for case in chosen if case.fools and not case.id.startswith("generated")], place, ("keywords",))
    mistakes = wrong(chosen, said["keywords"], "namespaces")
    assert len(mistakes) >= 40, matrix("keywords", chosen, said["keywords"], "namespaces")
