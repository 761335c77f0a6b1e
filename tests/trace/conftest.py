"""A trace of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, which is not made yet."""
    folder = tmp_path / "state"
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(folder))
    return folder


@pytest.fixture
def path(state: Path) -> str:
    """Where the trace is."""
    return str(state / "trace.db")
