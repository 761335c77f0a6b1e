"""The interpreter's own tests of threads, exits and runpy give the same counts run by execute() as run by the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("namespaces", "testsuite")
PYTHON = "/usr/bin/python3"
PROGRAM = """
import sys, unittest
if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames({names!r})
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    sets = (result.failures, result.errors, result.skipped)
    print("COUNTS", result.testsRun, *(sorted(str(test) for test, _ in each) for each in sets))
"""
SUBSET = {
    "test_atexit": ["test.test_atexit"],
    "test_runpy": ["test.test_runpy"],
    "test_threading": [
        "test.test_threading.ThreadTests",
        "test.test_threading.ThreadJoinOnShutdown",
        "test.test_threading.ThreadingExceptionTests",
        "test.test_threading.AtexitTests",
    ],
    "test_multiprocessing_fork": ["test.test_multiprocessing_fork.WithProcessesTestQueue"],
    "test_multiprocessing_spawn": ["test.test_multiprocessing_spawn.WithProcessesTestBarrier.test_barrier"],
    "test_multiprocessing_forkserver": ["test.test_multiprocessing_forkserver.WithProcessesTestEvent"],
}


def counts(output: str) -> str:
    found = re.search(r"^COUNTS (.*)$", output, re.MULTILINE)
    assert found, output
    return found[1]


@pytest.mark.parametrize("module", SUBSET)
def test_counts_are_those_of_a_plain_start(module: str, tmp_path: Path) -> None:
    code = PROGRAM.format(names=SUBSET[module])
    limits = SandboxLimits(wall_seconds=100)
    with Sandbox(SandboxConfig(python=PYTHON, limits=limits)) as box:
        box.write_file("plain.py", code)
        plain = counts(box.run([PYTHON, "plain.py"]).raise_for_status().stdout)
        first = counts(box.execute(code).raise_for_status().stdout)
        later = counts(box.execute(code).raise_for_status().stdout)
    assert int(plain.split()[0]) > 0
    assert plain == first == later
