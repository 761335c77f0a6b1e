"""In a box that is there: a command, a program, a flood of output, many runs in a row."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
import time

import ringfence
from benchmarks.measure import Row, side_by_side, side_by_side_awaited
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

TRUE = ["/bin/true"]
PROGRAM = "print(400)"
WRITER = "import os\nblock = bytes(65536)\nfor _ in range(16384): os.write(1, block)"  # 1 GiB
WRITTEN = 16384 * 65536


def commands(config: SandboxConfig, rounds: int) -> list[Row]:
    """/bin/true, awaited beside a bare asyncio subprocess, and blocking beside subprocess.run."""

    async def awaited() -> list[Row]:
        async def bare() -> None:
            process = await asyncio.create_subprocess_exec(*TRUE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            await process.communicate()

        async def blocking() -> None:
            subprocess.run(TRUE, capture_output=True, check=False)

        async with ringfence.Sandbox(config) as box:
            found = await side_by_side_awaited({"ours": lambda: box.run(TRUE), "asyncio": bare, "subprocess.run": blocking}, rounds)
        return [_command_row("run /bin/true, warm, await", found)]

    rows = asyncio.run(awaited())
    with Sandbox(config) as box:
        bare = {"subprocess.run": lambda: subprocess.run(TRUE, capture_output=True, check=False)}
        found = side_by_side({"ours": lambda: box.run(TRUE), **bare}, rounds)
    return [*rows, _command_row("run /bin/true, warm, blocking", found)]


def _command_row(work: str, found: dict) -> Row:  # type: ignore[type-arg]
    ours = found.pop("ours")
    ratio = ours.p50 / min(times.p50 for times in found.values())
    others = ", ".join(f"{name} {times}" for name, times in found.items())
    return Row(
        work,
        f"{ours}, ratio {ratio:.2f}",
        others,
        "<= 1.25 x the faster; p95 <= 2 x p50",
        ratio <= 1.25 and ours.p95 <= 2 * ours.p50,
    )


def programs(config: SandboxConfig, rounds: int) -> Row:
    """print(400) in a fresh state, beside the same interpreter started bare."""
    with Sandbox(config) as box:
        for _ in range(3):
            box.execute(PROGRAM)
        bare = [sys.executable, "-c", PROGRAM]
        found = side_by_side(
            {"ours": lambda: box.execute(PROGRAM), "bare": lambda: subprocess.run(bare, capture_output=True, check=False)}, rounds
        )
    ratio = found["ours"].p50 / found["bare"].p50
    return Row(
        "execute print(400), fresh state",
        f"{found['ours']}, ratio {ratio:.2f}",
        f"python3 -c {found['bare']}",
        "<= 0.35 x",
        ratio <= 0.35,
    )


def flood(config: SandboxConfig) -> Row:
    """1 GiB of output, beside a loop of os.read over a bare pipe from the same writer; the caller's memory beside both."""

    def bare() -> float:
        began = time.perf_counter()
        with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            while os.read(writer.stdout.fileno(), 65536):
                pass
        return time.perf_counter() - began

    def ours() -> float:
        began = time.perf_counter()
        result = box.run([sys.executable, "-c", WRITER])
        assert result.usage.stdout_bytes == WRITTEN
        return time.perf_counter() - began

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Sandbox(config) as box:
        pairs = [(ours(), bare()) for _ in range(3)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    mine, plain = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    ratio = plain / mine
    return Row(
        "1 GiB of stdout",
        f"{1024 / mine:.0f} MiB/s, caller grew {grown:.0f} MiB",
        f"os.read loop {1024 / plain:.0f} MiB/s",
        ">= 0.6 x, memory bounded",
        ratio >= 0.6 and grown < 50,
    )


def in_a_row(config: SandboxConfig, times: int) -> Row:
    """Many runs: what this process holds before and after."""

    def held() -> tuple[int, int, int]:
        children = len(open(f"/proc/self/task/{os.getpid()}/children").read().split())  # noqa: SIM115
        return len(os.listdir("/proc/self/fd")), threading.active_count(), children

    with Sandbox(config) as box:
        for _ in range(20):
            box.run(TRUE)
        before, memory = held(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(times):
            box.run(TRUE)
        after, grown = held(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    return Row(
        f"{times} runs in a row",
        f"descriptors, threads, children {before} then {after}, memory +{grown} KiB",
        "",
        "flat",
        before == after and grown < 2048,
    )


def unlimited(workspace: str) -> SandboxConfig:
    """The default config but for its CPU cap: a flood or a long row of runs is no reason to end."""
    return SandboxConfig(workspace=workspace, limits=SandboxLimits(cpu_seconds=None))
