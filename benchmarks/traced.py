"""What a record adds to a run in a warm box, with each durability; and to a cold command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack

from benchmarks.measure import Row, side_by_side
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.trace import Trace

TRUE = ["/bin/true"]
BOUNDS = {"process": 0.10, "power": 0.60}


def added(config: SandboxConfig, rounds: int) -> list[Row]:
    """A run in three boxes alike, turn by turn: without a trace, and with one of each durability."""
    with tempfile.TemporaryDirectory(prefix="rf-bench-") as folder, ExitStack() as stack:
        plain = stack.enter_context(Sandbox(config))
        boxes = {"none": plain}
        for durability in BOUNDS:
            trace = stack.enter_context(Trace(f"{folder}/{durability}/trace.db", durability=durability))
            boxes[durability] = stack.enter_context(Sandbox(config, trace=trace))
        for box in boxes.values():
            for _ in range(10):
                box.run(TRUE)
        found = side_by_side({name: lambda box=box: box.run(TRUE) for name, box in boxes.items()}, rounds)
    rows = []
    for durability, bound in BOUNDS.items():
        more = found[durability].p50 - found["none"].p50
        rows.append(
            Row(
                f"a run that is recorded, durability {durability}",
                f"{found[durability]}, {more:+.3f} ms",
                f"not recorded {found['none']}",
                f"<= {bound:.2f} ms more",
                more <= bound,
            )
        )
    return rows


def cold(rounds: int) -> Row:
    """ringfence run -- true from a shell, recorded and not."""
    command = [sys.executable, "-m", "ringfence", "run"]
    with tempfile.TemporaryDirectory(prefix="rf-bench-") as folder:
        environment = {**os.environ, "RINGFENCE_STATE_DIR": f"{folder}/state"}

        def run(*more: str) -> None:
            subprocess.run([*command, *more, "--", "true"], env=environment, check=True, capture_output=True)

        found = side_by_side({"recorded": run, "not": lambda: run("--no-trace")}, rounds)
    more = found["recorded"].p50 - found["not"].p50
    return Row(
        "ringfence run -- true, recorded", f"{found['recorded']}, {more:+.1f} ms", f"not recorded {found['not']}", "shown", True
    )
