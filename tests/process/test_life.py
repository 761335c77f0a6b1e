"""A box ends when its life is over or nobody uses it, whatever it and its caller do; one without such a bound lives on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence.errors import SandboxClosedError, TimeExceededError
from ringfence.outcome import CapHit, Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

GENEROUS = 20.0


def limits(**given: float) -> SandboxLimits:
    return SandboxLimits(**given)  # type: ignore[arg-type]


def is_gone(pidfd: int, within: float = GENEROUS) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within * 1000))


def test_what_runs_when_the_life_of_its_box_is_over_is_a_cap_with_the_output_so_far(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=limits(lifetime_seconds=1.5))) as box:
        assert box.enforcement.lifetime.level is Level.FULL
        result = box.run(["sh", "-c", "echo begun; exec sleep 60"])
        assert isinstance(result.outcome, CapHit)
        assert (result.outcome.kind, result.outcome.limit) == ("wall", 1.5)
        assert result.stdout == "begun\n"
        with pytest.raises(TimeExceededError):
            result.raise_for_status()
        with pytest.raises(SandboxClosedError, match=r"life of 1\.5 s is over"):
            box.run(["true"])


def test_the_life_of_a_box_is_not_made_longer_by_using_it_or_by_what_is_in_it(tier: str) -> None:
    config = SandboxConfig(tier=tier, limits=limits(lifetime_seconds=1.5, idle_seconds=60, wall_seconds=60))
    with Sandbox(config) as box:
        began, over = time.monotonic(), False
        while not over and time.monotonic() - began < GENEROUS:
            try:
                box.run(["sh", "-c", "sleep 0.05 & wait"], check=True)
            except (SandboxClosedError, TimeExceededError):
                over = True
        assert over
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert not is_gone(box._open().box.pidfd, within=2)


def test_a_box_that_nobody_uses_ends_and_one_in_use_does_not(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=limits(idle_seconds=0.5))) as box:
        assert box.enforcement.idle.level is Level.FULL
        assert box.run(["sleep", "1.2"]).ok
        with box.spawn(["sleep", "1.2"]) as process:
            assert process.wait().ok
        box.write_file("file", "text")
        assert is_gone(box._open().box.pidfd)
        with pytest.raises(SandboxClosedError, match=r"nothing ran in it for 0\.5 s"):
            box.read_file("file")


CALLER = """
import sys, time
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
box = Sandbox(SandboxConfig(workspace=sys.argv[1], limits=SandboxLimits(**{sys.argv[2]: 2.0}))).__enter__()
print(box._open().box.pid, flush=True)
time.sleep(120)
"""


@pytest.mark.live("namespaces")
@pytest.mark.parametrize("bound", ["lifetime_seconds", "idle_seconds"])
def test_the_end_comes_while_the_caller_is_stopped(bound: str, workspace: Path) -> None:
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(workspace), bound], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout
        pidfd = os.pidfd_open(int(caller.stdout.readline()))
        os.kill(caller.pid, signal.SIGSTOP)
        assert is_gone(pidfd)
        os.close(pidfd)
    finally:
        caller.kill()
        caller.wait()
        if caller.stdout:
            caller.stdout.close()
