"""A workspace for the servers of a module, and one server over HTTP."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_clients import Served, start, stop


@pytest.fixture
def anyio_backend() -> str:
    """The server is a process of its own: the loop of the client makes no difference to it."""
    return "asyncio"


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """The workspace of the servers of a module; not below /tmp, which in a box is a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rf-tests-") as above:
        os.chmod(above, 0o755)
        folder = Path(above, "work")
        folder.mkdir(mode=0o755)
        yield folder


@pytest.fixture
def workspace(shared: Path) -> Path:
    """A folder of its own in it for each test."""
    folder = Path(tempfile.mkdtemp(dir=shared)).resolve()
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def served(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server over HTTP for a module."""
    made = start(shared, tmp_path_factory.mktemp("mcp"), "--http", "0")
    yield made
    status, out, errors = stop(made)
    assert (status, out, errors) == (0, "", "")
