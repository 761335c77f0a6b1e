"""The examples about agents, run as their reader runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.live("namespaces")


def run(name: str, workspace: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", "RINGFENCE_STATE_DIR": str(workspace.parent / "state")},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_coder_mends_its_project_in_the_box(workspace: Path) -> None:
    shown = run("sandboxed_coder", workspace)
    assert "AssertionError" in shown
    assert shown.endswith("completed: 5 answers of the model, 4 calls\nthe test: passed\n")


def test_what_happened_is_told_to_hooks_and_is_in_the_trace(workspace: Path) -> None:
    shown = run("observe", workspace)
    assert "sandbox_exec: 'echo hello' ended: Exited(code=0)" in shown.replace("sandbox.exec", "sandbox_exec")
    assert "refused: write /etc/zz" in shown
    assert "refused: ['write /etc/zz']" in shown
    assert shown.endswith("as it was written: True\n")
