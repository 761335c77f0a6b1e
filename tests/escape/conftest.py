"""Boxes of both kinds over a folder of the test, and how programs are run in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace with one secret file, which any process of the host's user may read and write."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o777)
    os.chmod(folder, 0o777)
    (folder / "secret.txt").write_text("SECRET\n")
    os.chmod(folder / "secret.txt", 0o666)
    return folder
