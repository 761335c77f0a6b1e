"""What a program sees of processors agrees with its cap of cores, in every place where runtimes look."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confine.processors import Spread, _cpuinfo, _stat, listed
from ringfence.outcome import Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

OWN = len(os.sched_getaffinity(0))

GO = 'package main\n\nimport "runtime"\n\nfunc main() { println(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }\n'
JAVA = "class N { public static void main(String[] a) { System.out.println(Runtime.getRuntime().availableProcessors()); } }\n"
COUNTED = {
    "nproc": "nproc",
    "the affinity, as python's process_cpu_count": "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'",
    "what make is told": "printf 'all:\\n\\t@echo $(MAKEFLAGS)\\n' > Makefile; make -j$(nproc) | grep -o 'j[0-9]*' | tr -d j",
    "node": "node -e 'console.log(os.availableParallelism?.() ?? os.cpus().length)'",
    "java": "java N.java",
    "go": "go build -o n n.go && ./n 2>&1 | tr ' ' '\\n' | sort -u",
}
SHOWN = {
    "python's cpu_count": "python3 -c 'import os; print(os.cpu_count())'",
    "getconf": "getconf _NPROCESSORS_ONLN",
    "node's cpus": "node -e 'console.log(os.cpus().length)'",
    "/proc/cpuinfo": "grep -c ^processor /proc/cpuinfo",
    "/proc/stat": "grep -c '^cpu[0-9]' /proc/stat",
}
"""What reads files of the kernel instead of asking it: these a box has of its own, which the floor has not."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "n.go").write_text(GO)
    (folder / "N.java").write_text(JAVA)
    return folder


def counts(box: Sandbox, sources: Path, commands: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name in ("n.go", "N.java"):
        box.write_file(name, (sources / name).read_text())
    for name, line in commands.items():
        result = box.execute_command(line)
        yield name, result.stdout.strip() or result.stderr


def test_every_runtime_counts_the_processors_of_the_cap(tier: str, sources: Path) -> None:
    shown = SHOWN if tier == "namespaces" else {}
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(cpu_limit=1))) as box:
        assert dict(counts(box, sources, COUNTED | shown)) == dict.fromkeys(COUNTED | shown, "1")
        assert "affinity" in box.enforcement.cpu_share.by
        if tier == "process":
            assert "all of the host's" in box.enforcement.cpu_share.note


def test_without_a_cap_they_count_those_of_the_caller(tier: str, sources: Path) -> None:
    few = {name: line for name, line in (COUNTED | SHOWN).items() if name not in ("java", "go")}
    with Sandbox(SandboxConfig(tier=tier)) as box:
        online = {name: str(os.cpu_count()) for name in SHOWN}
        assert dict(counts(box, sources, few)) == dict.fromkeys(few, str(OWN)) | online
        assert box.enforcement.cpu_share.level is Level.NONE


MORE = "import os; os.sched_setaffinity(0, range(os.sysconf('SC_NPROCESSORS_CONF'))); print(len(os.sched_getaffinity(0)))"


def test_a_program_cannot_give_itself_more_cores() -> None:
    with Sandbox(SandboxConfig(limits=SandboxLimits(cpu_limit=1))) as box:
        held, result = box.enforcement.cpu_share, box.execute(MORE)
        assert held.level is Level.FULL
        assert "cgroup" in held.by or "Operation not permitted" in result.stderr
    with Sandbox(SandboxConfig(limits=SandboxLimits(cpu_limit=0.5))) as box:
        assert ("cgroup" in box.enforcement.cpu_share.by) == (box.enforcement.cpu_share.level is Level.FULL)
    with Sandbox() as box:
        assert box.execute(MORE).ok


BUSY = """
import os, time
os.sched_setaffinity(0, range(os.sysconf('SC_NPROCESSORS_CONF'))) if {} else None
for _ in range(4):
    if os.fork() == 0:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
"""


@pytest.mark.alone
def test_a_box_uses_no_more_than_its_cores() -> None:
    with Sandbox(SandboxConfig(limits=SandboxLimits(cpu_limit=1))) as box:
        usage = box.execute(BUSY.format("cgroup" in box.enforcement.cpu_share.by)).raise_for_status().usage
        # A quota is of periods of a tenth of a second: one may begin and one may end in the middle.
        assert usage.cpu_user_seconds + usage.cpu_system_seconds <= 1.3 * usage.wall_seconds


def test_a_box_never_runs_on_a_processor_that_its_caller_may_not(tier: str) -> None:
    own = os.sched_getaffinity(0)
    only = max(own)
    os.sched_setaffinity(0, {only})
    try:
        with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(cpu_limit=len(own)))) as box:
            assert box.execute("import os; print(os.sched_getaffinity(0))").stdout.strip() == str({only})
    finally:
        os.sched_setaffinity(0, own)


def test_boxes_are_spread_over_the_processors_and_give_them_back() -> None:
    spread = Spread()
    taken = [spread.take(1) for _ in range(2 * OWN)]
    assert all(taken.count((cpu,)) == 2 for cpu in os.sched_getaffinity(0))
    spread.give_back(taken[0])
    assert spread.take(0.5) == taken[0]
    assert len(spread.take(OWN + 5)) == OWN


CPUINFO = "".join(f"processor\t: {number}\nmodel name\t: x\n\n" for number in range(4)) + "Hardware\t: board\n"
STAT = """cpu  10 20 30
cpu0 1 2 3
cpu1 2 4 6
cpu2 3 6 9
cpu3 4 8 12
intr 77 1 2 3
ctxt 5
btime 1700000000
"""


def test_what_a_box_is_shown_is_of_its_processors_alone() -> None:
    assert listed([0, 1, 2, 5]) == "0-2,5"
    shown = _cpuinfo(CPUINFO, [1, 3])
    assert [line for line in shown.splitlines() if line.startswith("processor")] == ["processor\t: 1", "processor\t: 3"]
    assert shown.endswith("Hardware\t: board\n")
    assert _stat(STAT, [1, 3]).splitlines() == [
        "cpu  6 12 18",
        "cpu1 2 4 6",
        "cpu3 4 8 12",
        "intr 77",
        "ctxt 5",
        "btime 1700000000",
    ]
