"""What runs in a box is told as it is there, and what it says of itself is believed in nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import ringfence
from ringfence import errors
from ringfence.guest import wire
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.world import processes

pytestmark = pytest.mark.live("namespaces")


def told(box: Sandbox, names: list[str]) -> list[processes.ProcessInfo]:
    """What is told as soon as it has these names: a fork has its parent's until it execs."""
    until = time.monotonic() + 30
    found = box.ps()
    while [each.name for each in found] != names:
        assert time.monotonic() < until, found
        found = box.ps()
    return found


def test_each_process_is_told_with_its_run_and_none_of_ours_is(tier: str, workspace: Path) -> None:
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace)) as box:
        assert box.ps() == []
        for _ in range(3):
            box.execute("print(1)").raise_for_status()
        assert box.ps() == []
        began = time.time()
        with box.spawn(["sh", "-c", "sleep 4321 & echo ready; wait"]) as process:
            assert process.stdout.readline() == b"ready\n"
            shell, sleep = told(box, ["sh", "sleep"])
            assert shell.pid == process.pid == shell.run == sleep.run == sleep.ppid and sleep.pid > shell.pid
            assert shell.argv == ("sh", "-c", "sleep 4321 & echo ready; wait") and sleep.argv == ("sleep", "4321")
            assert sleep.state in "RSD" and sleep.rss_bytes > 0 and sleep.cpu_seconds < 10 and abs(sleep.started - began) < 30
        assert box.ps() == []
        box.execute_command("sleep 4321 & exit 0").raise_for_status()
        (left,) = told(box, ["sleep"])
        assert left.argv == ("sleep", "4321") and left.run is not None and left.ppid != left.run


def test_a_program_and_what_it_started_are_told_with_its_run(box: Sandbox) -> None:
    for _ in range(2):
        box.execute("pass").raise_for_status()  # from here on programs are forked from a template
    code = "import subprocess, time, sys\nsubprocess.Popen(['sleep', '4321'], start_new_session=True)\nprint('ready', flush=True)"
    seen: list[list[processes.ProcessInfo]] = []
    box.execute(code + "\ntime.sleep(0.5)", on_stdout=lambda _: seen.append(box.ps()))
    program, sleep = sorted(seen[0], key=lambda each: each.argv[0] == "sleep")
    assert program.run == program.pid == sleep.run == sleep.ppid


def test_what_runs_outside_is_not_told(tier: str, workspace: Path) -> None:
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace)) as box, box.spawn(["sleep", "4321"]) as process:
        assert [each.pid for each in box.ps()] == [process.pid]
        inside = box.run(["sh", "-c", f"[ -e /proc/{os.getpid()}/cmdline ] && tr '\\0' ' ' < /proc/{os.getpid()}/cmdline"])
        assert ("pytest" in inside.stdout) is (tier == "process")  # the control


def test_a_process_that_lies_about_its_name_and_arguments_is_told_all_the_same(box: Sandbox) -> None:
    code = (
        "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\n"
        "libc.prctl(15, b') S 1 (x\\n\\xff', 0, 0, 0)\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    with box.spawn(["python3", "-c", code, "x" * 100_000, "", "\udcff\n"]) as process:
        assert process.stdout.readline() == b"ready\n"
        (one,) = box.ps()
        assert one.pid == process.pid == one.run and one.name == ") S 1 (x\n\udcff"
        assert one.argv[1] == "-c" and sum(map(len, one.argv)) <= 4096


def test_one_that_has_ended_and_is_not_collected_is_told_as_such(box: Sandbox) -> None:
    code = "import os, time\npid = os.fork()\nif pid == 0: os._exit(0)\nprint(pid, flush=True)\ntime.sleep(100)"
    with box.spawn(["python3", "-c", code]) as process:
        child = int(process.stdout.readline())
        while {each.pid: each.state for each in box.ps()}[child] != "Z":
            pass
        assert next(each for each in box.ps() if each.pid == child).argv == ()


async def test_the_awaiting_face_tells_the_same(workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert await box.ps() == []
        async with await box.spawn(["sleep", "4321"]) as process:
            (one,) = await box.ps()
            assert isinstance(one, ringfence.ProcessInfo) and one.pid == process.pid


GOOD: dict[str, object] = {
    "pid": 5, "parent": 1, "name": b"n", "argv": [b"a"], "state": b"R", "run": 0, "rss": 1, "cpu": 1, "started": 1,
}  # fmt: skip
BAD: list[tuple[str, object]] = [
    ("pid", 0), ("pid", 1 << 40), ("pid", b"1"), ("parent", -1), ("name", 5), ("name", b"n" * 65), ("argv", b"a"), ("argv", [1]),
    ("argv", [b"a" * 5000]), ("argv", [b""] * 5000), ("state", b""), ("state", b"RR"), ("state", b"Q"), ("run", -1), ("rss", -1),
    ("cpu", 1 << 63), ("started", b""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_process_whose_field_is_out_of_bounds_is_refused(name: str, value: object) -> None:
    assert processes.parse(wire.encode([GOOD]))[0].pid == 5
    with pytest.raises(errors.ProtocolError):
        processes.parse(wire.encode([{**GOOD, name: value}]))
    with pytest.raises(errors.ProtocolError):
        processes.parse(wire.encode([{key: each for key, each in GOOD.items() if key != name}]))
    with pytest.raises(errors.ProtocolError):
        processes.parse(wire.encode([{**GOOD, "more": 1}]))


VALUES = some.recursive(
    some.integers(-(1 << 62), 1 << 62) | some.binary(max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from([*GOOD]), inner, max_size=9),
    max_leaves=12,
)


@given(VALUES.map(wire.encode) | some.binary(max_size=80))
def test_an_answer_is_a_list_of_processes_or_is_refused(data: bytes) -> None:
    try:
        found = processes.parse(data)
    except errors.ProtocolError:
        return
    assert all(isinstance(each, processes.ProcessInfo) for each in found)
