"""stress-ng under small caps: each stressor ends as the cap or the refusal that it meets, and another box answers meanwhile."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ringfence.outcome import CapHit, Result
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = [pytest.mark.live("namespaces"), pytest.mark.alone]

MIB = 1 << 20


@dataclass(frozen=True)
class Stress:
    """What is run, under which caps, and what it must end as: a cap that ends it, or one that refuses and is told."""

    stressor: str
    limits: SandboxLimits
    ends: str = ""
    refused: str = ""


STRESSED = [
    Stress("--cpu 2", SandboxLimits(cpu_seconds=0.5), ends="cpu"),
    Stress("--vm 1 --vm-bytes 512M --vm-keep", SandboxLimits(memory_bytes=96 * MIB), ends="memory"),
    Stress("--shm 1 --shm-bytes 512M", SandboxLimits(memory_bytes=96 * MIB), ends="memory"),
    Stress("--fork 4", SandboxLimits(max_processes=8), refused="processes"),
    Stress("--open 1", SandboxLimits(open_files=64), refused="open_files"),
    Stress("--hdd 1 --hdd-bytes 128M", SandboxLimits(disk_bytes=16 * MIB), refused="disk"),
    Stress("--pipe 1", SandboxLimits(wall_seconds=1.5), ends="wall"),
    # The control: the same work where no cap is small. As --open goes to any limit, --dup, which stops short of it.
    Stress(
        "--vm 1 --vm-bytes 16M --shm 1 --shm-bytes 8M --fork 1 --dup 1 --hdd 1 --hdd-bytes 8M --pipe 1",
        SandboxLimits(),
    ),
]


@contextmanager
def answering() -> Iterator[list[float]]:
    """A box that is asked again and again, from a thread; the seconds of each answer."""
    answers: list[float] = []
    failed: list[object] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                result = box.run(["true"])
            except Exception as error:
                failed.append(error)
                return
            answers.append(time.monotonic() - began)
            failed.extend([] if result.ok else [result])

    with Sandbox() as box:
        box.run(["true"])
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield answers
        finally:
            over.set()
            asking.join()
        assert not failed


def stress(case: Stress) -> Result:
    with Sandbox(SandboxConfig(limits=case.limits)) as box:
        seconds = 100 if case.ends else 2
        return box.run(["stress-ng", *case.stressor.split(), "--timeout", str(seconds)])


def test_each_stressor_ends_as_the_cap_that_it_meets_while_another_box_answers() -> None:
    with answering() as answers, ThreadPoolExecutor(len(STRESSED)) as pool:
        results = list(pool.map(stress, STRESSED))
    times = f"{len(answers)} answers: median {statistics.median(answers):.3f} s, slowest {max(answers):.3f} s"
    print(times)
    wrong = [
        f"{case}\n{result.for_model()}\n{result.stderr}"
        for case, result in zip(STRESSED, results, strict=True)
        if not met(case, result)
    ]
    assert not wrong, "\n".join(wrong)
    assert len(answers) > 5 and statistics.median(answers) < 1, times


def met(case: Stress, result: Result) -> bool:
    if case.ends:
        return isinstance(result.outcome, CapHit) and result.outcome.kind == case.ends
    caps = {(denial.target, denial.evidence) for denial in result.denials if denial.kind == "cap"}
    return caps == ({(case.refused, "observed")} if case.refused else set()) and result.ok
