"""What happened in a box: told to hooks as it happens, and kept in a trace. `python -m examples.observe` from the checkout."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from ringfence import Sandbox, SandboxConfig, Trace
from ringfence.hooks import HookContext, HookEvent, HookManager
from ringfence.trace.reader import Reader
from ringfence.trace.verify import verify


def told(seen: HookContext) -> None:
    """One line for each event."""
    what = {
        HookEvent.SANDBOX_EXEC: lambda data: f"{data['text']!r} ended: {data['outcome']}",
        HookEvent.SANDBOX_DENIAL: lambda data: f"refused: {data['denial'].kind} {data['denial'].target}",
    }
    print(f"{seen.event}: {what.get(seen.event, lambda data: data['box'] or 'a box')(seen.data)}")


async def main() -> None:
    hooks = HookManager()
    for event in HookEvent:
        hooks.on(event, told)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="observe-") as folder:
        path = Path(folder, "trace", "trace.db")
        with Trace(path) as trace:
            async with Sandbox(SandboxConfig(), hooks=hooks, trace=trace) as box:
                await box.run(["echo", "hello"])
                await box.execute_command("echo x > /etc/zz")
        with Reader(str(path)) as reader:
            for run in reader.runs():
                refused = [f"{each.get('kind')} {each.get('target')}" for each in run.denials]
                print(f"in the trace, row {run.number}: tier {run.tier}, {run.seconds or 0:.3f} s, refused: {refused}")
            print(f"as it was written: {verify(reader).ok}")


if __name__ == "__main__":
    anyio.run(main)
