"""What scripts/try-cgroup-v2 runs, where only control groups of version 2 are: each cap is met once, by each kind of caller."""

from __future__ import annotations

import os
import subprocess
import sys

from ringfence.outcome import CapHit
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

GROUP = "/sys/fs/cgroup/user"
GROW = "b = bytearray(1 << 30)"
DEAF = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
SHORT = "while :; do bash -c 'for ((n = 0; n < 20000; n++)); do :; done'; done"
FORK = """
import os, signal
n = 0
try:
    while True:
        if not os.fork(): signal.pause()
        n += 1
except OSError:
    print(n)
"""
LIMITS = SandboxLimits(max_processes=20, cpu_seconds=2, cpu_limit=0.9, memory_bytes=128 << 20)


def meet(tier: str, by: str) -> None:
    """Meet every cap of a box that is held by groups of a version (by), or by what a user has without."""
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        held = {cap: getattr(box.enforcement, cap) for cap in ("memory", "cpu", "max_processes", "cpu_share")}
        print(*(f"{cap}: {each}" for cap, each in held.items()), sep="\n", flush=True)
        assert all(each.by.startswith(by) or not by for each in held.values())
        twice = f"python3 -c '{GROW}'; python3 -c '{GROW}'; sleep 1; echo survived"
        runs = [
            ("memory", box.run(["sh", "-c", twice])),
            ("memory", box.run(["python3", "-c", GROW])),
            ("memory", box.execute(GROW)),
            ("cpu", box.run(["python3", "-c", DEAF], timeout=100)),
            ("cpu", box.run(["bash", "-c", SHORT], timeout=100)),
        ]
        for kind, run in runs:
            print(run.outcome, flush=True)
            assert isinstance(run.outcome, CapHit) and run.outcome.kind == kind
        child = box.run(["sh", "-c", f"python3 -c '{GROW}'; echo survived"])
        print(child.outcome, child.denials, flush=True)
        assert child.ok and child.memory_exceeded
        assert not box.run(["sh", "-c", "kill -KILL $$"]).memory_exceeded
        forked = box.execute(FORK)
        print(forked.stdout.strip(), forked.denials, flush=True)
        assert forked.stdout == "19\n" and bool(forked.denials) == bool(by)
        assert box.run(["true"]).denials == ()


def delegate() -> None:
    """What a service manager does for a user: a group of their own, which hands its controllers on, and one below it to be in."""
    os.makedirs(f"{GROUP}/session")
    with open(f"{GROUP}/cgroup.subtree_control", "w") as control:
        control.write("+memory +pids +cpu")
    for folder in (GROUP, f"{GROUP}/session"):
        for name in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
            os.chown(folder + name, 1000, 1000)


def main() -> None:
    if len(sys.argv) > 1:
        meet(*sys.argv[1:])
        return
    delegate()
    user = "exec setpriv --reuid 1000 --regid 1000 --clear-groups"
    again = f"python3 {__file__}"
    for line in (
        f"{again} namespaces 'cgroup v2'",
        f"{again} process 'cgroup v2'",
        f"echo $$ > {GROUP}/session/cgroup.procs; {user} {again} namespaces 'cgroup v2'",
        f"{user} {again} namespaces ''",
    ):
        print("==", line, flush=True)
        subprocess.run(["sh", "-c", line], check=True, timeout=400)
    print("all held", flush=True)


if __name__ == "__main__":
    main()
