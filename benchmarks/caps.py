"""What caps cost: a warm command under the default ones beside one under none, and the process that watches many boxes."""

from __future__ import annotations

from benchmarks.measure import Row, side_by_side
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

TRUE = ["/bin/true"]


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
