"""Boxes over a folder of the test, and the interpreter that programs are compared with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture(scope="session")
def plain_python() -> str:
    """An interpreter that both the caller and a box can run."""
    found = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else shutil.which("python3")
    assert found
    return found


@pytest.fixture
def box(workspace: Path, plain_python: str) -> Iterator[Sandbox]:
    with Sandbox(SandboxConfig(workspace=workspace, python=plain_python)) as made:
        yield made
