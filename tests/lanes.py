"""Runs the tests in several processes at once, each of which takes the next file that none has; what must be alone comes last.

    python tests/lanes.py LANES [pytest arguments]

Every lane is a pytest of its own, whose output is shown when it has ended. A file is taken by making a name for it in a folder
that the lanes share, so they end at about the same time. Tests marked `alone` are about times, or about all of a host: they
wait until no lane has anything else left, and run one at a time. RINGFENCE_QUIET names a file that several runs have in common,
those of two users for instance: then they wait for each other too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

SHARED, QUIET = "RINGFENCE_LANES", "RINGFENCE_QUIET"
NOTHING_RUN = 5  # pytest's status of a run without a test


class Lane:
    """One of the processes, as its pytest sees it. shared: the folder of the lanes. quiet: a descriptor that locks are put on."""

    def __init__(self, shared: Path, quiet: int) -> None:
        self.shared, self.quiet = shared, quiet

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest's own says what is wrong
        chosen = self._chosen(session.items)
        item = next(chosen, None)
        while item is not None:
            following = next(chosen, None)  # fixtures that it has too are kept
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _chosen(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        """The tests of this lane; a file is taken when the last test of the one before it is about to run."""
        for mark, lock in (("", fcntl.LOCK_SH), ("alone", fcntl.LOCK_EX)):
            marked = [item for item in items if bool(item.get_closest_marker("alone")) is bool(mark)]
            for path, found in groupby(marked, key=lambda item: item.path):
                if self._take(f"{mark}{path}".replace("/", "|")):
                    fcntl.flock(self.quiet, lock)
                    yield from found

    def _take(self, name: str) -> bool:
        try:
            os.close(os.open(self.shared / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True


def pytest_configure(config: pytest.Config) -> None:
    if shared := os.environ.get(SHARED):
        config.pluginmanager.register(Lane(Path(shared), os.open(os.environ[QUIET], os.O_RDONLY | os.O_CLOEXEC)), "ringfence-lane")


def main(lanes: int, arguments: list[str]) -> int:
    """Start the lanes, show what each said once it has ended, and return the first status that is not success."""
    from live_report import faults_of, passed_in

    with ExitStack() as stack:
        shared = stack.enter_context(tempfile.TemporaryDirectory(prefix="rf-lanes-"))
        quiet = stack.enter_context(tempfile.NamedTemporaryFile(prefix="rf-quiet-"))
        environment = {QUIET: quiet.name, **os.environ, SHARED: shared}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations=10", "--durations-min=3", *arguments]
        running = []
        for _ in range(lanes):
            output = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            running.append((subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT), output))
            stack.callback(running[-1][0].terminate)
        for number, (lane, output) in enumerate(running, 1):
            lane.wait()
            output.seek(0)
            print(f"\n--- lane {number} of {lanes}, status {lane.returncode}\n{output.read()}", flush=True)
        faults = faults_of(sum((passed_in(file) for file in Path(shared).glob("passed-*")), Counter()))
        print("".join(f"required and not run: {fault}\n" for fault in faults), end="")
        statuses = {lane.returncode for lane, _ in running}
    if statuses == {NOTHING_RUN}:
        return NOTHING_RUN
    return max(statuses - {NOTHING_RUN}, key=abs) or bool(faults)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lanes end with this one
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
