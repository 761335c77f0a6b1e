"""The caps on files: what a box adds to a disk is bounded, the call that goes beyond it fails, and the result says so."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence.errors import CapExceededError, FileTooLargeError, UnenforceableError
from ringfence.outcome import CapHit, Denial, Exited, Level, NotStarted, Reason, Result, Signaled
from ringfence.policy.config import SandboxLimits
from ringfence.sync import Sandbox, SandboxConfig


def test_the_private_folders_of_a_box_have_a_bound_of_bytes_and_of_files_that_the_outside_can_read() -> None:
    with Sandbox() as box:
        bounds = os.fstatvfs(box._open().box.scratch)
        assert (bounds.f_blocks * bounds.f_frsize, bounds.f_files) == (1 << 30, 262144)  # half of the cap on memory
        inside = box.execute_command("for at in /tmp /dev/shm ~ .; do stat -f -c '%b %c' $at; done").stdout
        assert inside == "262144 262144\n" * 4


def test_a_write_beyond_the_largest_file_fails_and_the_outcome_stays_the_command_s(tier: str) -> None:
    write = ["dd", "if=/dev/zero", "of=big", "bs=1024", "count=200"]
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(file_size_bytes=64 * 1024))) as box:
        assert box.enforcement.file_size.level is Level.FULL
        for result in (box.run(write), box.execute_command(" ".join(write)), box.execute(f"import os; os.execvp('dd', {write})")):
            assert (result.outcome, "File too large" in result.stderr) == (Exited(1), True)
        assert "OSError: [Errno 27]" in box.execute("open('x', 'wb').write(bytes(100_000))").stderr
        # A program that has set the signal back to its default is ended by it, as it would be by any: no cap of ours.
        own = "import os, signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
        assert box.execute(own + "os.kill(os.getpid(), signal.SIGXFSZ)").outcome == Signaled(25)
        assert box.execute(own + f"os.execvp('dd', {write})").outcome == Signaled(25)
    with Sandbox(SandboxConfig(tier=tier)) as box:
        assert box.run(write).ok
        assert box.run(["sh", "-c", "kill -XFSZ $$"]).outcome == Signaled(25)


def test_what_a_box_adds_to_its_private_folders_is_bounded_by_bytes_and_by_files_all_of_them_together() -> None:
    with Sandbox(SandboxConfig(limits=SandboxLimits(disk_bytes=1 << 20, inodes=20))) as box:
        assert {box.enforcement.disk.level, box.enforcement.inodes.level} == {Level.FULL}
        line = "for at in . ~ /tmp /dev/shm; do head -c 300K /dev/zero > $at/p; done; cat p ~/p /tmp/p /dev/shm/p | wc -c"
        result = box.execute_command(line)
        assert (result.outcome, result.stdout) == (Exited(0), f"{1 << 20}\n")
        assert "No space left on device" in result.stderr
        assert box.execute("print(1)").outcome == NotStarted(Reason.NO_SPACE, "", 28)
        assert box.execute_command("rm ~/p /tmp/p /dev/shm/p; for i in $(seq 30); do : > $i; done; ls | wc -l").stdout == "20\n"
        assert box.execute_command("rm *").ok
        assert box.execute("print(1)").stdout == "1\n"
    with Sandbox() as box:
        assert box.execute_command(line).stdout == f"{4 * 300 * 1024}\n"


def test_a_file_of_holes_is_refused_by_its_size_at_once_and_a_smaller_one_keeps_them(tier: str, tmp_path: Path) -> None:
    with Sandbox(SandboxConfig(tier=tier)) as box:
        box.execute_command("mkdir large small; truncate -s 1T large/hole; truncate -s 20M small/hole; echo end >> small/hole")
        for refused in (
            lambda: box.read_file("large/hole"),
            lambda: box.download("large", tmp_path / "large"),
            lambda: box.download("large/hole", tmp_path / "large"),
        ):
            with pytest.raises(FileTooLargeError):
                refused()
        assert not (tmp_path / "large").exists()
        box.download("small", tmp_path / "small")
    copied = tmp_path / "small" / "hole"
    assert copied.read_bytes() == bytes(20 << 20) + b"end\n"
    assert copied.stat().st_blocks * 512 < 1 << 20


MANY = "for i in $(seq 2000); do head -c 1M /dev/zero > f$i; done"
FILL = f"fallocate -l 10G big; dd if=/dev/zero of=one bs=1M count=500; {MANY}; echo on"


def test_a_box_that_fills_the_disk_of_the_host_is_ended_near_its_cap_and_the_space_is_the_host_s_again(
    tier: str, workspace: Path
) -> None:
    (workspace / "before").write_bytes(bytes(30 << 20))  # what was there is not the box's
    limits = SandboxLimits(disk_bytes=20 << 20)
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=limits)) as box:
        assert (box.enforcement.disk.level, "monitor" in box.enforcement.disk.by) == (Level.PARTIAL, True)
        assert box.execute_command("head -c 10M /dev/zero > fine; rm fine").ok
        result = box.execute_command(FILL)
        assert isinstance(result.outcome, CapHit)
        assert (result.outcome.kind, result.outcome.limit, result.outcome.enforced_by) == ("disk", 20 << 20, "monitor")
        assert (result.outcome.observed or 0) > 20 << 20
        assert "fallocate failed: File too large" in result.stderr  # at once, whatever the monitor is about
        assert "on\n" not in result.stdout
        with pytest.raises(CapExceededError):
            result.raise_for_status()
        assert (workspace / "one").stat().st_size == 20 << 20
        # Over its cap a box may shrink, and work on within what is left.
        assert box.execute_command("rm -f f* one big").ok
        assert box.execute_command("truncate -s 15M hole; head -c 10M /dev/zero > fine; sleep 0.6; rm fine").ok
    assert sorted(entry.name for entry in workspace.iterdir()) == ["before", "hole"]


def test_files_that_have_no_name_any_more_and_folders_that_are_closed_count_too(tier: str, workspace: Path) -> None:
    hidden = {
        "files without a name": "import os, time\nheld = []\nfor each in range(40):\n"
        "    held.append(open('x', 'wb')); held[-1].write(bytes(1 << 20)); os.unlink('x')\n    time.sleep(0.02)\ntime.sleep(60)",
        "closed folders": "import os, time\nos.mkdir('in')\nopened = os.open('in', os.O_RDONLY)\nos.chmod('in', 0o300)\n"
        "for each in range(40):\n    open(f'in/{each}', 'wb').write(bytes(1 << 20))\n    time.sleep(0.02)\ntime.sleep(60)",
    }
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=SandboxLimits(disk_bytes=16 << 20))) as box:
        for code in hidden.values():
            outcome = box.execute(code).outcome
            assert isinstance(outcome, CapHit)
            assert outcome.kind == "disk"
            box.execute_command("chmod 700 in; rm -rf in")


def test_files_without_content_have_a_cap_of_their_own(tier: str, workspace: Path) -> None:
    make = "i=0; while [ $i -lt 600 ]; do : > $i; i=$((i+1)); done; sleep 60"
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=SandboxLimits(inodes=300))) as box:
        outcome = box.execute_command(make).outcome
        assert isinstance(outcome, CapHit)
        assert (outcome.kind, outcome.limit, outcome.enforced_by) == ("inodes", 300, "monitor")
        assert box.run(["find", ".", "-type", "f", "-delete"]).ok
        assert box.execute_command(make.replace("600", "200").replace("sleep 60", "sleep 0.5")).ok


def test_what_a_full_box_was_refused_is_observed_and_told_once() -> None:
    with Sandbox(SandboxConfig(limits=SandboxLimits(disk_bytes=1 << 20, inodes=40))) as box:
        result = box.execute_command("head -c 2M /dev/zero > big 2>/dev/null")
        expected = Denial("cap", "disk", "resources.disk_gib: 0.000976562", "observed", "resources.disk_gib: 0.00195312")
        assert (result.outcome, [replace(each, detail="") for each in result.denials]) == (Exited(1), [expected])
        assert box.run(["true"]).denials == ()  # it is as full as before, and nothing was refused
        refused = box.execute("print(1)")
        assert (refused.outcome, refused.denials[0].target) == (NotStarted(Reason.NO_SPACE, "", 28), "disk")
        result = box.execute_command("rm big; for i in $(seq 50); do : > $i; done 2>/dev/null")
        assert [(each.target, each.evidence) for each in result.denials] == [("inodes", "observed")]
        assert box.denials() == tuple(each for each in box.denials() if each.evidence == "observed")
        assert len(box.denials()) == 3
        # Words alone are no evidence that something observed it.
        box.execute_command("rm -f *")
        assert all(each.evidence == "inferred" for each in box.execute_command("echo 'x: No space left on device' >&2").denials)


def test_a_cap_that_only_refuses_can_end_what_runs_where_something_sees_it(workspace: Path) -> None:
    fill = "head -c 2M /dev/zero > big; sleep 60"
    limits = SandboxLimits(disk_bytes=1 << 20, on_breach={"disk": "kill"})
    with Sandbox(SandboxConfig(limits=limits)) as box:
        assert box.execute_command("head -c 500K /dev/zero > big; sleep 0.3").ok
        assert box.execute_command(fill).outcome == CapHit("disk", 1 << 20, 1 << 20, "tmpfs")
        box.run(["rm", "big"])
        ended = box.run(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=2"])  # by itself, mostly before anybody looks
        assert ended.outcome == CapHit("disk", 1 << 20, 1 << 20, "tmpfs")
    for cap in ("open_files", "file_size", "processes"):  # of the last nothing was asked
        refused = SandboxConfig(limits=SandboxLimits(file_size_bytes=1 << 20, on_breach={cap: "kill"}))
        with pytest.raises(UnenforceableError, match=rf"on_breach.*{cap}"):
            Sandbox(refused).__enter__()
        with Sandbox(replace(refused, best_effort=["resources.on_breach"])) as box:
            assert box.run(["true"]).ok


def test_what_a_program_says_of_a_cap_is_a_denial_only_where_that_cap_is_set(tier: str, workspace: Path) -> None:
    hold = "held = []\ntry:\n    for _ in range(64): held.append(open('/dev/null'))\nfinally: print(len(held))"
    write = ["dd", "if=/dev/zero", "of=big", "bs=1024", "count=200"]

    def told(result: Result) -> list[tuple[str, str, str | None]]:
        assert result.outcome == Exited(1)
        return [(each.target, each.evidence, each.remedy) for each in result.denials if each.kind == "cap"]

    limits = SandboxLimits(open_files=32, file_size_bytes=64 * 1024, disk_bytes=1 << 20)
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=limits)) as box:
        for _ in range(2):  # by an interpreter of its own, and by the template
            result = box.execute(hold)
            (said,) = told(result)  # seldom observed, as it is full for a moment
            assert said in [("open_files", evidence, "resources.open_files: 64") for evidence in ("inferred", "observed")]
            assert result.stdout == "29\n"  # all but its three streams: none of ours is in a program
        assert told(box.run(write)) == [("file_size", "inferred", "resources.file_size_mib: 0.125")]
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=SandboxLimits(disk_bytes=64 * 1024))) as box:
        assert told(box.run(write)) == [("disk", "inferred", "resources.disk_gib: 0.00012207")]
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=SandboxLimits(open_files=None))) as box:
        assert told(box.run(["bash", "-c", f"ulimit -f 64; trap '' XFSZ; exec {' '.join(write)}"])) == []
        lower = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        assert told(box.execute(lower + hold)) == []  # of its own making


def test_what_all_of_the_host_s_files_are_open_to_has_no_such_cap_and_is_refused(workspace: Path) -> None:
    config = SandboxConfig(workspace=workspace, mode="danger-full-access", limits=SandboxLimits(disk_bytes=1 << 20))
    with pytest.raises(UnenforceableError, match="danger-full-access opens all"):
        Sandbox(config).__enter__()
    with Sandbox(replace(config, best_effort=["resources.disk_gib"])) as box:
        assert box.enforcement.disk.level is Level.NONE


def test_what_a_run_left_behind_is_ended_too_and_the_box_tells_of_it(tier: str, workspace: Path) -> None:
    fill = "for i in $(seq 200); do head -c 1M /dev/zero > f$i; sleep 0.02; done; sleep 60"
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace, limits=SandboxLimits(disk_bytes=10 << 20))) as box:
        assert box.execute_command(f"setsid sh -c '{fill}' > /dev/null 2>&1 &").ok
        until = time.monotonic() + 30
        while not box.denials() and time.monotonic() < until:
            time.sleep(0.05)
        assert [(each.kind, each.target, each.evidence) for each in box.denials()] == [("cap", "disk", "observed")]
        grown = len(list(workspace.iterdir()))
        assert box.run(["true"]).denials == ()
        assert 10 <= len(list(workspace.iterdir())) <= grown + 1
