"""The cap on memory: what meets it is ended and said, whoever in the box took the memory and in whatever form; nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ringfence.outcome import CapHit, Exited, Level, Outcome, Result, Signaled
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
from survivors import fresh_marker, gone, wait_for

MIB = 1 << 20
CAP = 128 * MIB
LIMITS = SandboxLimits(memory_bytes=CAP)
HOG = "b = bytearray(400 << 20); import time; time.sleep(60)"


@pytest.fixture
def box(tier: str) -> Iterator[Sandbox]:
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as opened:
        yield opened


def is_memory(outcome: Outcome) -> bool:
    if not isinstance(outcome, CapHit):
        return False
    assert outcome.kind == "memory"
    assert outcome.limit == CAP
    assert outcome.observed is not None
    assert outcome.observed >= CAP  # a control group lets nothing beyond it
    return True


def was_told(result: Result) -> bool:
    """Whether one process was killed for the cap and the command went on."""
    caps = [(denial.target, denial.evidence) for denial in result.denials if denial.kind == "cap"]
    return result.memory_exceeded and caps == [("memory", "observed")]


def test_what_takes_more_than_the_cap_is_ended_and_what_was_seen_is_said(box: Sandbox) -> None:
    assert box.enforcement.memory.level is not Level.NONE
    for result in (
        box.execute("print('so far', flush=True); " + HOG),
        box.execute("print('so far', flush=True); " + HOG),  # by the template
        box.run([sys.executable, "-c", "print('so far', flush=True); " + HOG]),
    ):
        assert is_memory(result.outcome), result
        assert (result.memory_exceeded, result.stdout, result.denials) == (True, "so far\n", ())
    # Two thirds of it are nobody's business, in a program or in two processes at once.
    fine = box.execute("b = bytearray(85 << 20); import time; time.sleep(0.5); print('fine')")
    assert (fine.outcome, fine.stdout, fine.memory_exceeded) == (Exited(0), "fine\n", False)


def test_without_a_cap_the_same_is_nothing_to_say(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(memory_bytes=None))) as box:
        result = box.execute("b = bytearray(400 << 20); print(len(b))")
        assert (result.outcome, result.memory_exceeded) == (Exited(0), False)


def test_a_killed_child_is_told_beside_the_outcome_and_a_plain_kill_is_a_signal(box: Sandbox) -> None:
    hog = f'{sys.executable} -c "{HOG}"'
    survived = box.execute_command(f"sh -c '{hog}; echo survived'")
    assert (survived.outcome, survived.stdout, was_told(survived)) == (Exited(0), "survived\n", True), survived
    plain = box.execute_command("kill -KILL $$")
    assert (plain.outcome, plain.memory_exceeded, plain.denials) == (Signaled(9), False, ())
    # One that meets the cap by a child, and then kills itself to look as if it had been the victim.
    posing = box.execute_command(f"sh -c '{hog}; kill -KILL $$'; kill -KILL $$")
    assert (posing.outcome, was_told(posing)) == (Signaled(9), True), posing
    assert box.denials() == [*survived.denials, *posing.denials] or box.denials() == (*survived.denials, *posing.denials)


def test_memory_spread_over_children_meets_the_cap_and_all_of_them_end(box: Sandbox) -> None:
    marker = fresh_marker()
    child = f"{sys.executable} -c 'b=bytearray(60<<20);import time;time.sleep({marker})'"
    result = box.execute_command(f"for i in 1 2 3 4 5 6; do {child} & done; wait; echo end")
    assert is_memory(result.outcome), result
    assert gone(marker)
    # Ten that share what one has: they hold it once.
    sharing = "import os, time\nb = bytearray(60 << 20)\nfor _ in range(10):\n    if not os.fork(): time.sleep(0.5); os._exit(0)\n"
    assert box.execute(sharing + "for _ in range(10): os.wait()").outcome == Exited(0)


FORMS = {
    "a memory file that nobody maps": "f = os.memfd_create('x')\nfor _ in range(200): os.write(f, bytes(1 << 20))",
    "a mapping that is shared": "m = mmap.mmap(-1, 200 << 20)\nfor at in range(0, 200 << 20, 4096): m[at] = 1",
    "files beside it": "f = open('/dev/shm/x', 'wb', 0)\nfor _ in range(60): f.write(bytes(1 << 20))\nb = bytearray(90 << 20)",
}
ONCE = {
    "a memory file": "f = os.memfd_create('x')",
    "a file in memory": "f = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)",
}


@pytest.mark.parametrize("form", FORMS)
def test_memory_counts_in_every_form(tier: str, form: str) -> None:
    if tier == "process" and "/dev/shm" in FORMS[form]:
        form = "a mapping that is shared"  # the host's own folder is no part of such a box
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        result = box.execute(f"import mmap, os, time\n{FORMS[form]}\ntime.sleep(60)")
        assert is_memory(result.outcome), result


def test_memory_that_is_a_file_and_mapped_counts_once() -> None:
    with Sandbox(SandboxConfig(limits=LIMITS)) as box:
        for made in ONCE.values():
            code = f"import mmap, os, time\n{made}\nfor _ in range(60): os.write(f, bytes(1 << 20))\n"
            result = box.execute(code + "m = mmap.mmap(f, 60 << 20); n = sum(m[::4096]); b = bytearray(30 << 20); time.sleep(0.5)")
            assert result.outcome == Exited(0), (made, result)


def test_of_two_runs_the_one_that_takes_the_memory_ends(box: Sandbox) -> None:
    with box.spawn([sys.executable, "-c", "b = bytearray(30 << 20); print('up', flush=True); input()"]) as innocent:
        assert innocent.stdout.read(3) == b"up\n"
        assert is_memory(box.execute(HOG).outcome)
        innocent.stdin.write(b"\n")
        innocent.stdin.close()
        kept = innocent.wait()
    assert (kept.outcome, kept.memory_exceeded) == (Exited(0), False)


def test_a_spawned_process_and_one_at_a_terminal_meet_the_cap_as_any(box: Sandbox) -> None:
    for terminal in (None, (24, 80)):
        with box.spawn([sys.executable, "-c", HOG], terminal=terminal) as process:
            assert is_memory(process.wait().outcome), terminal


CALLER = """
import sys
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
with Sandbox(SandboxConfig(tier=sys.argv[1], limits=SandboxLimits(memory_bytes=128 << 20))) as box:
    print("started", flush=True)
    code = "import time; time.sleep(1); b = bytearray(400 << 20); time.sleep(60)"
    result = box.run([sys.executable, "-c", code, sys.argv[2]])
    print(result.outcome.kind, result.memory_exceeded, flush=True)
"""


def test_a_caller_that_is_stopped_meanwhile_finds_what_was_seen(tier: str) -> None:
    marker = fresh_marker()
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, tier, marker], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "started\n"
        wait_for(marker, 1, besides=caller.pid)
        os.kill(caller.pid, signal.SIGSTOP)
        assert gone(marker, 20.0, besides=caller.pid)  # ended while nobody could have been asked
        os.kill(caller.pid, signal.SIGCONT)
        assert caller.communicate(timeout=60)[0] == "memory True\n"
    finally:
        caller.kill()
        caller.wait()
