"""A folder to work in, and an open box over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def box(workspace: Path) -> Iterator[Sandbox]:
    with Sandbox(SandboxConfig(workspace=workspace)) as made:
        yield made
