"""Giving a call up does to its tree what a deadline does, on either loop and without one, and stays giving up."""

from __future__ import annotations

import asyncio
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

import ringfence
import ringfence.sync
from ringfence import Sandbox, SandboxConfig
from ringfence.process import asking
from ringfence.process.wait import blocking
from survivors import fresh_marker, gone, running, wait_for

Call = Callable[[Sandbox, str], Awaitable[object]]


async def a_command(box: Sandbox, marker: str) -> object:
    return await box.execute_command(f"for i in $(seq 20); do setsid sleep {marker} & done; sleep {marker}")


async def a_program(box: Sandbox, marker: str) -> object:
    return await box.execute(
        f"import subprocess\nfor _ in range(20): subprocess.Popen(['sleep', '{marker}'], start_new_session=True)\n"
        f"subprocess.run(['sleep', '{marker}'])"
    )


async def a_program_of_the_template(box: Sandbox, marker: str) -> object:
    await box.execute("pass")
    await box.execute("pass")
    return await a_program(box, marker)


async def a_spawned_process(box: Sandbox, marker: str) -> object:
    line = f"for i in $(seq 20); do setsid sleep {marker} & done; sleep {marker}"
    async with await box.spawn(["bash", "-c", line]) as process:
        return await process.wait()


CALLS = (a_command, a_program, a_program_of_the_template, a_spawned_process)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_a_cancelled_call_is_over_when_its_tree_is_gone(tier: str, call: Call, anyio_backend_name: str) -> None:
    marker = fresh_marker()
    async with Sandbox(SandboxConfig(tier=tier)) as box:
        returned = False

        async def given_up() -> None:
            nonlocal returned
            await call(box, marker)
            returned = True

        async with anyio.create_task_group() as group:
            group.start_soon(given_up)
            await anyio.to_thread.run_sync(wait_for, marker, 21)
            group.cancel_scope.cancel()
        assert running(marker) == []
        assert not returned
        assert (await box.run(["echo", "next"])).stdout == "next\n"
        assert (await box.execute("print('next')")).stdout == "next\n"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_task_of_asyncio_raises_what_asyncio_raises(tier: str, anyio_backend_name: str) -> None:
    marker = fresh_marker()
    async with Sandbox(SandboxConfig(tier=tier)) as box:
        task = asyncio.create_task(a_command(box, marker))
        await asyncio.to_thread(wait_for, marker, 21)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await box.run(["sleep", marker])
        assert running(marker) == []


async def test_one_of_two_calls_is_cancelled_and_the_other_goes_on(tier: str, anyio_backend_name: str) -> None:
    found = []
    cancelled, kept = fresh_marker(), fresh_marker()
    async with Sandbox(SandboxConfig(tier=tier)) as box, anyio.create_task_group() as group:

        async def other() -> None:
            found.append((await box.execute_command(f"sleep {kept} & read line; echo whole", stdin="")).stdout)
            found.append((await box.execute_command("sleep 0.8; echo whole")).stdout)

        group.start_soon(other)
        with anyio.move_on_after(0.4) as scope:
            await box.execute_command(f"setsid sleep {cancelled} & sleep {cancelled}")
        assert scope.cancelled_caught
        assert (len(running(kept)), running(cancelled)) == (1, [])
    assert found == ["whole\n", "whole\n"]
    assert gone(kept)


async def test_a_box_given_up_while_it_is_made_leaves_nothing(tier: str, anyio_backend_name: str) -> None:
    # The leak check looks at what is left; where the moment falls differs from round to round.
    for step in range(8):
        with anyio.move_on_after(0.0005 * 2**step / 2):
            async with Sandbox(SandboxConfig(tier=tier)) as box:
                await box.run(["sleep", "60"])
    async with Sandbox(SandboxConfig(tier=tier)) as box:
        assert (await box.run(["echo", "next"])).stdout == "next\n"


async def test_a_call_in_a_scope_that_is_cancelled_already_runs_to_no_end(tier: str, anyio_backend_name: str) -> None:
    marker = fresh_marker()
    async with Sandbox(SandboxConfig(tier=tier)) as box:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await box.run(["sleep", marker])
        assert scope.cancelled_caught
        assert running(marker) == []


def test_a_loop_can_be_run_again_after_a_cancelled_one(tier: str) -> None:
    async def cancelled(marker: str) -> None:
        async with Sandbox(SandboxConfig(tier=tier)) as box:
            await asyncio.wait_for(box.run(["sleep", marker]), 0.2)

    async def whole() -> ringfence.Result:
        async with Sandbox(SandboxConfig(tier=tier)) as box:
            return await box.run(["echo", "whole"])

    for _ in range(2):
        marker = fresh_marker()
        with pytest.raises(TimeoutError):
            asyncio.run(cancelled(marker))
        assert running(marker) == []
        assert asyncio.run(whole()).stdout == "whole\n"


QUIET = """
import asyncio, sys
from ringfence import Sandbox, SandboxConfig
from ringfence.process import asking
from ringfence.process.wait import blocking

async def main():
    async with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:
        task = asyncio.create_task(box.run(["sleep", "60"]))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        print(task.cancelled())

asyncio.run(main(), debug=True)
asyncio.run(main(), debug=True)
"""


def test_cancelling_says_nothing_on_stderr_with_every_warning_on(tier: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", QUIET, tier], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("True\nTrue\n", 0)
    noise = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]  # asyncio's word for slow steps
    assert noise == []


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[3])
from survivors import running
from ringfence.sync import Sandbox, SandboxConfig
marker = sys.argv[2]
with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:
    print("ready", flush=True)
    try:
        box.execute_command(f"setsid sleep {marker} & sleep {marker}")
    except KeyboardInterrupt:
        print("interrupted", running(marker))
    print(box.run(["echo", "next"]).stdout, end="", flush=True)
    with box.spawn(["sleep", marker]) as process:
        try:
            print("waiting", flush=True)
            process.wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    print(running(marker), box.execute("print('next')").stdout, end="", flush=True)
"""


def test_an_interrupt_of_the_blocking_caller_ends_the_tree_and_is_raised(tier: str) -> None:
    marker = fresh_marker()
    argv = [sys.executable, "-c", INTERRUPTED, tier, marker, str(Path(__file__).parent.parent)]
    caller = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        wait_for(f"sleep {marker}", 2)
        caller.send_signal(signal.SIGINT)
        assert caller.stdout.readline() == "interrupted []\n"
        assert caller.stdout.readline() == "next\n"
        assert caller.stdout.readline() == "waiting\n"
        caller.send_signal(signal.SIGINT)
        assert caller.stdout.readline() == "interrupted\n"
        assert caller.stdout.readline() == "[] next\n"
        assert caller.wait(30) == 0
    finally:
        caller.kill()
        caller.communicate()


def test_a_call_that_is_given_up_as_it_ends_takes_no_later_one_with_it(tier: str) -> None:
    with ringfence.sync.Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["true"]).ok and box._world is not None
        for _ in range(5):
            run = box._world.begin(asking.argv(["true"], None, None, None, None))
            assert run._lane is not None
            ended = select.poll()
            ended.register(run._lane.channel, select.POLLIN)
            assert ended.poll(20_000)  # its end is told, and nobody has read that yet
            run.signal(signal.SIGTERM)
            blocking(run.abort())
            run.release()
            assert box.run(["echo", "next"]).stdout == "next\n"
