"""The guards around the tests: what they must fail, and what they must not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from architecture.tree import ROOT

CONFTEST = """
pytest_plugins = ["leak_check", "live_report"]
import leak_check
leak_check.DEADLINE_SECONDS = 0.5
"""
# Besides the leak itself nothing may be wrong with these, so what is left is held and not merely forgotten.
LEAVES_SOMETHING = {
    "process": "import subprocess\nheld = []\ndef test_it(): held.append(subprocess.Popen(['sleep', '2']))",
    "thread": "import threading, time\ndef test_it(): threading.Thread(target=time.sleep, args=(2,)).start()",
    "descriptor": "import os\ndef test_it(): os.open('/dev/null', os.O_RDONLY)",
    "folder": "import tempfile\ndef test_it(): tempfile.mkdtemp(prefix='ringfence-')",
}
LEAVES_NOTHING = {
    "a process that ends": "import subprocess\ndef test_it(): subprocess.run(['true'])",
    "a process that ends late": (
        "import subprocess, threading\n"
        "def test_it():\n"
        "    process = subprocess.Popen(['sleep', '0.2'])\n"
        "    threading.Thread(target=process.wait).start()"
    ),
    "a temporary folder": "def test_it(tmp_path): (tmp_path / 'ringfence-file').touch()",
    "what a wider fixture holds": (
        "import os, pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def held():\n"
        "    descriptor = os.open('/dev/null', os.O_RDONLY)\n"
        "    yield descriptor\n"
        "    os.close(descriptor)\n"
        "def test_it(held): os.fstat(held)"
    ),
}


def run_tests(folder: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("conftest.py").write_text(CONFTEST)
    folder.joinpath("pytest.ini").write_text("[pytest]\nmarkers = live(names): what it runs against\n")
    folder.joinpath("test_one.py").write_text(source)
    kept = {name: value for name, value in os.environ.items() if name not in ("RINGFENCE_REQUIRE", "RINGFENCE_LANES")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", LEAVES_SOMETHING)
def test_a_test_that_leaves_something_fails(kind: str, tmp_path: Path) -> None:
    done = run_tests(tmp_path, LEAVES_SOMETHING[kind])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    # Another suite on this host can lose a box at the same moment, which is then named first.
    assert re.search(f"left behind by the test: .*{kind}", done.stdout)


@pytest.mark.parametrize("kind", LEAVES_NOTHING)
def test_a_test_that_leaves_nothing_passes(kind: str, tmp_path: Path) -> None:
    done = run_tests(tmp_path, LEAVES_NOTHING[kind])
    assert done.returncode == pytest.ExitCode.OK, done.stdout


LIVE = "import pytest\n@pytest.mark.live('moon')\ndef test_it(): pass\n"
SKIPPED = "import pytest\n@pytest.mark.live('moon')\ndef test_it(): pytest.skip('too far')\n"
SILENTLY_SKIPPED = "import pytest\ndef test_it(): pytest.skip('too far')\n"
BY_TIER = "import pytest\n@pytest.mark.parametrize('tier', ['moon'])\ndef test_it(tier): pass\n"


@pytest.mark.parametrize(
    ("source", "required", "passes"),
    [
        (LIVE, "moon", True),
        (BY_TIER, "moon", True),
        (LIVE, "moon,root,user", True),
        (LIVE, "mars", False),
        (SKIPPED, "moon", False),
        (LIVE + SKIPPED.replace("test_it", "test_again"), "moon", False),
        (SKIPPED + LIVE.replace("moon", "mars").replace("test_it", "test_again"), "mars", True),
        (LIVE + SKIPPED.replace("test_it", "test_again").replace("'moon'", "'moon', 'mars'"), "moon", True),
        (SILENTLY_SKIPPED + LIVE.replace("test_it", "test_again"), "moon", False),
        (SKIPPED, "", True),
        (SILENTLY_SKIPPED, "", True),
    ],
)
def test_what_is_required_must_have_run(source: str, required: str, passes: bool, tmp_path: Path) -> None:
    done = run_tests(tmp_path, source, RINGFENCE_REQUIRE=required)
    expected = pytest.ExitCode.OK if passes else pytest.ExitCode.TESTS_FAILED
    assert done.returncode == expected, done.stdout


def test_the_summary_counts_what_the_tests_ran_against(tmp_path: Path) -> None:
    done = run_tests(tmp_path, LIVE)
    caller = "root" if os.geteuid() == 0 else "user"
    assert f"moon 1, {caller} 1; skipped 0" in done.stdout


def test_a_test_about_another_caller_is_skipped_and_not_missed(tmp_path: Path) -> None:
    caller, other = ("root", "user") if os.geteuid() == 0 else ("user", "root")
    source = LIVE.replace("moon", other) + LIVE.replace("moon", caller).replace("test_it", "test_again")
    done = run_tests(tmp_path, source, RINGFENCE_REQUIRE="root,user")
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
