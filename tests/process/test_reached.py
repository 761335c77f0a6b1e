"""Caps whose refusals nothing counts are told once they are seen met, and not where something stops just short of them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringfence.confine.groups import places
from ringfence.outcome import Denial, Exited
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

FILES, TASKS = 48, 12
HOLD = "import os, sys\nwhile os.open('/dev/null', os.O_RDONLY) < {} - 1: pass\nprint('up', flush=True)\nsys.stdin.read()"
OWN = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))\n"
FLICKER = """
import os, select, sys
print('up', flush=True)
while not select.select([0], [], [], 0)[0]:
    held = []
    try:
        while True: held.append(os.open('/dev/null', os.O_RDONLY))
    except OSError as error:
        assert error.errno == 24
    os.closerange(held[0], held[-1] + 1)
"""
FORKS = """
import os, signal, sys
children = []
try:
    while len(children) < {}:
        child = os.fork()
        if not child: signal.pause()
        children.append(child)
except BlockingIOError: pass
print(len(children), flush=True)
sys.stdin.read()
for child in children: os.kill(child, 9)
"""


def told(found: tuple[Denial, ...]) -> list[tuple[str, str, str | None]]:
    return [(each.target, each.evidence, each.remedy) for each in found if each.kind == "cap"]


def held_at_once(box: Sandbox, *programs: str) -> list[list[tuple[str, str, str | None]]]:
    """What each of these programs is told of, all of them at rest together until a cap has been seen met."""
    with ExitStack() as stack:
        runs = [stack.enter_context(box.spawn(["python3", "-c", program])) for program in programs]
        for run in runs:
            assert run.stdout.read(2)
        evidence, until = box._open().box.evidence, time.monotonic() + 30
        while not evidence.caps and time.monotonic() < until:
            evidence.read()
            time.sleep(0.01)
        for run in runs:
            run.stdin.close()
        ended = [run.wait() for run in runs]
    assert [each.outcome for each in ended] == [Exited(0)] * len(runs)
    return [told(each.denials) for each in ended]


def test_a_process_that_has_all_its_descriptors_in_use_is_told_and_one_with_one_less_is_not(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(open_files=FILES))) as box:
        less, own, full = held_at_once(
            box, HOLD.format(FILES - 1), OWN.format(FILES - 8) + HOLD.format(FILES - 8), HOLD.format(FILES)
        )
        assert (less, own) == ([], [])  # the second is full by a limit of its own making
        assert full == [("open_files", "observed", f"resources.open_files: {2 * FILES}")]
        assert box.run(["true"]).denials == ()


def test_a_process_that_fills_its_table_and_empties_it_at_once_is_seen_too(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(open_files=FILES))) as box:
        own, full = held_at_once(box, OWN.format(FILES - 8) + FLICKER, FLICKER)
        assert own == []
        assert [entry[:2] for entry in full] == [("open_files", "observed")]


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control group counts processes, whoever the caller is."""
    places.PLACES.take({})  # it looks for them once
    monkeypatch.setattr(places.PLACES, "_mounted", [each for each in places.PLACES._mounted if "pids" not in each.controllers])


@pytest.mark.live("namespaces")
@pytest.mark.usefixtures("uncounted")
def test_processes_at_their_cap_are_told_where_no_control_group_counts_them(workspace: Path) -> None:
    limits = SandboxLimits(max_processes=TASKS)
    with Sandbox(SandboxConfig(workspace=workspace, limits=limits)) as box:
        assert box.enforcement.max_processes.by == "RLIMIT_NPROC"
        (full,) = held_at_once(box, FORKS.format(100))
        assert full == [("processes", "observed", f"resources.max_processes: {2 * TASKS}")]
    with Sandbox(SandboxConfig(workspace=workspace, limits=limits)) as box:
        less, other = held_at_once(box, FORKS.format(TASKS - 3), HOLD.format(512))  # one less than the cap, all together
        assert (less, [entry[0] for entry in other]) == ([], ["open_files"])
