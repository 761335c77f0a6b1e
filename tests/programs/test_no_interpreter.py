"""What is named as the interpreter and is none never gives a program its own status: ours is told apart, and first."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.errors import HostError
from ringfence.outcome import CapHit, Exited
from ringfence.sync import Sandbox, SandboxConfig

PROGRAM = "import sys; print('ran'); sys.exit(1)"


@pytest.fixture
def named(workspace: Path) -> Path:
    """A file of the workspace that a config names as the interpreter."""
    return workspace / "python3"


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("body", ["exit 1", "exit 0", "echo 'bwrap: No permissions' >&2; exit 1", "kill -KILL $$"])
def test_what_runs_no_program_has_no_outcome(named: Path, workspace: Path, tier: str, body: str) -> None:
    script(named, body)
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, python=named)) as box:
        for _ in range(2):  # the first program has an interpreter of its own, the second would be forked from one
            with pytest.raises(HostError, match="ended before the program began") as failed:
                box.execute(PROGRAM, timeout=20)
        assert box.run(["true"]).ok
    assert "python" in str(failed.value)


def test_what_it_wrote_is_in_the_error(named: Path, workspace: Path, tier: str) -> None:
    script(named, "echo 'no such runtime' >&2; exit 3")
    with (
        Sandbox(SandboxConfig(tier=tier, workspace=workspace, python=named)) as box,
        pytest.raises(HostError, match="no such runtime"),
    ):
        box.execute(PROGRAM)


def test_one_that_hangs_meets_the_deadline(named: Path, workspace: Path, tier: str) -> None:
    script(named, "sleep 60")
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, python=named)) as box:
        outcome = box.execute(PROGRAM, timeout=0.5).outcome
    assert isinstance(outcome, CapHit) and outcome.kind == "wall"


@pytest.mark.parametrize("closed", ["", " 3>&- 4>&-"])
def test_a_wrapper_that_leads_to_an_interpreter_is_one(named: Path, workspace: Path, tier: str, closed: str) -> None:
    script(named, f'exec /usr/bin/python3 "$@"{closed}')
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, python=named)) as box:
        result = box.execute(PROGRAM)
    assert (result.outcome, result.stdout) == (Exited(1), "ran\n")


@pytest.mark.parametrize("act", ["os.unlink(sys.argv[0] + '.began')", "open(sys.argv[0] + '.began', 'w')", "os.mkfifo('x')"])
def test_a_program_cannot_take_back_that_it_began(tier: str, act: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        result = box.execute(f"import os, sys\ntry:\n    {act}\nexcept OSError:\n    pass\nos._exit(5)")
    assert result.outcome == Exited(5)
