"""A cap on CPU time counts all of a run: also what catches the kernel's signal, what was spread, and what has left its parents."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ringfence.outcome import CapHit, Exited, Outcome
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

# Each process of these uses less than the cap alone. A loop of bash's own, so that time is spent and not only waited for.
SPIN = "for ((n = 0; n < {}; n++)); do :; done"
DEAF = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
SHORT = f"while :; do bash -c '{SPIN.format(30_000)}'; done"
MANY = f"for j in 1 2 3 4 5 6 7 8 9; do bash -c '{SPIN.format(60_000)}'; done"
LEFT = f'for i in 1 2 3 4; do (setsid bash -c "{MANY}" &); done; sleep 60'
APART = "import os, time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\nprint('done')"


def kind_of(outcome: Outcome) -> str:
    assert isinstance(outcome, CapHit), outcome
    return outcome.kind


@pytest.fixture
def one_second(tier: str) -> SandboxConfig:
    return SandboxConfig(tier=tier, limits=SandboxLimits(cpu_seconds=1))


def test_the_cap_ends_a_run_however_its_time_is_spent_and_sleeping_is_not_spending(one_second: SandboxConfig) -> None:
    with Sandbox(one_second) as box:
        by_group = box.enforcement.cpu.by.startswith("cgroup")
        deaf, short, left = (
            box.execute(DEAF, timeout=60).outcome,
            box.run(["bash", "-c", SHORT], timeout=60).outcome,
            box.run(["bash", "-c", LEFT], timeout=60).outcome,
        )
        assert [kind_of(outcome) for outcome in (deaf, short, left)] == ["cpu", "cpu", "cpu"]
        for outcome in (short, left):
            assert isinstance(outcome, CapHit) and outcome.limit == 1 and outcome.observed is not None and outcome.observed >= 1
            assert outcome.enforced_by == ("cgroup v1 cpuacct" if by_group else "monitor") or "cgroup v2" in outcome.enforced_by
        assert kind_of(box.run(["sleep", "20"], timeout=0.5).outcome) == "wall"
        assert box.run(["bash", "-c", SPIN.format(1000)]).ok  # what earlier runs used is not this one's


def test_runs_at_the_same_time_are_told_apart(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(cpu_seconds=2))) as box:
        with ExitStack() as stack:
            handles = [stack.enter_context(box.spawn(["python3", "-c", APART.format(0.8)])) for _ in range(3)]  # 2.4 s together
            assert [handle.wait().outcome for handle in handles] == [Exited(0)] * 3
