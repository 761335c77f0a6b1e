"""Prints what each adapter gets right of the corpus, and what it takes for what. scripts/truth starts this."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from truth import corpus
from truth.case import TIERS
from truth.matrix import matrix, summary, wrong
from truth.place import Place
from truth.witness import disagreements


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/truth", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--ours", action="store_true", help="ringfence alone")
    parser.add_argument("--witness", action="store_true", help="hold every label to its witness, and do nothing else")
    asked = parser.parse_args()
    seed = corpus.fresh_seed()
    print(f"RINGFENCE_TRUTH_SEED={seed}")
    chosen = [case for case in corpus.cases(seed) if case.id.startswith(asked.only)]
    if asked.witness:
        with Place() as place:
            with ThreadPoolExecutor(corpus.WORKERS) as workers:
                found = [said for each in workers.map(lambda case: list(disagreements(case, place)), chosen) for said in each]
        print("\n".join(found) or f"{len(chosen)} labels are as their witnesses say")
        return int(bool(found))
    failed = False
    with Place() as place:
        said = {}
        for tier in TIERS:
            began = time.monotonic()
            said[f"ringfence, {tier}"] = corpus.by_ringfence(chosen, tier, place)
            print(f"{tier}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        if not asked.ours:
            began = time.monotonic()
            said |= corpus.by_others(chosen, place)
            print(f"others: {time.monotonic() - began:.1f} s", file=sys.stderr)
    rows = []
    for adapter, verdicts in said.items():
        tier = adapter.partition(", ")[2] or "namespaces"
        print(matrix(adapter, chosen, verdicts, tier))
        rows.append(summary(adapter, chosen, verdicts, tier))
        if adapter.startswith("ringfence"):
            for case, verdict in wrong(chosen, verdicts, tier):
                failed = True
                print(f"  WRONG {case.id}: {case.shown}\n    {case.on(tier)}\n    {verdict.shown}\n    {verdict.said!r}")
    print("\n".join(("\n| adapter | right | wrong | wrong most often |", "|---|---|---|---|", *rows)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
