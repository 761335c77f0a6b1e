"""The pipes of one command serve the next only where nothing can still hold them: no command reads what another wrote."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ringfence.sync import Sandbox, SandboxConfig

# Takes hold of the output of whatever process is called by the name, and writes to it when that has ended.
GRAB = """
import glob, os, sys, time
name = sys.argv[1].encode()
print("looking", flush=True)
held = None
while held is None:
    for path in glob.glob("/proc/[0-9]*"):
        try:
            if open(path + "/cmdline", "rb").read().split(b"\\0")[0] == name:
                held = os.open(path + "/fd/1", os.O_WRONLY)
        except OSError:
            pass
print("held", flush=True)
while True:
    try:
        os.write(held, b"FOREIGN")
    except OSError:
        break
    time.sleep(0.01)
"""


def test_commands_in_a_row_use_the_same_pipes(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        box.run(["true"])
        held = os.listdir("/proc/self/fd")
        named = [box.run(["readlink", "/proc/self/fd/1"]).stdout for _ in range(5)]
        assert len(set(named)) == 1 and named[0].startswith("pipe:")
        assert sorted(os.listdir("/proc/self/fd")) == sorted(held)


def test_a_process_that_is_left_behind_keeps_its_pipe_to_itself(tier: str) -> None:
    line = "(while :; do echo FOREIGN; sleep 0.01; done) & echo own"
    with Sandbox(SandboxConfig(tier=tier)) as box:
        before = box.run(["readlink", "/proc/self/fd/1"]).stdout
        assert "own" in box.execute_command(line).stdout
        for _ in range(20):
            assert box.run(["echo", "own"]).stdout == "own\n"
        assert box.run(["readlink", "/proc/self/fd/1"]).stdout != before


def test_what_takes_hold_of_the_pipe_of_another_command_never_reaches_a_third(tier: str, workspace: Path) -> None:
    (workspace / "grab.py").write_text(GRAB)
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace)) as box:
        with box.spawn(["python3", "grab.py", "ringfence-victim"]) as thief:
            assert thief.stdout.readline() == b"looking\n"
            victim = box.execute_command("exec -a ringfence-victim sleep 2")
            assert thief.stdout.readline() == b"held\n"
            assert "FOREIGN" in victim.stdout  # the control: while the command runs, its output can be written to
            limit = time.monotonic() + 1
            while time.monotonic() < limit:
                assert box.run(["echo", "own"]).stdout == "own\n"


def test_output_beyond_what_a_pipe_holds_is_whole_on_a_lane_that_was_used(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        for size in (0, 1, 65_536, 65_537, 1_000_001, 1, 0):
            result = box.run(["head", "-c", str(size), "/dev/zero"])
            assert (len(result.stdout_bytes), result.stderr) == (size, "")


def test_a_fork_of_the_caller_shares_no_pipes_with_it() -> None:
    with Sandbox() as box:
        first = box.run(["readlink", "/proc/self/fd/1"]).stdout
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(tell, box.run(["readlink", "/proc/self/fd/1"]).stdout.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(told, 100).decode() not in ("", first)
        os.close(told)
        os.close(tell)
        assert box.run(["readlink", "/proc/self/fd/1"]).stdout == first


def test_a_command_that_was_ended_leaves_nothing_for_the_next(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        for _ in range(5):
            assert box.run(["sh", "-c", "echo late; sleep 9"], timeout=0.1).timed_out
            assert box.run(["echo", "own"]).stdout == "own\n"
