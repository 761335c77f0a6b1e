"""The caps on files: what a box adds to a disk is bounded, the call that goes beyond it fails, and the result says so."""

from __future__ import annotations

import os

from ringfence.outcome import Exited, Level, NotStarted, Reason, Signaled
from ringfence.policy.config import SandboxLimits
from ringfence.sync import Sandbox, SandboxConfig


def test_the_private_folders_of_a_box_have_a_bound_of_bytes_and_of_files_that_the_outside_can_read() -> None:
    with Sandbox() as box:
        bounds = os.fstatvfs(box._open().box.scratch)
        assert (bounds.f_blocks * bounds.f_frsize, bounds.f_files) == (1 << 30, 524288)  # half of the cap on memory
        inside = box.execute_command("for at in /tmp /dev/shm ~ .; do stat -f -c '%b %c' $at; done").stdout
        assert inside == "262144 524288\n" * 4


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
