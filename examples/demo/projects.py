"""Two real projects pass their own tests through `ringfence run` with the counts that they have outside; one compiles C.

Needs the package index for their source archives, and a C compiler. Exits 1 where the counts differ.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from project import TESTS, NotFetchedError, counts, fetch_source

PYTHON = sys.executable
BUILD = f"{PYTHON} setup.py -q build_ext --inplace"
COMPILED = ["sh", "-c", f"rm -rf build src/*/*.so && {BUILD} && ls src/*/*.so && PYTHONPATH=src {' '.join(TESTS)}"]
PROJECTS = {"project.txt": TESTS, "compiled.txt": COMPILED}
SHOWN = 2000


def output(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr + done.stdout


def same_counts(folder: Path, pins: str, tests: list[str]) -> bool:
    project = fetch_source(folder, pins)
    outside = output(tests, project.folder)
    boxed = output([PYTHON, "-m", "ringfence", "run", "--env", "PYTHONDONTWRITEBYTECODE=1", "--", *tests], project.folder)
    here, there = counts(outside), counts(boxed)
    print(f"{project.origin}: outside {here}, by `ringfence run` {there}", flush=True)
    same = bool(here.get("passed")) and here == there
    if not same:
        print(f"\noutside:\n{outside[-SHOWN:]}\nby ringfence run:\n{boxed[-SHOWN:]}")
    return same


def main() -> int:
    if not (shutil.which("cc") or shutil.which("gcc")):
        print("projects: a C compiler is needed (on Debian and Ubuntu: apt-get install gcc libc6-dev).", file=sys.stderr)
        return 1
    good = True
    for pins, tests in PROJECTS.items():
        with tempfile.TemporaryDirectory(prefix=".ringfence-project-", dir=Path.home()) as folder:
            try:
                good = same_counts(Path(folder), pins, tests) and good
            except NotFetchedError as error:
                print(f"projects: {pins} was not fetched: {error}", file=sys.stderr)
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
