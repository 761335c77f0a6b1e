"""What every test of the project gets: both event loops, the leak check, a count of what ran against what, common fixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["leak_check", "live_report"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Every async test runs on both loops; a test that is about one of them parametrises this fixture itself."""
    return request.param


@pytest.fixture(params=["namespaces", "process"])
def tier(request: pytest.FixtureRequest) -> str:
    """Each tier that is built, by name."""
    return str(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir(mode=0o755)
    return folder
