"""A confusion matrix as text: what was true down the side, what was said along the top."""

from __future__ import annotations

from collections import Counter

from truth.case import Case, Truth
from truth.verdict import Verdict, denials_are_right, is_right


def wrong(chosen: list[Case], verdicts: dict[str, Verdict], tier: str) -> list[tuple[Case, Verdict]]:
    """The cases that an adapter judged wrongly, and what it said."""
    judged = [(case, verdicts[case.id]) for case in chosen if case.id in verdicts]
    return [(case, verdict) for case, verdict in judged if not is_right(case.on(tier), verdict)]


def matrix(adapter: str, chosen: list[Case], verdicts: dict[str, Verdict], tier: str) -> str:
    """Counts of outcomes (the same kind with another code or signal is 'another'), and of denials."""
    judged = [(case.on(tier), verdicts[case.id]) for case in chosen if case.id in verdicts]
    counts = Counter((kind_of(truth.outcome), _said(truth, verdict)) for truth, verdict in judged)
    rows = sorted({row for row, _ in counts})
    columns = sorted({column for _, column in counts})
    width = max(map(len, rows), default=0)
    right = sum(is_right(truth, verdict) for truth, verdict in judged)
    lines = [f"\n{adapter}: {right} of {len(judged)} right", f"{'':{width}}  " + "  ".join(columns)]
    for row in rows:
        cells = (f"{counts[row, column] or '.':>{len(column)}}" for column in columns)
        lines.append(f"{row:{width}}  " + "  ".join(cells))
    missed = sum(bool(truth.denials) and not denials_are_right(truth, verdict) for truth, verdict in judged)
    made_up = sum(not truth.denials and not denials_are_right(truth, verdict) for truth, verdict in judged)
    with_denials = sum(bool(truth.denials) for truth, _ in judged)
    lines.append(f"denials: {with_denials - missed} of {with_denials} reported, {made_up} made up")
    return "\n".join(lines)


def kind_of(outcome: str) -> str:
    """'cap cpu' and 'not started' whole, the others by their first word."""
    return outcome if outcome.startswith("cap ") else outcome.partition(":")[0].rstrip(" 0123456789")


def _said(truth: Truth, verdict: Verdict) -> str:
    kind = kind_of(verdict.outcome)
    return f"{kind}, another" if kind == kind_of(truth.outcome) and truth.outcome != verdict.outcome else kind


def mistakes(chosen: list[Case], verdicts: dict[str, Verdict], tier: str) -> Counter[str]:
    """What an adapter got wrong, as 'truth taken for verdict', most often first."""
    found: Counter[str] = Counter()
    for case, verdict in wrong(chosen, verdicts, tier):
        truth = case.on(tier)
        if truth.outcome != verdict.outcome:
            found[f"{kind_of(truth.outcome)} taken for {_said(truth, verdict)}"] += 1
        elif truth.denials:
            found["a denial not reported"] += 1
        else:
            found["a denial made up"] += 1
    return found


def summary(adapter: str, chosen: list[Case], verdicts: dict[str, Verdict], tier: str) -> str:
    """One row of README's table: how many are right and wrong, and what was wrong most often."""
    most = "; ".join(f"{what} ({count})" for what, count in mistakes(chosen, verdicts, tier).most_common(3))
    bad = len(wrong(chosen, verdicts, tier))
    return f"| {adapter} | {len(verdicts) - bad} | {bad} | {most} |"
