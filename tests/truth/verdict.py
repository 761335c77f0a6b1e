"""What somebody says of a run, and whether it is so."""

from __future__ import annotations

from dataclasses import dataclass

from truth.case import Truth

ANY = ("denied", "*", "guessed")
"""The denial of those who know only that something was refused."""


@dataclass(frozen=True)
class Verdict:
    """outcome in the words of case.py; denials by kind, target and evidence; said: what was printed or raised, for readers."""

    outcome: str
    denials: frozenset[tuple[str, str, str]] = frozenset()
    said: str = ""

    @property
    def shown(self) -> str:
        return " + ".join([self.outcome, *sorted(f"{kind} {target} ({evidence})" for kind, target, evidence in self.denials)])


def is_right(truth: Truth, verdict: Verdict) -> bool:
    """Whether the outcome is the one that happened, every refusal is reported, and none that did not happen."""
    return verdict.outcome == truth.outcome and denials_are_right(truth, verdict)


def denials_are_right(truth: Truth, verdict: Verdict) -> bool:
    if ANY in verdict.denials:
        return bool(truth.denials or truth.may)
    reported = {(kind, target) for kind, target, _ in verdict.denials}
    needed, may, claimed = (_pairs(names) for names in (truth.denials, truth.may, truth.claimed))
    for kind, target, evidence in verdict.denials:
        if (kind, target) not in needed | may and ((kind, target) not in claimed or evidence == "observed"):
            return False
    return needed <= reported


def _pairs(names: tuple[str, ...]) -> set[tuple[str, str]]:
    return {(name.split(" ", 1)[0], name.split(" ", 1)[1]) for name in names}
