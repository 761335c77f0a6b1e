"""A box over a large folder: what it costs to look through it for what must be covered, the first time and remembered."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Row, side_by_side
from ringfence.sync import Sandbox, SandboxConfig

FOLDERS, EACH = 1000, 100

FIRST = """
import sys, time
from ringfence.sync import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(workspace=sys.argv[2])):
    pass
began = time.perf_counter()
with Sandbox(SandboxConfig(workspace=sys.argv[1])):
    print((time.perf_counter() - began) * 1000)
"""


def _fill(root: Path) -> None:
    for number in range(FOLDERS):
        folder = root / f"d{number // 100}" / f"e{number // 10 % 10}" / f"f{number % 10}"
        folder.mkdir(parents=True)
        for at in range(EACH):
            (folder / f"file{at}.py").touch()


def first_and_next(rounds: int) -> list[Row]:
    """A new box over 100,000 files beside one over none; then the first one of a process."""
    with tempfile.TemporaryDirectory() as large, tempfile.TemporaryDirectory() as empty:
        _fill(Path(large))

        def opened(workspace: str) -> None:
            with Sandbox(SandboxConfig(workspace=workspace)):
                pass

        found = side_by_side({"large": lambda: opened(large), "empty": lambda: opened(empty)}, rounds)
        ratio = found["large"].p50 / found["empty"].p50
        firsts = sorted(
            float(subprocess.run([sys.executable, "-c", FIRST, large, empty], capture_output=True, check=True).stdout)
            for _ in range(max(3, rounds // 10))
        )
    first = firsts[len(firsts) // 2]
    work = f"new box over {FOLDERS * EACH:,} files"
    return [
        Row(work, f"{found['large']}, ratio {ratio:.2f}", f"over none {found['empty']}", "<= 3.0 x", ratio <= 3.0),
        Row(f"{work}, the first of a process", f"{first:.0f} ms", "", "<= 400 ms", first <= 400),
    ]
