"""What a policy opens by name is open, and opens nothing else: tracing, namespaces, devices. Without the name it is closed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ringfence.errors import ConfigError, UnenforceableError
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    return (libc.ptrace(number, *arguments), ctypes.get_errno())
child = os.fork()
if child == 0:
    os.execvp("sleep", ["sleep", "20"])
while os.readlink(f"/proc/{child}/exe") == os.readlink("/proc/self/exe"):
    pass
print(call(0x4206, child, 0, 0))      # PTRACE_SEIZE, linux/ptrace.h
print(call(0x4206, 1, 0, 0))
os.kill(child, 9)
"""


def test_programs_trace_each_other_where_that_is_opened_and_never_the_first_process() -> None:
    def answers(*syscalls: str) -> list[str]:
        with Sandbox(SandboxConfig(syscalls=syscalls)) as box:
            return box.execute(TRACE).raise_for_status().stdout.splitlines()

    assert answers("debug") == ["(0, 0)", "(-1, 1)"]  # EPERM
    assert answers() == answers("nested") == ["(-1, 1)", "(-1, 1)"]


NESTED = ["unshare", "-Ur", "-m", "sh", "-c", "mount -t tmpfs none /mnt 2>/dev/null || mount -t tmpfs none /tmp; echo made"]


def test_programs_make_namespaces_where_that_is_opened() -> None:
    with Sandbox(SandboxConfig(syscalls=["nested"])) as box:
        assert box.run(NESTED).raise_for_status().stdout == "made\n"
        assert "opened by name: nested" in str(box.enforcement.syscalls)
    for closed in ((), ("debug",)):
        with Sandbox(SandboxConfig(syscalls=closed)) as box:
            result = box.run(NESTED)
            assert not result.ok and "made" not in result.stdout
    with Sandbox(SandboxConfig(tier="process")) as box:
        assert box.run(NESTED).stdout == "made\n"


UNCOVER = """
cd "$1"
umount "$1/.env" && echo uncovered
mount --bind "$1" /tmp/bound && cat /tmp/bound/.env
mount -t overlay -o lowerdir="$1" none /tmp/over && cat /tmp/over/.env
mount --rbind "$1" /tmp/bound && { umount /tmp/bound/.env; cat /tmp/bound/.env; }
mount -o remount,rw,bind /usr && touch /usr/made && echo wrote
mount -o remount,rw /proc/sys; echo 1 > /proc/sys/kernel/ns_last_pid && echo set
mv .git .moved && echo moved
cat .env
echo over
"""


def test_what_is_closed_stays_closed_inside_namespaces_of_the_box(workspace: Path) -> None:
    (workspace / ".env").write_text("the secret\n")
    os.chmod(workspace / ".env", 0o644)
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "config").write_text("[core]\n")
    line = ["unshare", "-Ur", "-m", "sh", "-c", f"mkdir -p /tmp/bound /tmp/over; {UNCOVER}", "sh", str(workspace)]
    with Sandbox(SandboxConfig(workspace=workspace, deny=["**/.env"], syscalls=["nested"])) as box:
        result = box.run(line)
        assert result.stdout.splitlines()[-1:] == ["over"]
        assert not {"the secret", "uncovered", "wrote", "moved"} & set(result.stdout.splitlines())
        assert box.run(["cat", ".env"]).stdout == ""
    assert not os.path.exists("/usr/made")
    with Sandbox(SandboxConfig(workspace=workspace, syscalls=["nested"])) as box:
        assert "the secret" in box.run(line).stdout  # where nothing covers it, the same line reads it


def some_device(folder: Path) -> str:
    """A device that every box lacks and that its user may open: made by root, else one of the host's."""
    if os.geteuid() == 0:
        os.mknod(folder / "zeroes", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        os.chmod(folder / "zeroes", 0o666)
        return str(folder / "zeroes")
    own = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    for entry in sorted(os.scandir("/dev"), key=lambda entry: entry.name):
        if entry.name not in own and stat.S_ISCHR(entry.stat().st_mode) and os.access(entry.path, os.R_OK):
            return entry.path
    raise LookupError("this host has no further device that a user may open")


def test_a_device_is_there_where_it_is_named(tmp_path: Path) -> None:
    device = some_device(tmp_path)
    kind = f"{os.major(os.stat(device).st_rdev)} {os.minor(os.stat(device).st_rdev)}"
    line = f"import os; found = os.stat({device!r}); print(os.major(found.st_rdev), os.minor(found.st_rdev))"
    line += f"; os.close(os.open({device!r}, 0))"
    with Sandbox(SandboxConfig(devices=[device])) as box:
        assert box.execute(line).raise_for_status().stdout.strip() == kind
    with Sandbox(SandboxConfig()) as box:
        assert "FileNotFoundError" in box.execute(line).stderr


def test_what_is_no_device_or_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for named in (str(tmp_path / "file"), "/dev", "/dev/no-such-device", "/dev/ptmx", "/dev/pts/ptmx"):
        with pytest.raises(ConfigError, match="devices"):
            Sandbox(SandboxConfig(devices=[named])).__enter__()
    if os.geteuid() == 0:
        os.mknod(tmp_path / "closed", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        with pytest.raises(UnenforceableError, match="0600"):
            Sandbox(SandboxConfig(devices=[str(tmp_path / "closed")])).__enter__()
