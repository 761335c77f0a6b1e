"""Rounds of kill -9 at a random moment, of the caller, the zygote or a writer: then the trace is whole and no run is missing.

python tests/trace_killing.py ROUNDS [SEED]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ringfence.trace.prune import prune
from ringfence.trace.reader import Reader
from ringfence.trace.verify import Head, head, verify

WRITING = Path(__file__).parent / "trace_writing.py"
VICTIMS = ("caller", "zygote", "writer")
PRUNED_AFTER = 50_000
"""Rows after which the oldest are taken away, so that looking at all of them takes as long in the last round as in the first."""


def one_round(path: str, victim: str, dice: random.Random) -> set[str]:
    """The tokens of the runs that were reported before the kill."""
    caller = subprocess.Popen([sys.executable, str(WRITING), "runs", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    writer = subprocess.Popen([sys.executable, str(WRITING), "rows", path, "2", "100000"], stderr=subprocess.DEVNULL)
    assert caller.stdout is not None
    try:
        said = caller.stdout.readline()  # it is under way
        time.sleep(dice.random() * 0.15)
        for pid in {"caller": [caller.pid], "zygote": _zygotes(caller.pid), "writer": [writer.pid]}[victim]:
            os.kill(pid, signal.SIGKILL)
        if victim == "writer":  # what it held must not hold up the others
            said += b"".join(caller.stdout.readline() for _ in range(3))
    finally:
        caller.kill()
        writer.kill()
        said += caller.stdout.read()
        caller.wait()
        writer.wait()
        caller.stdout.close()
    return {line.decode() for line in said.split(b"\n")[:-1]}


def _zygotes(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children]


def check(path: str, reported: set[str], kept: Head | None) -> Head:
    """The head now. Raises AssertionError for a fault, for a reported run that is missing, for a row that is gone."""
    with Reader(path) as reader:
        found = verify(reader, kept)
        assert found.ok, found.faults
        recorded = {
            row.out.decode().strip() for row in reader.rows(max(0, (kept.row if kept else 0) - 1)) if row.kind == "end" and row.out
        }
        assert reported <= recorded, reported - recorded
        return head(reader)


def rounds(folder: str, count: int, seed: int) -> Counter[str]:
    """So many rounds on one trace; how many reported runs each kind of victim had."""
    dice = random.Random(seed)
    path, kept, seen, pruned = f"{folder}/state/trace.db", None, Counter[str](), 0
    for number in range(count):
        victim = VICTIMS[number % len(VICTIMS)]
        reported = one_round(path, victim, dice)
        kept = check(path, reported, kept)
        seen[victim] += len(reported)
        if kept.row - pruned > PRUNED_AFTER:
            pruned = kept.row
            prune(path, keep=100)
            kept = check(path, set(), None)
        if sys.stderr.isatty() or number % 20 == 19:
            print(f"{number + 1} rounds, {sum(seen.values())} reported runs, {kept.row} rows", file=sys.stderr)
    return seen


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="rf-trace-") as made:
        seen = rounds(made, int(sys.argv[1]), seed)
    print(f"{sys.argv[1]} rounds: verify clean, none of {sum(seen.values())} reported runs is missing ({dict(seen)})")
