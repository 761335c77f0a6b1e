"""Control groups of boxes: there while a box is, empty or gone afterwards, reclaimed when their caller was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence.confine.cgroups import hierarchies
from ringfence.confine.groups import places
from ringfence.outcome import CapHit, Exited, Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("root")  # others have no group unless one is delegated to them

CAPS = SandboxLimits(memory_bytes=64 << 20, max_processes=200, cpu_limit=1.5)
GROW = "b = bytearray(1 << 30)"
KILLED = """
import os, signal, sys
from ringfence.process import zygote
from ringfence.sync import Sandbox, SandboxConfig
box = Sandbox(SandboxConfig())
box.__enter__()
box.spawn(["sh", "-c", "setsid sleep 300 & sleep 300"])
print(os.getpid(), flush=True)
if sys.argv[1] == "all":
    os.kill(zygote.current().pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
LATER = "from ringfence.sync import Sandbox\nwith Sandbox() as box: box.run(['true'])"


def groups_of(pid: int) -> list[Path]:
    """Every group of ours that this process made."""
    return [found for each in hierarchies() for found in Path(each.group).glob(f"ringfence-*-{pid}-*")]


def inside(groups: list[Path]) -> set[int]:
    return {int(pid) for group in groups for listed in group.rglob("cgroup.procs") for pid in listed.read_text().split()}


def test_all_of_a_box_is_in_its_groups_from_the_start_and_they_are_empty_when_it_ends(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=CAPS)) as box:
        held = [box.enforcement.memory, box.enforcement.max_processes, box.enforcement.cpu_share, box.enforcement.cpu]
        assert all(each.by.startswith("cgroup") for each in held)
        assert {each.level for each in held} == {Level.PARTIAL if tier == "process" else Level.FULL}
        groups = groups_of(os.getpid())
        assert box._open().box.pid in inside(groups)
        box.execute("pass")
        seen = {line for line in box.execute("print(open('/proc/self/cgroup').read())").stdout.splitlines() if "ringfence" in line}
        assert not seen or tier == "process"  # the name of a group says nothing inside
        with box.spawn(["sleep", "60"]):
            assert len(inside(groups)) >= 2
    assert not inside(groups)


def test_at_its_memory_cap_the_largest_goes_and_the_box_answers(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=CAPS)) as box:
        first = box.execute(GROW).outcome
        assert isinstance(first, CapHit) and (first.kind, first.enforced_by) == ("memory", "cgroup v1 memory")
        child = box.run(["sh", "-c", f"python3 -c '{GROW}'; echo survived"])
        assert (child.outcome, child.stdout, child.memory_exceeded) == (Exited(0), "survived\n", True)
        assert [(each.kind, each.target, each.evidence) for each in child.denials] == [("cap", "memory", "observed")]
        again = box.run(["sh", "-c", f"python3 -c '{GROW}'; python3 -c '{GROW}'; echo survived"])  # twice in one run: it ends
        assert isinstance(again.outcome, CapHit) and again.outcome.kind == "memory"
        many = box.run(["sh", "-c", f"for i in 1 2 3 4 5 6; do python3 -c '{GROW}' & done; wait"], timeout=60)
        assert isinstance(many.outcome, CapHit) and many.outcome.kind == "memory"
        assert box.execute("print(len(bytearray(8 << 20)))").stdout == f"{8 << 20}\n"
        assert not box.run(["sh", "-c", "kill -KILL $$"]).memory_exceeded


def test_a_box_after_another_enters_its_groups_and_is_not_told_of_what_they_met() -> None:
    for _ in range(3):
        with Sandbox(SandboxConfig(limits=CAPS)) as box:
            assert isinstance(box.execute(GROW).outcome, CapHit)
        with Sandbox(SandboxConfig(limits=CAPS)) as box:
            assert box.run(["true"]).denials == ()
    kept = groups_of(os.getpid())
    assert len(kept) <= places.KEPT
    assert not inside(kept)


def test_a_cap_whose_group_a_box_was_taken_out_of_is_none_and_is_not_told_as_met() -> None:
    with Sandbox(SandboxConfig(limits=CAPS)) as box:
        assert box.run(["true"]).enforcement.cpu.level is Level.FULL
        group = next(each for each in hierarchies() if "cpuacct" in each.controllers)
        Path(group.group, "cgroup.procs").write_text(str(box._open().box.pid))
        until = time.monotonic() + 20
        while (result := box.run(["true"])).enforcement.cpu.level is Level.FULL and time.monotonic() < until:
            time.sleep(0.1)
        assert result.enforcement.cpu.level is Level.NONE and "taken away" in result.enforcement.cpu.note
        assert (result.enforcement.memory.level, result.denials) == (Level.FULL, ())


@pytest.mark.parametrize("killed", ["the caller", "all"])
def test_what_a_killed_caller_left_is_removed_by_its_zygote_or_reclaimed_at_a_later_start(killed: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, killed], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    left, until = groups_of(int(done.stdout)), time.monotonic() + 20
    if killed == "all":
        assert left
        subprocess.run([sys.executable, "-c", LATER], check=True, timeout=60)
    while any(group.exists() for group in left) and time.monotonic() < until:
        time.sleep(0.02)
    assert groups_of(int(done.stdout)) == []


def test_a_program_that_ends_leaves_no_group() -> None:
    program = (
        "import os; from ringfence.sync import Sandbox, SandboxConfig\n"
        "boxes = [Sandbox(SandboxConfig()) for _ in range(2)]\n"
        "for box in boxes: box.__enter__()\n"
        "boxes[0].cleanup(); print(os.getpid())"  # the other is open when the interpreter ends
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert groups_of(int(done.stdout)) == []
