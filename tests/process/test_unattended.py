"""Deadlines hold while nobody attends to them: the caller's loop is blocked, or the caller is stopped."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

import ringfence
from ringfence.process import run as runs
from ringfence.sync import Sandbox, SandboxConfig
from survivors import fresh_marker, gone, running, wait_for

SLACK = 4.0
"""Seconds that a loaded machine may add to a deadline before a test calls it broken."""

PROGRAM = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '{n}'])\nsubprocess.run(['sleep', '{n}'])"
LINE = "trap '' TERM; setsid sleep {n} & sleep {n}"


def test_every_kind_of_call_ends_while_the_loop_is_blocked(tier: str) -> None:
    marker = fresh_marker()
    seen: list[bool] = []

    async def spawned(box: ringfence.Sandbox) -> ringfence.Result:
        async with await box.spawn(["sh", "-c", LINE.format(n=marker)], timeout=2.0) as process:
            return await process.wait()

    async def main() -> list[ringfence.Result]:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as first, ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
            await box.execute("pass")
            await box.execute("pass")
            calls = [
                first.execute(PROGRAM.format(n=marker), timeout=2.0),
                box.execute(PROGRAM.format(n=marker), timeout=2.0),
                box.execute_command(LINE.format(n=marker), timeout=2.0),
                spawned(box),
            ]
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.to_thread(wait_for, f"sleep {marker}", 8)
            # The point: this loop does nothing until all of it is gone, and only a thread of its own looks.
            watch = threading.Thread(target=lambda: seen.append(gone(f"sleep {marker}", 2.0 + SLACK)))
            watch.start()
            watch.join()
            return await asyncio.gather(*tasks)

    results = asyncio.run(main())
    assert seen == [True]
    assert [result.timed_out for result in results] == [True] * 4


STOPPED = """
import sys, threading
from ringfence.sync import Sandbox, SandboxConfig
tier, marker, program, line = sys.argv[1:]

def spawned():
    box.spawn(["sh", "-c", line], timeout=2.0).wait()

with Sandbox(SandboxConfig(tier=tier)) as first, Sandbox(SandboxConfig(tier=tier)) as box:
    box.execute("pass")
    box.execute("pass")
    results = []
    calls = [
        lambda: results.append(first.execute(program, timeout=2.0).timed_out),
        lambda: results.append(box.execute(program, timeout=2.0).timed_out),
        lambda: results.append(box.execute_command(line, timeout=2.0).timed_out),
        lambda: results.append(box.spawn(["sh", "-c", line], timeout=2.0).wait().timed_out),
    ]
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(results)
"""


def test_every_kind_of_call_ends_while_the_caller_is_stopped_and_is_told_when_it_goes_on(tier: str) -> None:
    marker = fresh_marker()
    argv = [tier, marker, PROGRAM.format(n=marker), LINE.format(n=marker)]
    caller = subprocess.Popen([sys.executable, "-W", "ignore", "-c", STOPPED, *argv], stdout=subprocess.PIPE, text=True)
    try:
        wait_for(f"sleep {marker}", 8, besides=caller.pid)
        caller.send_signal(signal.SIGSTOP)
        assert running(f"sleep {marker}", besides=caller.pid)
        assert gone(f"sleep {marker}", 2.0 + SLACK, besides=caller.pid), running(marker, besides=caller.pid)
        caller.send_signal(signal.SIGCONT)
        assert caller.communicate(timeout=30)[0] == "[True, True, True, True]\n"
    finally:
        caller.kill()
        caller.communicate()


def test_a_loop_blocked_past_every_grace_loses_neither_its_box_nor_another_call(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LATE_SECONDS", 0.2)  # what the caller itself waits past the deadline and the grace

    async def main() -> tuple[ringfence.Result, ringfence.Result]:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
            cut = asyncio.create_task(box.run(["sleep", "600"], timeout=0.3))
            whole = asyncio.create_task(box.execute_command("sleep 4; echo whole", timeout=60))
            await asyncio.sleep(0.1)
            time.sleep(3.5)  # longer than what the box has for ending a tree before it is ended itself
            whole_result, cut_result = await whole, await cut
            assert (await box.run(["echo", "next"], timeout=0.5)).stdout == "next\n"
            return cut_result, whole_result

    cut, whole = asyncio.run(main())
    assert cut.timed_out
    assert whole.stdout == "whole\n"


def test_a_result_that_was_ready_before_the_loop_looked_is_no_timeout(tier: str) -> None:
    async def main() -> ringfence.Result:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
            task = asyncio.create_task(box.execute_command("sleep 0.2; echo done", timeout=1.0))
            await asyncio.sleep(0.1)
            time.sleep(1.5)  # past the deadline, but the command was not
            result = await task
            assert (await box.run(["echo", "next"])).stdout == "next\n"
            return result

    result = asyncio.run(main())
    assert (result.stdout, result.ok) == ("done\n", True)


def test_a_caller_that_is_stopped_in_between_gets_what_was_written(tier: str) -> None:
    code = (
        "import sys\nfrom ringfence.sync import Sandbox, SandboxConfig\n"
        "with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:\n"
        "    print(box.execute_command('echo first; sleep 1; echo last', timeout=30, stdin='').stdout, flush=True)\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, tier], stdout=subprocess.PIPE, text=True)
    try:
        wait_for("echo first", 1, besides=caller.pid)
        caller.send_signal(signal.SIGSTOP)
        assert gone("echo first", 10, besides=caller.pid)
        caller.send_signal(signal.SIGCONT)
        assert caller.communicate(timeout=30)[0] == "first\nlast\n\n"
    finally:
        caller.kill()
        caller.communicate()


def test_deadlines_of_many_boxes_are_kept_by_one_stopped_caller(tier: str) -> None:
    marker = fresh_marker()
    code = (
        "import contextlib, sys, time\nfrom ringfence.sync import Sandbox, SandboxConfig\n"
        "with contextlib.ExitStack() as stack:\n"
        "    for _ in range(8):\n"
        "        box = stack.enter_context(Sandbox(SandboxConfig(tier=sys.argv[1])))\n"
        "        stack.enter_context(box.spawn(['sh', '-c', f'setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}'], timeout=4.0))\n"
        "    sys.stdin.read()\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, tier, marker], stdin=subprocess.PIPE)
    try:
        wait_for(f"sleep {marker}", 16, besides=caller.pid)
        caller.send_signal(signal.SIGSTOP)
        assert gone(f"sleep {marker}", 4.0 + SLACK, besides=caller.pid)
        caller.send_signal(signal.SIGCONT)
        caller.communicate(timeout=30)
        assert caller.returncode == 0
    finally:
        caller.kill()
        caller.communicate()
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["true"]).ok
