"""Guaranteed shares are admitted: a box gets what it was promised, waits for it with a visible reason, or is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

import ringfence
from ringfence import SandboxConfig, SandboxLimits
from ringfence.confine.capacity import Bound, of_groups
from ringfence.errors import AdmissionError, ConfigError, HostError, UnenforceableError
from ringfence.outcome import Level
from ringfence.sync import Sandbox
from ringfence.world import register
from ringfence.world.register import Share, Short, take

CORES = os.cpu_count() or 1
pytestmark = pytest.mark.live("process")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A register of this test's own: the host's is shared with whatever else runs."""
    folder = tmp_path / "shares"
    for name in ("ROOTS", "USERS"):
        monkeypatch.setattr(register, name, str(folder))
    return folder


def guaranteed(cores: float = CORES, seconds: float = 0, **more: object) -> SandboxConfig:
    limits = SandboxLimits(cpu_guaranteed=cores, cpu_limit=max(cores, CORES))
    return SandboxConfig(tier="process", limits=limits, admission_seconds=seconds, **more)  # type: ignore[arg-type]


OTHER = """
import os, sys, time
from ringfence.world import register
register.ROOTS = register.USERS = sys.argv[1]
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
limits = SandboxLimits(cpu_guaranteed=float(sys.argv[2]), cpu_limit=max(float(sys.argv[2]), os.cpu_count()))
with Sandbox(SandboxConfig(tier="namespaces", limits=limits, admission_seconds=60)):
    child = os.fork() if "fork" in sys.argv else -1
    if child:
        print(child, flush=True)
    if "once" not in sys.argv:
        time.sleep(120)
"""


@pytest.fixture
def other(place: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Starts another process with a box that is guaranteed so many cores."""
    started: list[subprocess.Popen[str]] = []

    def start(cores: float, *words: str) -> tuple[subprocess.Popen[str], int]:
        argv = [sys.executable, "-c", OTHER, str(place), str(cores), *words]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        stdout = started[-1].stdout
        assert stdout
        return started[-1], int(stdout.readline())

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_what_is_held_is_refused_by_an_error_that_says_who_holds_what(place: Path) -> None:
    with Sandbox(guaranteed()) as box:
        assert (box.enforcement.guaranteed.level, box.enforcement.guaranteed.by) == (Level.PARTIAL, "register of live boxes")
        with pytest.raises(AdmissionError, match=rf"this host has {CORES} core.* process {os.getpid()} \(") as caught:
            Sandbox(guaranteed(0.5)).__enter__()
        assert [(each.pid, each.cores) for each in caught.value.holders] == [(os.getpid(), CORES)]
        with Sandbox(SandboxConfig(tier="process")) as free:  # who was promised nothing takes nothing
            assert free.enforcement.guaranteed.level is Level.NONE
    with Sandbox(guaranteed(CORES / 2)), Sandbox(guaranteed(CORES / 2)):
        pass
    assert not place.exists()


def test_a_box_without_a_share_does_not_look_at_the_register(place: Path) -> None:
    place.write_text("no folder")
    with Sandbox(SandboxConfig(tier="process", limits=SandboxLimits(cpu_limit=1))):
        pass
    with pytest.raises(HostError, match="register of guaranteed shares"):
        Sandbox(guaranteed()).__enter__()


def test_a_register_that_others_can_write_is_not_used(place: Path) -> None:
    place.mkdir(mode=0o700)
    place.chmod(0o770)
    with pytest.raises(HostError, match="another user"):
        Sandbox(guaranteed()).__enter__()
    place.chmod(0o700)
    with Sandbox(guaranteed()):
        pass


def test_a_box_waits_for_its_share_and_says_why(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Sandbox(guaranteed()).__enter__()
    told = threading.Event()
    monkeypatch.setattr(caplog.handler, "emit", lambda record: told.set())
    closer = threading.Thread(target=lambda: (told.wait(30), first.cleanup()))
    closer.start()
    with Sandbox(guaranteed(seconds=60)) as second:
        assert any("waited" in note for note in second.run(["true"]).notes)
    closer.join()


def test_the_command_line_shows_why_it_waits_and_that_it_was_refused(place: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    resources = f"{{cpu: {{guaranteed: {CORES}, limit: {CORES}}}, admission_seconds: 0.2}}"
    policy.write_text(f"version: 1\ntier: process\nresources: {resources}\n")
    program = "import sys; from ringfence.world import register; register.ROOTS = register.USERS = sys.argv.pop(1)\n"
    program += "from ringfence.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, str(place), "run", "--policy", str(policy), "--", "echo", "ran"]
    with Sandbox(guaranteed()):
        refused = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "ringfence: a box waits, for up to 0.2 s" in refused.stderr and "no box was made after 0.2 s" in refused.stderr
    assert subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path).stdout == "ran\n"


def test_the_share_of_a_killed_holder_is_free_although_a_fork_of_it_lives_on(
    other: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    holder, child = other(CORES, "fork")
    with pytest.raises(AdmissionError, match=f"process {holder.pid} "):
        Sandbox(guaranteed()).__enter__()
    killer = threading.Timer(0.5, lambda: holder.send_signal(signal.SIGKILL))
    killer.start()
    try:
        with Sandbox(guaranteed(seconds=60)) as box:
            assert box.run(["true"]).ok
            os.kill(child, 0)  # it is there, and holds nothing
    finally:
        killer.join()
        os.kill(child, signal.SIGKILL)
        holder.wait()
    assert other(CORES, "once")[0].wait() == 0  # a start reclaims what a killed caller left


def test_a_box_that_has_ended_holds_nothing_although_its_caller_did_not_close_it() -> None:
    with Sandbox(guaranteed()) as dead, Sandbox(SandboxConfig(tier="process")) as alive:
        with pytest.raises(AdmissionError):
            Sandbox(guaranteed()).__enter__()
        os.kill(dead._open().box.pid, signal.SIGKILL)
        with Sandbox(guaranteed(seconds=60)) as second:
            assert second.run(["true"]).ok and alive.run(["true"]).ok
            with pytest.raises(AdmissionError):
                Sandbox(guaranteed()).__enter__()


async def test_a_wait_can_be_given_up_and_leaves_nothing(place: Path) -> None:
    async with ringfence.Sandbox(guaranteed()):
        with anyio.move_on_after(0.1) as scope:
            async with ringfence.Sandbox(guaranteed(seconds=60)):
                raise AssertionError("there was no room")
        assert scope.cancelled_caught
        assert len(list(place.iterdir())) == 1
    async with ringfence.Sandbox(guaranteed()):
        pass


async def test_a_wait_holds_up_nothing_else_and_ends_when_there_is_room() -> None:
    first = ringfence.Sandbox(guaranteed())
    await first.__aenter__()

    async def second() -> None:
        async with ringfence.Sandbox(guaranteed(seconds=60)) as box:
            assert any("waited" in note for note in (await box.run(["true"])).notes)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second)
        assert (await first.run(["sleep", "0.2"])).ok
        await first.cleanup()


def test_waiting_is_not_busy() -> None:
    with Sandbox(guaranteed()):
        before = time.thread_time()
        with pytest.raises(AdmissionError):
            Sandbox(guaranteed(seconds=1)).__enter__()
        assert time.thread_time() - before < 0.2


def test_many_who_want_the_same_get_it_one_after_the_other() -> None:
    inside, most, failed = [0], [0], []
    guard = threading.Lock()

    def one() -> None:
        try:
            with Sandbox(guaranteed(CORES, seconds=100)) as box:
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                box.run(["true"])
                with guard:
                    inside[0] -= 1
        except Exception as error:  # shown below
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, most, inside) == ([], [1], [0])


def test_more_than_the_host_has_is_refused_by_name_and_a_higher_ceiling_is_noted() -> None:
    with pytest.raises(UnenforceableError, match=rf"limits\.cpu_guaranteed of {CORES + 1} cores .* this host has {CORES}"):
        Sandbox(guaranteed(CORES + 1)).__enter__()
    with pytest.raises(UnenforceableError, match=r"limits\.memory_guaranteed_bytes of 1\.04858e\+06 GiB is more"):
        ringfence.explain(
            SandboxConfig(limits=SandboxLimits(memory_guaranteed_bytes=1 << 50), best_effort=["resources.memory_gib.limit"])
        )
    with Sandbox(guaranteed(CORES + 1, best_effort=["resources.cpu.guaranteed"])) as box:
        assert box.enforcement.guaranteed.level is Level.NONE
        assert any(f"this host has {CORES}" in note for note in box.run(["true"]).notes)
    with Sandbox(SandboxConfig(tier="process", limits=SandboxLimits(cpu_limit=CORES + 1))) as box:
        assert any("limits.cpu_limit" in note and "cannot be met" in note for note in box.run(["true"]).notes)


def test_with_best_effort_a_box_is_made_without_what_others_hold() -> None:
    with Sandbox(guaranteed()), Sandbox(guaranteed(best_effort=["resources.cpu.guaranteed"])) as box:
        assert box.enforcement.guaranteed.level is Level.NONE
        assert any("Nothing is guaranteed" in note for note in box.run(["true"]).notes)


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), True, "30"])
def test_how_long_is_waited_is_a_number_of_seconds(seconds: object) -> None:
    with pytest.raises(ConfigError, match="admission_seconds"):
        SandboxConfig(admission_seconds=seconds)  # type: ignore[arg-type]
    assert SandboxConfig(admission_seconds=0).admission_seconds == 0


@pytest.mark.parametrize(
    ("version", "files"),
    [
        ("v1", {"memory.limit_in_bytes": "1048576\n", "cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}),
        ("v2", {"memory.max": "1048576\n", "cpu.max": "150000 100000\n"}),
    ],
)
def test_the_limits_of_our_control_group_and_of_those_above_it_are_bounds(
    tmp_path: Path, version: str, files: dict[str, str]
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    none = {
        "memory.limit_in_bytes": f"{0x7FFFFFFFFFFFF000}",
        "cpu.cfs_quota_us": "-1",
        "memory.max": "max",
        "cpu.max": "max 100000",
    }
    for name in files:
        (tmp_path / "a" / name).write_text(files[name])
        (inner / name).write_text(none.get(name, "100000"))
    assert list(of_groups(str(inner), str(tmp_path), version)) == [Bound(f"control group {tmp_path}/a", 1.5, 1 << 20)]


def test_boxes_share_the_bounds_that_they_have_in_common() -> None:
    host, ours, theirs = ("this host", 4.0, 100), ("control group /a", 2.0, None), ("control group /b", None, 50)
    first = take(2, 10, [host, ours])
    assert isinstance(first, Share)
    short = take(0.5, 0, [host, ours])
    assert isinstance(short, Short) and (short.bound, len(short.holders)) == ("control group /a", 1)
    second = take(0, 50, [host, theirs])  # of another group, and of the same host
    assert isinstance(second, Share)
    short = take(2.5, 0, [host])
    assert isinstance(short, Short) and (short.bound, len(short.holders)) == ("this host", 2)
    first.release()
    first.release()
    third = take(2.5, 50, [host])
    assert isinstance(third, Share)
    for share in (second, third):
        share.release()
