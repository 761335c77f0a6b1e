"""A call ends when it says it ends, whatever holds its pipes, and with it everything that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringfence
from ringfence.outcome import CapHit, Exited
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
from survivors import gone, running, wait_for

SLACK = 4.0
"""Seconds that a loaded machine may add to a deadline before a test calls it broken."""


HOLDERS = {
    "a sleeper": "sleep {n}",
    "children that ignore TERM": "trap '' TERM; sleep {n} & sleep {n} & wait",
    "a session of its own": "setsid sleep {n} & sleep {n}",
    "a double fork out of the session": "(setsid sh -c '(setsid sleep {n} &) &' &); sleep {n}",
    "a stopped process": "sleep {n} & kill -STOP $!; kill -STOP $$",
    "everything stopped": "sleep {n} & kill -STOP 0",
    "closed output": "exec >&- 2>&-; sleep {n}",
    "a writer without end": "yes {n}",
}


@pytest.mark.parametrize("line", HOLDERS.values(), ids=HOLDERS.keys())
def test_a_deadline_ends_the_call_and_the_whole_tree(box: Sandbox, tier: str, line: str) -> None:
    marker = str(40_000 + os.getpid() % 1000 * 10 + len(line) % 10)
    began = time.monotonic()
    result = box.execute_command("echo before; " + line.format(n=marker), timeout=0.7)
    assert time.monotonic() - began < 0.7 + SLACK
    assert isinstance(result.outcome, CapHit)
    assert (result.outcome.kind, result.outcome.limit, result.timed_out) == ("wall", 0.7, True)
    assert result.exit_code is None
    assert result.stdout.startswith("before\n")
    assert gone(marker), running(marker)
    assert box.run(["echo", "next"]).stdout == "next\n"


@pytest.mark.parametrize("earlier", [0, 2], ids=["the first program", "a program of the template"])
def test_a_deadline_ends_a_program_and_what_it_started(box: Sandbox, earlier: int) -> None:
    for _ in range(earlier):
        box.execute("pass")
    marker = str(50_000 + os.getpid() % 1000 * 10 + earlier)
    code = f"import subprocess, time; print('begun', flush=True); subprocess.Popen(['sleep', '{marker}'], start_new_session=True)\n"
    result = box.execute(code + "while True: time.sleep(1)", timeout=1.0)
    assert result.timed_out
    assert result.stdout == "begun\n"
    assert gone(marker), running(marker)
    assert box.execute("print('next')").stdout == "next\n"


def test_a_stopped_template_is_no_reason_to_wait(box: Sandbox) -> None:
    for _ in range(2):
        box.execute("pass")
    stop = "import os, signal, pathlib\nos.kill(os.getppid(), signal.SIGSTOP)\nprint('stopped', flush=True)"
    assert box.execute(stop, timeout=20).stdout == "stopped\n"
    assert box.execute("print('next')", timeout=20).stdout == "next\n"


def test_output_that_a_background_process_holds_does_not_hold_the_call(box: Sandbox) -> None:
    began = time.monotonic()
    result = box.execute_command("sleep 30 & echo done", timeout=20)
    assert (result.stdout, result.outcome) == ("done\n", Exited(0))
    assert time.monotonic() - began < 10


def test_a_background_server_serves_later_calls_and_ends_with_its_box(tier: str, tmp_path: Path) -> None:
    serve = (
        "import http.server, sys\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "open('port', 'w').write(str(server.server_port))\nserver.serve_forever()"
    )
    fetch = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:' + open('port').read()).status)\""
    with Sandbox(SandboxConfig(tier=tier)) as box:
        box.write_file("serve.py", serve)
        box.execute_command("python3 serve.py & while [ ! -s port ]; do sleep 0.05; done", timeout=20)
        # The server logs each request to the stderr of the call that started it: its reader must still be there.
        assert [box.execute_command(fetch, timeout=20).stdout for _ in range(2)] == ["200\n", "200\n"]
        assert box.execute_command("sleep 60", timeout=0.5).timed_out
        assert box.execute_command(fetch, timeout=20).stdout == "200\n"
        assert running("serve.py")
    assert gone("serve.py")


def test_of_two_concurrent_runs_a_deadline_ends_one() -> None:
    async def both(tier: str) -> tuple[ringfence.Result, ringfence.Result]:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
            slow = box.execute_command("sleep 1.5; echo whole", timeout=20)
            return await asyncio.gather(slow, box.execute_command("sleep 30", timeout=0.5))

    for tier in ("namespaces", "process"):
        whole, cut = asyncio.run(both(tier))
        assert (whole.stdout, whole.outcome) == ("whole\n", Exited(0))
        assert cut.timed_out


def test_a_call_shortens_the_configured_limit_and_never_lengthens_it(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(wall_seconds=0.5))) as box:
        result = box.run(["sleep", "30"], timeout=60)
    assert isinstance(result.outcome, CapHit)
    assert result.outcome.limit == 0.5


@pytest.mark.alone
def test_a_fork_bomb_ends_at_its_deadline() -> None:
    bomb = (
        "import os, time\nfor _ in range(400):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)\ntime.sleep(60)"
    )
    with Sandbox() as box:
        began = time.monotonic()
        assert box.execute(bomb, timeout=2).timed_out
        assert time.monotonic() - began < 2 + 2 * SLACK
        assert int(box.execute_command("ls -d /proc/[0-9]* | wc -l").stdout) < 12


BLOCKED_CALLER = """
import os, signal, sys, time
from ringfence.sync import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(tier=sys.argv[1])) as box:
    process = box.spawn(["sleep", sys.argv[2]], timeout=1.0)
    print("started", flush=True)
    time.sleep(60)
"""


def start_caller(tier: str, marker: str, code: str = BLOCKED_CALLER) -> subprocess.Popen[str]:
    caller = subprocess.Popen([sys.executable, "-c", code, tier, marker], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    assert caller.stdout.readline() == "started\n"
    return caller


def test_a_deadline_holds_while_the_caller_is_stopped(tier: str) -> None:
    marker = str(60_000 + os.getpid() % 1000)
    caller = start_caller(tier, marker)
    try:
        wait_for(f"sleep {marker}", 1)  # its exec is over a moment before its arguments are to be seen
        caller.send_signal(signal.SIGSTOP)
        limit = time.monotonic() + 1.0 + SLACK
        while time.monotonic() < limit and any(line.startswith("sleep") for line in running(marker)):
            time.sleep(0.05)
        assert not any(line.startswith("sleep") for line in running(marker))
    finally:
        caller.kill()
        caller.communicate()
    assert gone(marker)
    reclaim(tier)


@pytest.mark.alone
def test_a_deadline_holds_while_the_event_loop_is_blocked(tier: str) -> None:
    async def blocked() -> ringfence.Result:
        async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
            task = asyncio.create_task(box.run(["sleep", "30"], timeout=0.5))
            await asyncio.sleep(0.1)
            time.sleep(2.5)  # the point: this loop runs nothing meanwhile
            return await task

    result = asyncio.run(blocked())
    assert result.timed_out
    assert result.usage.wall_seconds < 2.4


def test_a_killed_caller_leaves_no_box(tier: str) -> None:
    marker = str(70_000 + os.getpid() % 1000)
    caller = start_caller(tier, marker)
    caller.kill()
    caller.communicate()
    assert gone(marker, within=3.0), running(marker)
    reclaim(tier)


def reclaim(tier: str) -> None:
    """The next box of the tier removes the private folder that a killed caller left behind."""
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(["true"]).ok


async def test_cancelling_ends_the_tree_and_propagates(tier: str, anyio_backend_name: str) -> None:
    import anyio

    marker = str(80_000 + os.getpid() % 1000)
    async with ringfence.Sandbox(SandboxConfig(tier=tier)) as box:
        with anyio.move_on_after(0.4) as scope:
            await box.execute_command(f"setsid sleep {marker} & sleep {marker}")
        assert scope.cancelled_caught
        assert not running(marker)
        assert (await box.run(["echo", "next"])).stdout == "next\n"
