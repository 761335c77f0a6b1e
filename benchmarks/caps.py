"""What caps cost: a warm command under the default ones beside one under none, and the process that watches many boxes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from benchmarks.measure import Row, side_by_side
from ringfence.process import zygote
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

TRUE = ["/bin/true"]
WATCHED = 50
MAY_SPEND = 0.01
"""Of one core."""


def overhead(config: SandboxConfig, rounds: int) -> Row:
    """/bin/true in a warm box with the default caps, beside one without; both with a deadline, which the kernel does not hold."""
    none = SandboxLimits(cpu_seconds=None, memory_bytes=None, open_files=None)
    with Sandbox(config) as capped, Sandbox(SandboxConfig(workspace=config.workspace, limits=none)) as free:
        found = side_by_side({"capped": lambda: capped.run(TRUE), "free": lambda: free.run(TRUE)}, rounds)
    ratio = found["capped"].p50 / found["free"].p50
    return Row(
        "run /bin/true, warm, under the default caps",
        f"{found['capped']}, ratio {ratio:.2f}",
        f"without them {found['free']}",
        "<= 1.05 x",
        ratio <= 1.05,
    )


def watching(config: SandboxConfig, seconds: float) -> Row:
    """What the process that watches the caps of many boxes spends: nothing runs in them, then something sleeps in each."""
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(Sandbox(config)) for _ in range(WATCHED)]
        for box in boxes:
            box.run(TRUE)
        watcher = _watcher({box._open().box.pid for box in boxes})
        idle = _share(watcher, seconds)
        for box in boxes:
            box.execute_command("sleep 600 &")
        busy = _share(watcher, seconds)
    return Row(
        f"watching the caps of {WATCHED} boxes",
        f"{idle:.2%} of a core idle, {busy:.2%} with a process in each",
        "",
        f"<= {MAY_SPEND:.0%}",
        max(idle, busy) <= MAY_SPEND,
    )


def _watcher(boxes: set[int]) -> int:
    """The child of the zygote that is no box."""
    above = zygote.current().pid
    (found,) = {int(pid) for pid in Path(f"/proc/{above}/task/{above}/children").read_text().split()} - boxes
    return found


def _share(pid: int, seconds: float) -> float:
    """CPU time of a process by wall time, as the scheduler counts it: the times of proc_pid_stat(5) are ticks of 10 ms."""

    def spent() -> float:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9

    began, before = time.monotonic(), spent()
    time.sleep(seconds)
    return (spent() - before) / (time.monotonic() - began)
