"""What every test of the project gets: both event loops, the leak check, and a count of what ran against what."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["leak_check", "live_report"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Every async test runs on both loops; a test that is about one of them parametrises this fixture itself."""
    return request.param
