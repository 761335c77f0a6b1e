"""When a call has returned, what it was to end is gone: not going, but gone; and what was not to end goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time

import pytest

import ringfence
from ringfence.errors import SandboxLostError
from ringfence.outcome import CapHit, Exited, Signaled
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
from survivors import fresh_marker, gone, running, wait_for

STRAGGLERS = "for i in $(seq 30); do setsid sh -c \"trap '' TERM; sleep {n} & sleep {n}\" & done; sleep {n}"


def test_at_a_deadline_the_call_returns_after_the_last_of_its_tree(box: Sandbox) -> None:
    for _ in range(3):
        marker = fresh_marker()
        assert box.execute_command(STRAGGLERS.format(n=marker), timeout=1.0).timed_out
        assert running(marker) == []


def test_at_the_end_of_a_spawned_process_the_last_of_its_tree_is_gone(box: Sandbox) -> None:
    marker = fresh_marker()
    with box.spawn(["sh", "-c", STRAGGLERS.format(n=marker)]):
        wait_for(marker, 61)
    assert running(marker) == []


def test_a_spawned_process_and_its_tree_end_at_its_deadline(box: Sandbox) -> None:
    marker = fresh_marker()
    with box.spawn(["sh", "-c", f"setsid sleep {marker} & echo begun; sleep {marker}"], timeout=0.8) as process:
        assert process.stdout.read(6) == b"begun\n"
        outcome = process.wait().outcome
        assert isinstance(outcome, CapHit)
        assert (outcome.kind, outcome.limit) == ("wall", 0.8)
        assert running(marker) == []
        assert process.returncode == -signal.SIGKILL


async def test_a_spawned_process_of_a_loop_ends_at_its_deadline(tier: str, anyio_backend_name: str) -> None:
    marker = fresh_marker()
    async with (
        ringfence.Sandbox(SandboxConfig(tier=tier)) as box,
        await box.spawn(["sh", "-c", f"setsid sleep {marker} & sleep {marker}"], timeout=0.8) as process,
    ):
        assert (await process.wait()).timed_out
        assert running(marker) == []


def test_what_was_ended_leaves_what_an_earlier_call_left_running(box: Sandbox) -> None:
    kept, ended = fresh_marker(), fresh_marker()
    box.execute_command(f"sleep {kept} & setsid sleep {kept} & exit 0")
    for _ in range(2):
        assert box.execute_command(STRAGGLERS.format(n=ended), timeout=0.8).timed_out
    with box.spawn(["sleep", ended]):
        pass
    assert (len(running(kept)), running(ended)) == (2, [])


@pytest.mark.parametrize("earlier", [0, 2], ids=["the first program", "a program of the template"])
def test_what_a_program_left_running_is_gone_with_the_box(tier: str, earlier: int) -> None:
    marker = fresh_marker()
    code = f"import subprocess\nsubprocess.Popen(['sleep', '{marker}'])\nsubprocess.Popen(['setsid', '-f', 'sleep', '{marker}'])"
    with Sandbox(SandboxConfig(tier=tier)) as box:
        for _ in range(earlier):
            box.execute("pass")
        result = box.execute(code + "\nprint('left')", timeout=20)
        assert (result.stdout, result.outcome) == ("left\n", Exited(0))
        wait_for(marker, 2)
        assert box.run(["true"]).ok
    assert gone(marker), running(marker)


def test_a_command_that_stops_all_it_can_reach_ends_at_its_deadline() -> None:
    # In a box of namespaces alone: elsewhere -1 means every process of the user.
    with Sandbox() as box:
        for who in ("0", "-1", "$$"):
            result = box.execute_command(f"echo before; kill -STOP {who}; sleep 1000", timeout=0.8)
            assert (result.stdout, result.timed_out) == ("before\n", True)
            assert box.execute_command("grep -l '^State:.T' /proc/[0-9]*/status", timeout=20).stdout == ""
        assert box.execute("print('next')", timeout=20).stdout == "next\n"


def test_a_command_that_kills_all_it_can_reach_harms_nothing_outside() -> None:
    outside = subprocess.Popen(["sleep", fresh_marker()])
    try:
        with Sandbox() as box:
            for _ in range(2):  # the program behind it is of the template from the second on
                assert box.execute("print(1)", timeout=20).stdout == "1\n"
            left = box.execute_command("sleep 1000 & echo $!").stdout.strip()
            result = box.execute_command("kill -9 -1; echo still", timeout=20)
            assert result.outcome in (Signaled(9), Exited(0))  # kill(2) spares the caller; the shell is the caller
            # Killed is not yet reaped: wait for the number to be nobody's.
            line = f"for _ in $(seq 200); do kill -0 {left} 2>/dev/null || exit 1; sleep 0.05; done"
            assert box.execute_command(line, timeout=20).exit_code == 1
            assert box.execute_command("kill -9 1; echo next", timeout=20).stdout == "next\n"
            assert box.execute("print('program')", timeout=20).stdout == "program\n"
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


def test_a_tree_that_goes_on_forking_ends_at_its_deadline() -> None:
    # Each process lives for a moment and starts the next, in a session of its own: whoever only lists and kills is late.
    hare = "import os\nfor _ in range(20000):\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
    with Sandbox() as box:
        began = time.monotonic()
        result = box.execute_command(f"python3 -c '{hare}' & python3 -c '{hare}' & sleep 1000", timeout=0.8)
        assert result.timed_out
        assert time.monotonic() - began < 10
        assert box.execute_command("grep -l ^Name:.python3 /proc/[0-9]*/status", timeout=20).stdout == ""


def test_a_program_that_stops_the_template_is_reported_when_it_ends(box: Sandbox) -> None:
    for _ in range(2):
        box.execute("pass")
    stop = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nprint('stopped')"
    for _ in range(3):
        result = box.execute(stop, timeout=30)
        assert (result.stdout, result.outcome) == ("stopped\n", Exited(0))
    end = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint('killed')"
    result = box.execute(end, timeout=30)
    assert (result.stdout, result.outcome) == ("killed\n", Exited(0))
    assert box.execute("print('next')", timeout=30).stdout == "next\n"


def test_a_stopped_first_process_is_ended_by_what_watches_from_outside(tier: str) -> None:
    marker = fresh_marker()
    with Sandbox(SandboxConfig(tier=tier)) as box:
        with box.spawn(["sleep", marker]):
            os.kill(box._open().box.pid, signal.SIGSTOP)  # from the host: nothing inside can
            began = time.monotonic()
            result = box.run(["echo", "never"], timeout=0.5)
            assert result.timed_out
            assert time.monotonic() - began < 10
        assert gone(marker), running(marker)
        with pytest.raises(SandboxLostError):
            box.run(["true"])


def test_concurrent_programs_end_each_at_its_own_deadline(tier: str) -> None:
    async def all_of_them() -> list[ringfence.Result]:
        limits = SandboxLimits(wall_seconds=30)
        async with ringfence.Sandbox(SandboxConfig(tier=tier, limits=limits)) as box:
            for _ in range(2):
                await box.execute("pass")
            code = "import subprocess, time\nsubprocess.Popen(['sleep', '1000'])\ntime.sleep({})\nprint('whole')"
            calls = [box.execute(code.format(seconds), timeout=limit) for seconds, limit in ((1.6, 30), (60, 0.6), (60, 1.0))]
            return await asyncio.gather(*calls)

    whole, *cut = asyncio.run(all_of_them())
    assert (whole.stdout, whole.outcome) == ("whole\n", Exited(0))
    assert [result.timed_out for result in cut] == [True, True]
