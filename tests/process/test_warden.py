"""The process that watches the caps of boxes: whoever ends it ends them; what it tells is bounded; a guest must obey it."""

from __future__ import annotations

import _socket
import gc
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from ringfence.errors import ProtocolError, SandboxLostError
from ringfence.guest import wire
from ringfence.guest.warden.memory import Monitor
from ringfence.guest.warden.syscalls import Listener
from ringfence.guest.warden.watched import Watched
from ringfence.outcome import CapHit, Exited
from ringfence.process import zygote
from ringfence.process.evidence import Evidence
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits
from survivors import fresh_marker, gone, wait_for

LIMITS = SandboxLimits(memory_bytes=128 << 20)
HOG = "b = bytearray(400 << 20); import time; time.sleep(60)"


def warden_pid() -> int:
    """The one child of the zygote that is no box."""
    parent = zygote.current().pid
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text() == "ringfence-watch\n":
            return int(child)
    raise AssertionError("there is no warden")


def test_a_killed_warden_takes_its_boxes_with_it_and_the_next_box_works(tier: str) -> None:
    marker = fresh_marker()
    lost: list[str] = []

    def call(box: Sandbox) -> None:
        try:
            box.execute_command(f"setsid sleep {marker} & sleep {marker}", timeout=60)
        except SandboxLostError as error:
            lost.append(error.message)

    with Sandbox(SandboxConfig(tier=tier)) as first, Sandbox(SandboxConfig(tier=tier)) as second:
        calls = [threading.Thread(target=call, args=(box,)) for box in (first, second)]
        for thread in calls:
            thread.start()
        wait_for(f"sleep {marker}", 4)
        os.kill(warden_pid(), signal.SIGKILL)
        for thread in calls:
            thread.join(30)
        assert lost == ["the box was lost: the process that watches its caps has died."] * 2
        assert gone(f"sleep {marker}")
        with pytest.raises(SandboxLostError):
            first.run(["true"])
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        assert box.run(["echo", "again"]).stdout == "again\n"
        assert box.execute(HOG).memory_exceeded


def test_a_caller_that_forks_has_a_warden_of_its_own_and_leaves_the_other(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        box.run(["true"])
        before = warden_pid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as own:
                    status = 0 if own.execute(HOG).memory_exceeded and warden_pid() != before else 2
                zygote.shut_down()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert warden_pid() == before
        assert box.execute(HOG).memory_exceeded


def test_a_guest_that_ends_no_run_loses_its_box_and_the_cap_is_told(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        guest = box._open().box.pid
        # Stopped once the hog's first line is here: then nobody in the box can do what the warden asks.
        code = "import os, sys; print(1, flush=True); os.fork(); " + HOG
        result = box.run([sys.executable, "-c", code], on_stdout=lambda _: os.kill(guest, signal.SIGSTOP))
        assert isinstance(result.outcome, CapHit)
        assert result.outcome.kind == "memory"
        assert result.outcome.enforced_by.endswith(": the whole box was ended")
        with pytest.raises(SandboxLostError):
            box.run(["true"])


def test_a_box_that_was_given_up_while_it_was_made_leaves_the_others_watched(tier: str) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=LIMITS)) as box:
        for _ in range(3):
            with Sandbox(SandboxConfig(tier=tier)) as other:
                os.kill(other._open().box.pid, signal.SIGKILL)
        assert box.execute(HOG).memory_exceeded
        assert box.execute("print(1)").outcome == Exited(0)


@pytest.fixture
def told() -> tuple[Watched, Evidence]:
    """A box as the warden holds it and what the caller reads of it, without anything between."""
    reading, telling = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    watch, guest = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    guest.close()
    given = {b"pidfd": os.pidfd_open(os.getpid()), b"evidence": telling.detach(), b"watch": watch.detach()}
    return Watched(os.getpid(), given, lambda *_: None, lambda *_: None), Evidence(reading)


def test_what_nobody_reads_is_counted_and_bounded(told: tuple[Watched, Evidence]) -> None:
    box, evidence = told
    try:
        for number in range(10_000):
            box.record(b"memory", 1, number, b"monitor", run=5)
        evidence.read()
        box.record(b"memory", 1, 10_000, b"monitor", run=5)
        kept = evidence.of_run({5}, 0, alone=False)
        assert kept[-1].observed == 10_000
        assert evidence.dropped + len(kept) <= 10_001 < evidence.dropped + len(kept) + 1000
        assert len(kept) <= 256
    finally:
        box.close()
        evidence.close()


def test_nothing_is_kept_of_a_box_that_has_ended(told: tuple[Watched, Evidence]) -> None:
    box, evidence = told
    box.given[b"listener"], end = os.pipe()
    box.watchers += [Listener(box, {"answers": b""}), Monitor(box, {"limit": 1})]
    box.close()
    evidence.close()
    os.close(end)
    assert {Listener, Monitor}.isdisjoint(type(each) for each in gc.get_referrers(box))


def test_records_go_to_the_run_that_they_name(told: tuple[Watched, Evidence]) -> None:
    box, evidence = told
    try:
        for run in (5, 6, 0):
            box.record(b"memory", 1, run, b"monitor", run=run)
        assert [cap.run for cap in evidence.of_run({6}, 0, alone=False)] == [6, 0]
        assert [cap.run for cap in evidence.of_run({6}, 0, alone=False)] == [0]  # what names none is shown to each
        assert [cap.run for cap in evidence.of_run({7}, 0, alone=True)] == [5, 0]
        assert evidence.of_run({5}, 0, alone=True) == []
        box.record(b"memory", 1, 1, b"monitor", run=5)
        evidence.read()
        late = evidence.caps[-1].at + 1
        assert evidence.of_run({5}, late, alone=True) == []  # of a run that had the number before
        box.tell({"cap": b"comfort", "limit": 1, "observed": 1, "by": b"x", "pid": 0, "run": 0, "ends": 0})
        with pytest.raises(ProtocolError):
            evidence.read()
        for odd in ({"cap": b"memory"}, {"at": -1, "failed": b"x"}, {"at": 1, "failed": b"x" * 301}):
            wire.send(box.evidence, odd)
            with pytest.raises(ProtocolError):
                evidence.read()
    finally:
        box.close()
        evidence.close()
