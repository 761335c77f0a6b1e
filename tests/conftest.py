"""What every test of the project gets: both event loops, the leak check, a count of what ran against what, common fixtures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from ringfence.confine.protected import quarantine

settings.register_profile("untimed", deadline=None)  # an example takes as long as a busy machine takes
settings.load_profile("untimed")
pytest_plugins = ["lanes", "leak_check", "live_report"]


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


@pytest.fixture(scope="session", autouse=True)
def state_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the command line records of tests is no business of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGFENCE_STATE_DIR", str(tmp_path_factory.mktemp("state-of-tests") / "state"))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_of_this_run_stays_in_quarantine() -> Iterator[None]:
    """What boxes of this process were kept from stays for a person to look at; of tests nobody does."""
    yield
    for kept in Path(quarantine.place()).glob(f"*-{os.getpid()}-*"):
        shutil.rmtree(kept, ignore_errors=True)
