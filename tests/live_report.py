"""Says what the tests really ran against, and fails a run in which something that had to be tried was not.

A test says what it needs with `@pytest.mark.live("namespaces", "gcc")`; a parameter named `tier` says the same. `root`
and `user` are the callers: every live test counts for the one that it ran as, and a test that names one of them is
skipped as the other.

RINGFENCE_REQUIRE is a list of such names with commas. Where it is set, each name needs at least one test that passed, in one
of the lanes where there are some (tests/lanes.py), and a test may be skipped only for the lack of something that is not
required: it names such a thing. Of `root` and `user` only the present one is looked at, since it takes two runs to be both.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

CALLERS = {"root", "user"}
CALLER = "root" if os.geteuid() == 0 else "user"

_names = pytest.StashKey[frozenset[str]]()


def live_names(item: pytest.Item) -> frozenset[str]:
    """What this test is run against."""
    names = {name for mark in item.iter_markers("live") for name in mark.args}
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if isinstance(tier := parameters.get("tier"), str):
        names.add(tier)
    return frozenset(names)


def required() -> frozenset[str]:
    names = {name.strip() for name in os.environ.get("RINGFENCE_REQUIRE", "").split(",")}
    return frozenset(names - {""} - (CALLERS - {CALLER}))


def faults_of(passed: Counter[str]) -> list[str]:
    """What was required and not run against, of all that passed."""
    return [f"no test that passed ran against {name}" for name in sorted(required()) if not passed[name]]


def passed_in(file: Path) -> Counter[str]:
    """What passed in one lane."""
    return Counter(json.loads(file.read_text()))


class LiveReport:
    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.faults: list[str] = []
        self.names: dict[str, frozenset[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            names = live_names(item)
            self.names[item.nodeid] = names
            if names & CALLERS and CALLER not in names:
                item.add_marker(pytest.mark.skip(reason=f"is about another caller than {CALLER}"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = self.names.get(report.nodeid, frozenset())
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[report.nodeid] = reason
        elif report.when == "call" and report.passed and names:
            self.passed.update(names | {CALLER})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        needed = required()
        if not needed or session.config.option.collectonly:
            return
        if shared := os.environ.get("RINGFENCE_LANES"):
            Path(shared, f"passed-{os.getpid()}").write_text(json.dumps(self.passed))
        else:
            self.faults = faults_of(self.passed)
        for nodeid, reason in self.skipped.items():
            names = self.names.get(nodeid, frozenset())
            if names <= needed:
                self.faults.append(f"{nodeid} was skipped: {reason}")
        if self.faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed:
            counts = ", ".join(f"{name} {count}" for name, count in sorted(self.passed.items()))
            terminalreporter.section("ran against")
            terminalreporter.line(f"{counts}; skipped {len(self.skipped)}")
        if self.faults:
            terminalreporter.section("required and not run", red=True)
            for fault in self.faults:
                terminalreporter.line(fault)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LiveReport(), "ringfence-live-report")
