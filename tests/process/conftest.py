"""An open box of each tier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def box(tier: str) -> Iterator[Sandbox]:
    with Sandbox(SandboxConfig(tier=tier)) as opened:
        yield opened
