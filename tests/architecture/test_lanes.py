"""Lanes: every test runs once, in one of them; what is alone runs while nothing else does, also of another run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from architecture.tree import ROOT

CONFTEST = """
import os, time, pytest
pytest_plugins = ["lanes", "live_report"]

@pytest.fixture(autouse=True)
def told(request):
    alone = "alone" if request.node.get_closest_marker("alone") else "one"
    log = os.open("log", os.O_WRONLY | os.O_APPEND)
    os.write(log, f"+ {alone} {request.node.nodeid}\\n".encode())
    time.sleep(0.02)  # long enough to be met by another, were it not kept away
    yield
    os.write(log, f"- {alone} {request.node.nodeid}\\n".encode())
    os.close(log)
"""
SOURCE = """
import pytest
pytestmark = pytest.mark.live("moon")
def test_first(): pass
@pytest.mark.alone
def test_second(): pass
def test_third(): pass
"""
FILES = 6


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    tmp_path.joinpath("conftest.py").write_text(CONFTEST)
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n    live(names): what it runs against\n    alone: by itself\n")
    for number in range(FILES):
        tmp_path.joinpath(f"test_{number}.py").write_text(SOURCE)
    tmp_path.joinpath("log").touch()
    return tmp_path


def start(checkout: Path, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RINGFENCE_")}
    path = {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, str(ROOT / "tests/lanes.py"), "2", "-q"]
    return subprocess.Popen(command, cwd=checkout, env={**kept, **path, **environment}, stdout=subprocess.PIPE, text=True)


def test_every_test_runs_once_and_what_is_alone_meets_no_other_of_either_run(checkout: Path) -> None:
    quiet = checkout / "quiet"
    quiet.touch()
    runs = [start(checkout, RINGFENCE_QUIET=str(quiet)) for _ in range(2)]
    said = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    lines = checkout.joinpath("log").read_text().splitlines()
    begun = Counter(line for line in lines if line.startswith("+"))
    assert len(begun) == 3 * FILES and set(begun.values()) == {2}
    under_way: Counter[str] = Counter()
    for line in lines:
        sign, kind, _ = line.split()
        under_way[kind] += 1 if sign == "+" else -1
        assert under_way["alone"] <= 1 and not (under_way["alone"] and under_way["one"]), lines


def test_what_fails_or_was_required_and_not_run_fails_all_of_it(checkout: Path) -> None:
    mars = start(checkout, RINGFENCE_REQUIRE="mars")
    said = mars.communicate(timeout=60)[0]
    assert mars.returncode == 1 and "no test that passed ran against mars" in said, said
    moon = start(checkout, RINGFENCE_REQUIRE="moon")  # each lane alone may have run nothing of it
    assert moon.communicate(timeout=60)[0] and moon.returncode == 0
    checkout.joinpath("test_9.py").write_text("def test_it(): assert False")
    failing = start(checkout)
    assert "FAILED test_9.py::test_it" in failing.communicate(timeout=60)[0] and failing.returncode == 1
