"""What README shows of each outcome is what its example really prints, but for what a host and a clock decide."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from architecture.tree import ROOT

EXAMPLE = ROOT / "examples" / "outcomes" / "main.py"
DEPENDS = re.compile(r"observed=[\d.]+|enforced_by='[^']*'|(?<= \()[^()]*; [\d.]+ \w+ seen(?=\))")


@pytest.mark.live("namespaces")
def test_readme_shows_what_each_outcome_is_for_a_caller_and_for_a_model() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = DEPENDS.sub("...", done.stdout)
    assert printed.strip() in DEPENDS.sub("...", (ROOT / "README.md").read_text(encoding="utf-8")), done.stdout
    for outcome in ("Exited", "Signaled", "CapHit", "NotStarted", "SandboxLostError"):
        assert f"| `{outcome}" in printed
