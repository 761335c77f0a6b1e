"""Whoever is killed from outside, nothing runs on and what is known is said: the caller, the zygote, a box."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

import ringfence
from ringfence.confine import process as floor
from ringfence.errors import SandboxLostError
from ringfence.outcome import Exited, Signaled
from ringfence.process import zygote
from ringfence.sync import Sandbox, SandboxConfig
from survivors import fresh_marker, gone, running, wait_for

SLACK = 4.0
"""Seconds that a loaded machine may add to what is promised before a test calls it broken."""


def reclaim(tier: str) -> None:
    """The next box of the tier removes the private folders that a killed caller left behind."""
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["true"]).ok


def below(pid: int) -> set[int]:
    """Every process that descends from pid."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found


def alive(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


def all_end(pids: set[int], within: float) -> bool:
    limit = time.monotonic() + within
    while alive(pids):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


MANY_BOXES = """
import contextlib, sys, time
from ringfence.sync import Sandbox, SandboxConfig
with contextlib.ExitStack() as stack:
    for number in range(int(sys.argv[3])):
        box = stack.enter_context(Sandbox(SandboxConfig(tier=sys.argv[1])))
        box.execute_command(f"setsid sleep {sys.argv[2]} & exit 0")
        stack.enter_context(box.spawn(["sh", "-c", f"trap '' TERM HUP; sleep {sys.argv[2]} & wait"]))
    print("started", flush=True)
    time.sleep(600)
"""

MAKING = """
import itertools, sys, threading
from ringfence.sync import Sandbox, SandboxConfig

def make():
    while True:
        with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:
            box.run(["true"])

with Sandbox(SandboxConfig(tier=sys.argv[1])):
    for _ in range(3):
        threading.Thread(target=make, daemon=True).start()
    print("started", flush=True)
    threading.Event().wait()
"""


def start_caller(*argv: str) -> subprocess.Popen[str]:
    caller = subprocess.Popen([sys.executable, "-c", *argv], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    assert caller.stdout.readline() == "started\n"
    return caller


def test_the_twenty_boxes_of_a_killed_caller_are_gone(tier: str) -> None:
    marker = fresh_marker()
    caller = start_caller(MANY_BOXES, tier, marker, "20")
    try:
        wait_for(f"sleep {marker}", 40)
        ours = below(caller.pid)
        assert len(ours) > 60  # the zygote, and of each box the guest and what runs in it
    finally:
        caller.kill()
        caller.communicate()
    assert all_end(ours, 1.0 + SLACK), alive(ours)
    assert gone(f"sleep {marker}", 1.0)
    reclaim(tier)


@pytest.mark.parametrize("moment", [0.0, 0.004, 0.011, 0.03])
def test_a_caller_killed_while_it_makes_boxes_leaves_none(tier: str, moment: float) -> None:
    caller = start_caller(MAKING, tier)
    try:
        time.sleep(moment)  # no condition: the boxes come and go, and any moment will do
        caller.send_signal(signal.SIGSTOP)  # so that what is looked at is all there is
        ours = below(caller.pid)
        assert ours
    finally:
        caller.kill()
        caller.communicate()
    assert all_end(ours, 1.0 + SLACK), alive(ours)
    reclaim(tier)  # and the leak check finds no box that belongs to nobody


def test_a_caller_that_is_terminated_leaves_no_box(tier: str) -> None:
    marker = fresh_marker()
    caller = start_caller(MANY_BOXES, tier, marker, "2")
    ours = below(caller.pid)
    caller.terminate()
    caller.communicate()
    assert all_end(ours, 1.0 + SLACK), alive(ours)
    assert gone(f"sleep {marker}", 1.0)
    reclaim(tier)


def kill_zygote() -> None:
    os.kill(zygote.current().pid, signal.SIGKILL)


def test_a_killed_zygote_loses_every_box_and_each_call_says_what_came_so_far(tier: str) -> None:
    marker = fresh_marker()
    lost: list[bytes] = []

    def call(box: Sandbox) -> None:
        try:
            box.execute_command(f"echo so far; setsid sleep {marker} & sleep {marker}", timeout=60)
        except SandboxLostError as error:
            lost.append(error.stdout)

    with Sandbox(SandboxConfig(tier=tier)) as first, Sandbox(SandboxConfig(tier=tier)) as second:
        calls = [threading.Thread(target=call, args=(box,)) for box in (first, first, second)]
        for thread in calls:
            thread.start()
        wait_for(f"sleep {marker}", 9)  # of each call its shell and two sleepers
        ours = below(zygote.current().pid)
        kill_zygote()
        for thread in calls:
            thread.join(30)
        assert lost == [b"so far\n"] * 3
        for box in (first, second):
            with pytest.raises(SandboxLostError):
                box.run(["true"])
            with pytest.raises(SandboxLostError):
                box.list_files()
        if tier == "namespaces":
            assert all_end(ours, 1.0 + SLACK), alive(ours)
    if tier == "namespaces":
        assert gone(f"sleep {marker}", 1.0), running(marker)
    else:
        end_strays(marker)
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["echo", "again"]).stdout == "again\n"


def end_strays(marker: str) -> None:
    """Without namespaces the kernel ends only the guest with its zygote; what that had started is for this test to end."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    assert gone(marker)


async def test_awaiting_calls_are_told_that_the_box_is_lost(anyio_backend_name: str) -> None:
    lost: list[bytes] = []
    async with ringfence.Sandbox() as box:

        async def call() -> None:
            try:
                await box.execute("print('so far', flush=True)\nimport time\ntime.sleep(600)", on_stdout=lambda _: kill_zygote())
            except SandboxLostError as error:
                lost.append(error.stdout)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
    assert lost == [b"so far\n"]
    async with ringfence.Sandbox() as box:
        assert (await box.run(["echo", "again"])).stdout == "again\n"


def test_a_spawned_process_whose_box_is_killed_says_so(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sh", "-c", "echo begun; exec sleep 600"]) as process:
            assert process.stdout.read(6) == b"begun\n"
            os.kill(box._open().box.pid, signal.SIGKILL)
            with pytest.raises(SandboxLostError, match="signal 9"):
                process.wait()
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["echo", "again"]).stdout == "again\n"


def test_a_lost_box_does_not_touch_its_neighbours(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as kept, Sandbox(SandboxConfig(tier=tier)) as lost:
        left = kept.execute_command("sleep 600 & echo $!").stdout.strip()
        os.kill(lost._open().box.pid, signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            lost.run(["sleep", "600"], timeout=30)
        assert kept.execute_command(f"kill -0 {left}").ok
        assert kept.execute("print('program')").stdout == "program\n"


def test_a_box_that_breaks_its_own_shell_is_not_called_lost() -> None:
    with Sandbox() as box:
        broken = box.execute_command("rm -rf /bin/sh /usr/bin/env 2>/dev/null; chmod 000 /bin/sh 2>/dev/null; echo tried")
        assert broken.stdout == "tried\n"
        assert box.execute_command("echo hi").stdout == "hi\n"
        assert box.run(["sh", "-c", "exec sh /no/such/script"]).outcome in (Exited(127), Exited(2))
        assert box.run(["sh", "-c", "PATH=; true; nothing"]).outcome == Exited(127)
        assert box.run(["sh", "-c", "kill -9 $$"]).outcome == Signaled(9)
        assert box.run(["true"]).ok


def test_a_lost_box_that_its_caller_still_holds_costs_the_zygote_nothing() -> None:
    """Counted in turns of its loop, by what the kernel says of its CPU time: one that spins takes all that there is."""

    def spent() -> int:
        fields = Path(f"/proc/{zygote.current().pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    with Sandbox(SandboxConfig()) as lost:
        os.kill(lost._open().box.pid, signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            lost.run(["true"])
        before = spent()
        until = time.process_time() + 0.3  # of our own time, so that the zygote had its turn however busy the machine is
        while time.process_time() < until:
            pass
        assert spent() - before < 5  # hundredths of a second
        for _ in range(5):
            with Sandbox(SandboxConfig()) as box:
                assert box.run(["true"]).ok


def test_callers_that_reclaim_the_same_folders_at_once_leave_what_is_above_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    for number in range(200):
        (tmp_path / f"ringfence-{ended.pid}-{number}/home").mkdir(parents=True)
    failed: list[BaseException] = []

    def open_one() -> None:
        try:
            with Sandbox(SandboxConfig(tier="process")) as box:
                assert box.run(["true"]).ok
        except BaseException as error:
            failed.append(error)

    callers = [threading.Thread(target=open_one) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    floor.remove(str(tmp_path / "gone"))
    assert not failed
    assert (list(tmp_path.iterdir()), tmp_path.stat().st_mode & 0o7777) == ([], 0o1777)
