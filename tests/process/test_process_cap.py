"""A cap on processes: the call that goes beyond it fails, the box goes on, and what was counted is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.errors import UnenforceableError
from ringfence.outcome import CapHit, Exited, Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

MOST = 20
TAKE_ALL = """
import os, signal
children = []
try:
    while len(children) < 60:
        child = os.fork()
        if not child:
            os.setsid()
            signal.pause()
        children.append(child)
except OSError as error:
    print(error.errno)
print(len(children))
"""
THREADS = """
import threading, time
try:
    for n in range(60):
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
except RuntimeError:
    print(n)
"""
END_THEM = "for child in children: os.kill(child, 9)\n"
CAN_CAP = os.geteuid() == 0  # of the floor only a control group counts processes, which needs root or a delegated group


def capped(tier: str, most: int | None = MOST, **more: object) -> SandboxConfig:
    return SandboxConfig(tier=tier, limits=SandboxLimits(max_processes=most, **more))  # type: ignore[arg-type]


@pytest.fixture
def tier_with_a_cap(tier: str) -> str:
    if tier == "process" and not CAN_CAP:
        with pytest.raises(UnenforceableError, match="max_processes"):
            Sandbox(capped(tier)).__enter__()
        config = SandboxConfig(tier=tier, limits=SandboxLimits(max_processes=MOST), best_effort=["resources.max_processes"])
        with Sandbox(config) as box:
            assert box.enforcement.max_processes.level is Level.NONE
        return "namespaces"
    return tier


def test_beyond_the_cap_fork_fails_and_the_box_starts_lists_and_ends_all_the_same(tier_with_a_cap: str) -> None:
    with Sandbox(capped(tier_with_a_cap)) as box:
        counted = box.enforcement.max_processes.by.startswith("cgroup")
        for attempt in (box.execute(TAKE_ALL + END_THEM), box.execute(TAKE_ALL)):  # the second leaves them there
            assert (attempt.outcome, attempt.stdout.split()) == (Exited(0), ["11", str(MOST - 1)])
            said = [(denial.kind, denial.target, denial.evidence) for denial in attempt.denials]
            # What no group counts is seen where it lasts (test_reached.py); these are at the cap for a moment.
            assert said == [("cap", "processes", "observed")] or (said == [] and not counted)
        full = box.execute(TAKE_ALL)  # all are taken: it starts, and can start nothing
        assert (full.outcome, full.stdout.split()) == (Exited(0), ["11", "0"])
        assert box.run(["echo", "here"]).stdout == "here\n"
        box.write_file("note", "kept")
        assert box.read_file("note") == "kept"
        assert len(box.ps()) == MOST - 1
    with Sandbox(capped(tier_with_a_cap, 100)) as box:  # the same act without the cap succeeds, and is told by nothing
        free = box.execute(TAKE_ALL + END_THEM)
        assert (free.stdout, free.denials) == ("60\n", ())


def test_threads_count_as_processes_do(tier_with_a_cap: str) -> None:
    with Sandbox(capped(tier_with_a_cap)) as box:
        assert box.execute(THREADS).stdout == f"{MOST - 1}\n"


def test_boxes_of_one_caller_do_not_disturb_each_other() -> None:
    opened = [Sandbox(capped("namespaces", 8)) for _ in range(10)]
    try:
        for box in opened:
            box.__enter__()
            assert box.execute(TAKE_ALL).stdout.split() == ["11", "7"]  # and leaves them there
        assert all(box.run(["true"]).ok for box in opened)
    finally:
        for box in opened:
            box.cleanup()


def test_a_fork_bomb_stops_at_the_cap_and_another_box_answers_meanwhile(tier_with_a_cap: str) -> None:
    bomb = "b() { b | b & }; b; sleep 60"
    with Sandbox(capped(tier_with_a_cap, 100)) as attacked, Sandbox(SandboxConfig(tier=tier_with_a_cap)) as other:
        with attacked.spawn(["bash", "-c", bomb]):
            for _ in range(5):
                assert other.run(["true"], timeout=20).ok
            assert 0 < len(attacked.ps()) <= 100
        pid = attacked._open().box.pid
    assert not Path(f"/proc/{pid}").exists()  # with the first process of its PID namespace, or found by its group, all is gone


def test_where_nothing_is_asked_a_backstop_stands_and_is_said_to_be_one(tier: str) -> None:
    with Sandbox(capped(tier, None)) as box:
        held = box.enforcement.max_processes
        if tier == "process" and not CAN_CAP:
            assert held.level is Level.NONE
            return
        assert "backstop" in held.note and "4096" in held.note
        if held.by == "RLIMIT_NPROC":
            assert int(box.run(["bash", "-c", "ulimit -u"]).stdout) == 4096


def test_a_fork_too_many_ends_the_run_where_the_policy_says_so_and_something_counts_them(tier_with_a_cap: str) -> None:
    config = capped(tier_with_a_cap, on_breach={"processes": "kill"})
    with Sandbox(capped(tier_with_a_cap)) as box:
        counted = box.enforcement.max_processes.by.startswith("cgroup")
    if not counted:
        with pytest.raises(UnenforceableError, match=r"on_breach.*processes"):
            Sandbox(config).__enter__()
        return
    with Sandbox(config) as box:
        assert box.run(["true"]).ok
        for code in (TAKE_ALL + "signal.pause()", TAKE_ALL + END_THEM):  # the second ends by itself, mostly before anybody looks
            outcome = box.execute(code).outcome
            assert isinstance(outcome, CapHit)
            assert (outcome.kind, outcome.limit) == ("processes", MOST)
            assert box.run(["true"]).ok
