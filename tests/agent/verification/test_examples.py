"""The examples of the gate and of single runs, as their reader starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live("namespaces")


def lines_of(example: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}"], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_three_candidates_have_a_verdict_each() -> None:
    found = lines_of("verify_candidates")
    page = (ROOT / "docs/verification.md").read_text(encoding="utf-8")
    assert all(f"    {name}: {verdict}\n" in page for name, verdict in found.items())
    assert found.pop("sorts elsewhere").startswith("could_not_verify, make test: the box refused write /etc/median.txt")
    assert found == {"sorts first": "passed", "takes the last": "failed, make test: it returned 2"}


def test_one_run_of_each_outcome_is_told_as_it_was() -> None:
    found = lines_of("sandbox_run")
    assert found.pop("a closed box").startswith("the box is closed")
    assert found.pop("while :; do :; done").startswith("met the limit cpu, held by ")
    assert found.pop("tail /dev/zero").startswith("met the limit memory, held by ")
    assert found == {
        "true": "exited with 0",
        "exit 3": "exited with 3",
        "kill -KILL $$": "ended by signal 9",
        "echo x > /etc/zz": "exited with 1; refused: write /etc/zz",
        "sleep 60": "met the limit wall, held by deadline of the call",
        "no-such-program": "not started: not found",
        "a boundary that is not here": "tier-unavailable, and nothing ran",
    }
