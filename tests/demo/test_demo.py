"""The demo as its reader runs it, without a network, so that it needs nothing but this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DONE = "done"

# An ordinary user has the right to a network of its own only inside a user namespace of its own.
NO_NETWORK = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--keep-caps", "--net"]


def rows(output: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table that the heading begins: first column to the others, which two blanks or more part."""
    lines = output.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(heading))
    table = {}
    for line in lines[start + 1 :]:
        if not line.startswith("  "):
            break
        name, *cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        table[name] = cells
    return table


@pytest.mark.live("namespaces", "process")
def test_without_a_network_the_demo_uses_the_bundled_project_and_shows_every_refusal() -> None:
    done = subprocess.run(
        [*NO_NETWORK, str(ROOT / "scripts" / "demo")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bundled" in done.stdout
    tests = rows(done.stdout, "tests of the project")
    assert tests["passed"] == ["30", "30"]
    assert tests["skipped"] == ["1", "1"]
    refusals = rows(done.stdout, "a program tries to")
    assert len(refusals) == 3
    assert all(control == DONE and boxed.startswith("not done, refused:") for control, boxed in refusals.values())
