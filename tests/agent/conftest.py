"""A folder to work in, and an open box over it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ringfence import Sandbox, SandboxConfig


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Not below /tmp, which in a box is a folder of its own that may be written: what lies above this one is outside."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rf-tests-") as above:
        os.chmod(above, 0o755)
        folder = Path(above, "work")
        folder.mkdir(mode=0o755)
        yield folder


@pytest.fixture
async def box(workspace: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(SandboxConfig(workspace=workspace)) as made:
        yield made
