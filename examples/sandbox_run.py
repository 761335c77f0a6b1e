"""One run for each way that a command can end, and the two ways in which ringfence says that it could not.

python -m examples.sandbox_run        (from the checkout, in its .venv)
"""

from __future__ import annotations

import anyio

from ringfence import CapHit, Exited, NotStarted, Result, Sandbox, SandboxConfig, SandboxLimits, Signaled
from ringfence.errors import RingfenceError


def said(result: Result) -> str:
    """What the caller of a run knows of it."""
    match result.outcome:
        case Exited(code=code):
            ended = f"exited with {code}"
        case Signaled(signal=signal):
            ended = f"ended by signal {signal}"
        case CapHit(kind=kind, enforced_by=by):
            ended = f"met the limit {kind}, held by {by}"
        case NotStarted(reason=reason):
            ended = f"not started: {reason}"
        case _:
            ended = "given up by the caller"
    return ended + "".join(f"; refused: {denial.kind} {denial.target}" for denial in result.denials)


async def main() -> list[str]:
    """Run them; prints and returns the lines."""
    lines = []
    limits = SandboxLimits(cpu_seconds=1, memory_bytes=128 << 20)
    async with Sandbox(SandboxConfig(limits=limits)) as box:
        for line in ("true", "exit 3", "kill -KILL $$", "echo x > /etc/zz", "while :; do :; done", "tail /dev/zero"):
            lines.append(f"{line}: {said(await box.execute_command(line))}")
        lines.append(f"sleep 60: {said(await box.execute_command('sleep 60', timeout=0.5))}")
        lines.append(f"no-such-program: {said(await box.run(['no-such-program']))}")
    try:
        await box.run(["true"])
    except RingfenceError as error:
        lines.append(f"a closed box: {error}")
    try:
        async with Sandbox(SandboxConfig(tier="gvisor")):
            pass
    except RingfenceError as error:
        lines.append(f"a boundary that is not here: {error.code}, and nothing ran")
    print(*lines, sep="\n")
    return lines


if __name__ == "__main__":
    anyio.run(main)
