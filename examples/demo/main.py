"""Runs a real project's tests outside and in a box, then three things that a box refuses. Exits 1 if one is not so."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from project import TESTS, Project, counts, fetch, run_outside
from refusals import Attempt, attempts

from ringfence import Sandbox, SandboxConfig
from ringfence.errors import RingfenceError

KINDS = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
SHOWN = 2000


async def same_tests(project: Project) -> tuple[bool, str]:
    """Whether the tests have the same counts in a box as outside; and the tier of the box."""
    started = time.monotonic()
    outside = run_outside(project)
    between = time.monotonic()
    config = SandboxConfig(workspace=project.folder, python=sys.executable, environment={"PYTHONDONTWRITEBYTECODE": "1"})
    async with Sandbox(config) as box:
        result = await box.run(TESTS)
    ended = time.monotonic()

    here, there = counts(outside), counts(result.stdout)
    print(f"\n{'tests of the project':38}{'outside':>12}{'in a box':>12}")
    for kind in KINDS:
        if here.get(kind) or there.get(kind):
            print(f"  {kind:36}{here.get(kind, 0):>12}{there.get(kind, 0):>12}")
    print(f"  {'seconds':36}{between - started:>12.1f}{ended - between:>12.1f}")
    same = bool(here.get("passed")) and here == there
    if not same:
        print(f"\noutside:\n{outside[-SHOWN:]}")
        print(f"\nin the box ({result.outcome}):\n{result.stdout[-SHOWN:]}\n{result.stderr[-SHOWN:]}")
    print(f"\nThe box is held by {result.backend!r}:")
    print("\n".join(f"  {line}" for line in str(result.enforcement).splitlines()))
    return same, result.backend


def show_refusals(controls: list[Attempt], boxed: list[Attempt]) -> bool:
    """Print each act beside its control; whether every control was done and every act in the box was not."""
    print(f"\n{'a program tries to':38}{'with no boundary':20}in a box")
    as_promised = True
    for control, attempt in zip(controls, boxed, strict=True):
        good = control.done and not attempt.done and attempt.said.startswith("refused:")
        as_promised = as_promised and good
        cells = ["done" if each.done else f"not done, {each.said}" for each in (control, attempt)]
        print(f"  {control.act:36}{cells[0]:18}  {cells[1]}{'' if good else '  <-- not as promised'}")
    return as_promised


async def demo(home: Path) -> bool:
    project = fetch(home)
    print(f"The project: {project.origin}.", flush=True)
    same, tier = await same_tests(project)
    controls = await attempts(project.folder, home, "process")
    boxed = await attempts(project.folder, home, tier)
    return show_refusals(controls, boxed) and same


def main() -> int:
    try:
        # In the home folder, since what is there is what a box must not reach.
        with tempfile.TemporaryDirectory(prefix=".ringfence-demo-", dir=Path.home()) as home:
            as_promised = asyncio.run(demo(Path(home)))
    except RingfenceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print("\nEverything is as promised." if as_promised else "\nNot everything is as promised.")
    return 0 if as_promised else 1


if __name__ == "__main__":
    raise SystemExit(main())
