"""Measure everything and print the table; exit 1 where a bound was missed.

python -m benchmarks            the whole table, about three minutes
python -m benchmarks --quick    a tenth of the rounds, to see that it works
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks import caps, egress, fresh, large, traced, warm
from benchmarks.measure import HEADING
from ringfence.sync import SandboxConfig


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    workspace = str(Path(__file__).resolve().parent.parent)
    config = SandboxConfig(workspace=workspace)
    generous = warm.unlimited(workspace)
    rounds = 30 if quick else 300
    print(f"as {'root' if os.geteuid() == 0 else 'an ordinary user'}, {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    print(HEADING, flush=True)
    missed = 0
    for measured in (
        lambda: warm.commands(config, rounds),
        lambda: [caps.overhead(config, rounds)],
        lambda: [caps.watching(config, 2 if quick else 15)],
        lambda: traced.added(config, rounds),
        lambda: [traced.cold(rounds // 15)],
        lambda: [warm.programs(config, rounds // 3)],
        lambda: [fresh.one_program(config, rounds // 6)],
        lambda: [fresh.with_a_way_out(config, rounds // 6)],
        lambda: large.first_and_next(rounds // 6),
        lambda: fresh.alive(config),
        lambda: [fresh.a_second(config, 3 if quick else 30)],
        lambda: [warm.flood(generous)],
        lambda: [fresh.cold(rounds // 15)],
        lambda: [fresh.explained(rounds // 15)],
        lambda: egress.connections(rounds),
        lambda: [egress.a_second(1 if quick else 5)],
        egress.stream,
        lambda: [egress.boxes()],
        lambda: [warm.in_a_row(generous, 100 if quick else 1000)],
    ):
        for row in measured():
            missed += not row.reached
            print(row, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
