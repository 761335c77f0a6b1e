"""Boxes that are made for the purpose: one program each, many alive, as many a second as there can be, from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio

import ringfence
from benchmarks.measure import Row, side_by_side
from ringfence.confine.plan import Step, Tree
from ringfence.sync import Sandbox, SandboxConfig
from ringfence.values import replace

PROGRAM = "print(400)"
ALIVE = 200
MEMORY = ("AnonPages", "Slab", "PageTables")


def bubblewrap(config: SandboxConfig) -> list[str]:
    """bwrap's arguments for the view of a box, from the very plan that ringfence carries out."""
    with Sandbox(config) as box:
        world = box._open()
        steps, workdir = world.prepared.plan.view.steps, world.workdir
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    for step in steps:
        if step.target.startswith(("/dev", "/proc")):
            continue
        if isinstance(step, Tree):
            argv += ["--ro-bind" if step.attributes & 1 else "--bind", step.source, step.target]
        elif isinstance(step, Step) and step.kind == "private":
            argv += ["--tmpfs", step.target]
        elif step.kind == "file" and os.path.exists(step.target):
            argv += ["--ro-bind", step.target, step.target]  # what ringfence copies or writes itself
        elif step.kind == "link":
            argv += ["--symlink", os.fsdecode(step.content), step.target]
    return [*argv, "--chdir", workdir]


def one_program(config: SandboxConfig, rounds: int) -> Row:
    """A new box, one program in it, the box gone; beside bwrap with the interpreter."""
    other = [*bubblewrap(config), sys.executable, "-c", PROGRAM]
    assert subprocess.run(other, capture_output=True, check=True).stdout == b"400\n"

    def ours() -> None:
        with Sandbox(config) as box:
            box.execute(PROGRAM).raise_for_status()

    found = side_by_side({"ours": ours, "bwrap": lambda: subprocess.run(other, capture_output=True, check=True)}, rounds)
    ratio = found["ours"].p50 / found["bwrap"].p50
    return Row(
        "new box, one program, box gone", f"{found['ours']}, ratio {ratio:.2f}", f"bwrap {found['bwrap']}", "<= 1.0 x", ratio <= 1.0
    )


def with_a_way_out(config: SandboxConfig, rounds: int) -> Row:
    """A new box that may reach hosts, one command in it, the box gone; beside the same without a network."""
    reaching = replace(config, network_allow=["files.example.org", "db.example.com:5432"])

    def made(config: SandboxConfig) -> None:
        with Sandbox(config) as box:
            box.run(["/bin/true"])

    made(reaching)  # the server is there
    found = side_by_side({"ours": lambda: made(reaching), "without": lambda: made(config)}, rounds)
    more = found["ours"].p50 - found["without"].p50
    return Row(
        "new box with a way out, one command",
        f"{found['ours']}, {more:+.1f} ms",
        f"without {found['without']}",
        "<= +4 ms",
        more <= 4,
    )


def _memory() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines}


def alive(config: SandboxConfig) -> list[Row]:
    """What the host's memory grew by for each of many boxes that have run one command; and what one more has that may reach hosts.

    The second is a difference, so other programs of the machine are left out of it as far as can be: of anonymous memory and page
    tables it counts those of the boxes, of this program and of the server of networks.
    """
    reaching = replace(config, network_allow=["files.example.org", "db.example.com:5432"])
    whole, without, _ = _each_alive(config)
    _, way_out, servers = _each_alive(reaching)
    total, more = sum(whole.values()), {name: way_out[name] - without[name] for name in MEMORY}
    return [
        Row(f"{ALIVE} boxes alive, each", f"{total:.2f} MiB ({_shown(whole)})", "", "<= 2.5 MiB", total <= 2.5),
        Row(
            f"{ALIVE} boxes with a way out, each",
            f"{sum(more.values()):+.2f} MiB ({_shown(more)}), {servers} server",
            f"without {sum(without.values()):.2f} MiB",
            "<= +0.5 MiB, 1 server",
            sum(more.values()) <= 0.5 and servers == 1,
        ),
    ]


def _each_alive(config: SandboxConfig) -> tuple[dict[str, float], dict[str, float], int]:
    """MiB for each of them by kind, of the host and of these processes alone; and how many servers of networks there were."""
    with Sandbox(config) as box:
        box.run(["/bin/true"])
    before, own_before = _memory(), _own_memory()
    boxes = []
    try:
        for _ in range(ALIVE):
            box = Sandbox(config)
            box.__enter__()
            boxes.append(box)
            box.run(["/bin/true"])
        after, own_after, servers = _memory(), _own_memory(), _servers()
    finally:
        for box in boxes:
            box.cleanup()
    host = {name: (after[name] - before[name]) / ALIVE / 1024 for name in MEMORY}
    return host, {name: (own_after[name] - own_before[name]) / ALIVE / 1024 for name in MEMORY}, servers


def _own_memory() -> dict[str, int]:
    """As _memory, where anonymous memory (each page once, by its share) and page tables are those of this process and all below."""
    found = {**_memory(), "AnonPages": 0, "PageTables": 0}
    for pid in (os.getpid(), *_below(os.getpid())):
        for file, key, name in (("smaps_rollup", "Pss_Anon:", "AnonPages"), ("status", "VmPTE:", "PageTables")):
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
            found[name] += sum(int(line.split()[1]) for line in lines if line.startswith(key))
    return found


def _below(pid: int) -> list[int]:
    children = [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]
    return children + [each for child in children for each in _below(child)]


def _shown(parts: dict[str, float]) -> str:
    return " + ".join(f"{name} {value:.2f}" for name, value in parts.items())


def _servers() -> int:
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _below(os.getpid())]
    return sum(name.startswith(b"ringfence-net\0") for name in names)  # its worker has a name of its own


def a_second(config: SandboxConfig, seconds: float, at_once: int = 4) -> Row:
    """Boxes made and torn down, as many as the machine will; the second half must not be slower than the first."""
    halves = [0, 0]

    async def main() -> None:
        began = time.monotonic()

        async def worker() -> None:
            while (gone := time.monotonic() - began) < seconds:
                async with ringfence.Sandbox(config):
                    pass
                halves[int(gone > seconds / 2)] += 1

        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(worker)

    anyio.run(main)
    first, second = (half / seconds * 2 for half in halves)
    return Row(
        f"boxes a second over {seconds:.0f} s, {at_once} at once",
        f"{sum(halves) / seconds:.0f} ({first:.0f}, then {second:.0f})",
        "",
        ">= 150, no slower at the end",
        sum(halves) / seconds >= 150 and second >= 0.8 * first,
    )


def cold(rounds: int) -> Row:
    """The command line from nothing to its end, beside an interpreter that imports asyncio and subprocess."""
    ours = [str(Path(sys.executable).parent / "ringfence"), "run", "--", "true"]
    bare = [sys.executable, "-c", "import asyncio, subprocess"]
    found = side_by_side(
        {"ours": lambda: subprocess.run(ours, check=True), "bare": lambda: subprocess.run(bare, check=True)}, rounds
    )
    more = found["ours"].p50 - found["bare"].p50
    return Row(
        "ringfence run -- true, cold", f"{found['ours']}, {more:+.0f} ms", f"python3 -c {found['bare']}", "<= +30 ms", more <= 30
    )


def explained(rounds: int) -> Row:
    """What a box would be, from nothing, beside an interpreter that imports asyncio and subprocess."""
    ours = [str(Path(sys.executable).parent / "ringfence"), "explain"]
    bare = [sys.executable, "-c", "import asyncio, subprocess"]
    found = side_by_side(
        {
            "ours": lambda: subprocess.run(ours, stdout=subprocess.DEVNULL, check=True),
            "bare": lambda: subprocess.run(bare, check=True),
        },
        rounds,
    )
    took = found["ours"].p50
    return Row("ringfence explain, cold", f"{found['ours']}", f"python3 -c {found['bare']}", "<= 150 ms", took <= 150)
