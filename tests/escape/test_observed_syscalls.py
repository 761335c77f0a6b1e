"""Forbidden system calls are refused as ever, and each is a denial on the result of the run that made it, and of no other."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ringfence.confine.seccomp.table import GROUPS, Machine
from ringfence.errors import SandboxLostError
from ringfence.outcome import CapHit, Denial, Exited, Level, Result
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

MACHINE: Machine = "aarch64" if os.uname().machine == "aarch64" else "x86_64"
NUMBERS = {call: number for group in GROUPS for call, number in group.numbers(MACHINE).items()}
PYTHON = "/usr/bin/python3"
NESTED, DEBUG = "syscalls.nested: true", "syscalls.debug: true"

# What is called, the errno that it meets, the line of a policy that opens it, what it was for.
ACTS: list[tuple[str, tuple[int, ...], int, str | None, str]] = [
    ("mount", (0, 0, 0, 0, 0), errno.EPERM, NESTED, ""),
    ("unshare", (0x10020000,), errno.EPERM, NESTED, "CLONE_NEWNS | CLONE_NEWUSER"),
    ("setns", (0, 0x20000000), errno.EPERM, NESTED, "CLONE_NEWPID"),
    ("clone", (0x10000011, 0, 0, 0, 0), errno.EPERM, NESTED, "CLONE_NEWUSER"),
    ("sethostname", (0, 0), errno.EPERM, NESTED, ""),
    ("ptrace", (0x4206, 1, 0, 0), errno.EPERM, DEBUG, "PTRACE_SEIZE"),
    ("process_vm_readv", (1, 0, 0, 0, 0, 0), errno.EPERM, DEBUG, ""),
    ("bpf", (5, 0, 0), errno.EPERM, None, "BPF_PROG_LOAD"),
    ("keyctl", (0, -3, 0, 0, 0), errno.EPERM, None, ""),
    ("perf_event_open", (0, 0, -1, -1, 0), errno.EPERM, None, ""),
    ("kexec_load", (0, 0, 0, 0), errno.EPERM, None, ""),
    ("init_module", (0, 0, 0), errno.EPERM, None, ""),
    ("open_by_handle_at", (0, 0, 0), errno.EPERM, None, ""),
    ("socket", (40, 1, 0), errno.EAFNOSUPPORT, None, "AF_VSOCK"),
    ("ioctl", (0, 0x5_0000_5412, 0), errno.EPERM, None, "TIOCSTI"),
    ("fchmod", (0, 0o4755), errno.EPERM, None, "mode 4755"),
    ("prlimit64", (1, 0, 1, 0), errno.EPERM, None, "process 1"),
    ("setpriority", (0, 1, 5), errno.EPERM, None, "process 1"),
    ("seccomp", (1, 8, 0), errno.EPERM, None, "a box has a listener already"),
]

MAKE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return 0 if answer >= 0 else ctypes.get_errno()
"""


def program(*acts: tuple[str, tuple[int, ...]], times: int = 1) -> str:
    """A program that makes these calls and prints the errno of each as a list."""
    calls = [(NUMBERS[name], *arguments) for name, arguments in acts]
    return f"{MAKE}\nprint(json.dumps([call(*each) for each in {calls!r} * {times}]))"


MOUNT = program(("mount", (0, 0, 0, 0, 0)))
VSOCK = program(("socket", (40, 1, 0)))


def told(result: Result) -> list[str]:
    return [denial.target for denial in result.denials if denial.kind == "syscall"]


def test_each_refused_call_is_one_denial_with_its_remedy_though_the_program_succeeds() -> None:
    acts = [(name, arguments) for name, arguments, *_ in ACTS]
    with Sandbox(SandboxConfig()) as box:
        assert box.enforcement.syscalls.level is Level.FULL and box.enforcement.syscalls.note == ""
        results = [box.execute(program(*acts)), box.run([PYTHON, "-c", program(*acts)]), box.execute(program(*acts, times=2))]
        for result in results:
            assert result.outcome == Exited(0), result.stderr
            assert json.loads(result.stdout)[: len(ACTS)] == [number for _, _, number, _, _ in ACTS]
            assert told(result) == [name for name, *_ in ACTS]
        for denial, (_, _, _, remedy, what) in zip(results[0].denials, ACTS, strict=True):
            assert (denial.kind, denial.evidence, denial.remedy, denial.detail) == ("syscall", "observed", remedy, denial.detail)
            assert denial.rule.startswith("system call filter: ") and what in denial.detail and "calls" not in denial.detail
        assert all("2 calls" in denial.detail for denial in results[2].denials)
        assert box.run(["true"]).denials == ()
        many = box.run([PYTHON, "-c", program(*(("bpf", (command, 0, 0)) for command in range(200)))])
        assert [denial.detail for denial in many.denials] == [
            "BPF_MAP_CREATE, command 0x1, command 0x2, command 0x3, ...; 132 calls or more"
        ]
        assert len(box.denials()) == 3 * len(ACTS) + 1


def test_without_the_filter_or_with_the_switch_the_same_calls_succeed_and_are_no_denials(workspace: Path) -> None:
    (workspace / "file").write_text("")
    line = "import os; os.chmod('file', 0o4755); print(oct(os.stat('file').st_mode))"
    user = program(("unshare", (0x10000000,)))
    with Sandbox(SandboxConfig(tier="process", workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", line]).stdout == "0o104755\n"
        assert json.loads(box.run([PYTHON, "-c", user]).stdout) == [0]
        assert box.denials() == ()
    os.chmod(workspace / "file", 0o644)
    with Sandbox(SandboxConfig(workspace=workspace, syscalls=["nested"])) as box:
        assert told(box.run([PYTHON, "-c", line])) != []
        opened = box.run([PYTHON, "-c", user])
        assert json.loads(opened.stdout) == [0] and opened.denials == ()
        assert [denial.remedy for denial in box.run([PYTHON, "-c", program(("ptrace", (16, 1, 0, 0)))]).denials] == [DEBUG]
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        refused = box.run([PYTHON, "-c", user])
        assert json.loads(refused.stdout) == [errno.EPERM]
        assert [denial.remedy for denial in refused.denials] == [NESTED]


WHEN_ASKED = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"


def test_of_two_runs_at_once_each_has_its_own() -> None:
    with (
        Sandbox(SandboxConfig()) as box,
        box.spawn([PYTHON, "-c", WHEN_ASKED + MOUNT]) as first,
        box.spawn(["sh", "-c", 'exec setsid -w "$0" -c "$1"', PYTHON, WHEN_ASKED + VSOCK]) as second,
        box.spawn([PYTHON, "-c", WHEN_ASKED]) as third,
    ):
        for each in (first, second, third):
            assert each.stdout.readline() == b"ready\n"
        for each in (first, second, third):
            each.stdin.write(b"go\n")
        assert [told(each.wait()) for each in (first, second, third)] == [["mount"], ["socket"], []]


def test_a_run_is_found_from_a_terminal_and_from_process_namespaces_of_its_own() -> None:
    inside = ["unshare", "-Urpf", PYTHON, "-c", program(("ptrace", (16, 1, 0, 0)))]
    with Sandbox(SandboxConfig(syscalls=["nested"])) as box, box.spawn(["sleep", "60"]):
        assert told(box.run(inside)) == ["ptrace"]
        with box.spawn([PYTHON, "-c", VSOCK], terminal=(24, 80)) as process:
            process.stdout.read()
            assert told(process.wait()) == ["socket"]


LEAVE = f"""
import os, subprocess, sys
subprocess.Popen([{PYTHON!r}, "-c", {WHEN_ASKED + MOUNT + "; open('done', 'w')"!r}],
    stdin=os.open("asked", os.O_RDWR), stdout=subprocess.DEVNULL, start_new_session=sys.argv[1:] == ["session"])
"""


@pytest.mark.parametrize("session", [[], ["session"]])
def test_what_an_earlier_run_left_is_told_as_such(workspace: Path, session: list[str]) -> None:
    os.mkfifo(workspace / "asked")
    ask = "echo go > asked; while [ ! -e done ]; do sleep 0.01; done"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", LEAVE, *session]).denials == ()
        (denial,) = box.run(["sh", "-c", ask]).denials
        assert denial.target == "mount" and "an earlier run" in denial.detail
        assert box.run(["true"]).denials == ()


# Each as it is used every day. What is not installed is not run: the first four are, everywhere.
ORDINARY = [
    ["ls", "-la", "/"],
    ["sh", "-c", "id; df; ps aux; head -c 10 /dev/urandom | od; cp -a /etc/hosts h; tar cf t h; chmod 755 h; rm h t"],
    [
        "sh",
        "-c",
        "git init -q . && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm 1",
    ],
    [PYTHON, "-c", "import socket, multiprocessing as m; m.Pool(2).map(abs, [1]); socket.getaddrinfo('localhost', 80)"],
    [PYTHON, "-m", "pip", "--version"],
    ["sh", "-c", "echo 'int main(){return 0;}' > a.c && gcc -o a a.c && ./a"],
    ["node", "-e", "require('os').networkInterfaces(); new (require('worker_threads').Worker)('1', {eval: true})"],
    ["npm", "--version"],
    ["java", "-version"],
    ["go", "version"],
    ["gdb", "--version"],
    ["ip", "address"],
    ["ss", "-a"],
]


def test_ordinary_programs_are_told_of_nothing(workspace: Path) -> None:
    found = [argv for argv in ORDINARY if shutil.which(argv[0], path="/usr/bin:/bin:/usr/sbin")]
    assert len(found) >= 4
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert {argv[0]: box.run(argv).denials for argv in found} == {argv[0]: () for argv in found}
        assert told(box.run([PYTHON, "-c", MOUNT])) == ["mount"]


SPAM = f"""
{MAKE}
import threading
answers = []
def spam():
    answers.extend([call({NUMBERS["mount"]}, 0, 0, 0, 0, 0) for _ in range(5000)])
threads = [threading.Thread(target=spam) for _ in range(20)]
[each.start() for each in threads]
[each.join() for each in threads]
print(sorted(set(answers)), len(answers))
"""


def test_a_box_that_makes_them_without_end_is_refused_without_end_and_is_the_only_one_to_notice() -> None:
    with Sandbox(SandboxConfig()) as box, Sandbox(SandboxConfig()) as other:
        spamming = threading.Thread(target=lambda: results.append(box.run([PYTHON, "-c", SPAM])))
        results: list[Result] = []
        spamming.start()
        while spamming.is_alive():
            assert other.run(["true"], timeout=30).ok
        (result,) = results
        assert result.stdout == f"[{errno.EPERM}, {errno.ENOSYS}] 100000\n"
        (denial,) = result.denials
        assert denial.target == "mount" and "calls or more" in denial.detail
        assert any("not recorded" in note for note in result.notes)
        later = box.run([PYTHON, "-c", MOUNT])
        assert json.loads(later.stdout) == [errno.ENOSYS] and later.denials == ()
        assert "not recorded" in later.enforcement.syscalls.note
        assert told(other.run([PYTHON, "-c", MOUNT])) == ["mount"]


def test_records_that_find_no_room_are_counted() -> None:
    names = ("bpf", "ptrace", "unshare", "setns", "personality")
    flood = [(name, (first, first, 0)) for name in names for first in range(0x40, 0x44)]
    with Sandbox(SandboxConfig()) as box:
        many = box.run([PYTHON, "-c", program(*flood, times=24)])
        assert many.outcome == Exited(0) and told(many) == list(names)
        assert any("found no room" in note for note in box.run([PYTHON, "-c", MOUNT]).notes)
        assert not any("found no room" in note for note in box.run([PYTHON, "-c", MOUNT]).notes)


def test_a_call_that_nobody_answers_is_ended_with_its_run_and_with_its_box() -> None:
    with Sandbox(SandboxConfig()) as box:
        assert box.run([PYTHON, "-c", MOUNT]).ok
        watcher = the_warden()
        os.kill(watcher, signal.SIGSTOP)
        try:
            assert isinstance(box.run([PYTHON, "-c", MOUNT], timeout=0.5).outcome, CapHit)
            assert box.run(["true"]).ok
        finally:
            os.kill(watcher, signal.SIGKILL)
        with pytest.raises(SandboxLostError, match="has died"):
            box.run(["sleep", "60"])


def the_warden() -> int:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if line.startswith(b"ringfence-watch") and grandparent(int(name)) == os.getpid():
                    return int(name)
            except OSError:
                continue
    raise LookupError("no warden of this process runs")


def grandparent(pid: int) -> int:
    for _ in range(2):
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.partition("PPid:")[2].split()[0])
    return pid


UNDER_A_LISTENER = """
import os, struct, sys
from ringfence.guest import kernel
from ringfence.sync import Sandbox, SandboxConfig
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.install_filter(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), kernel.SECCOMP_FILTER_FLAG_NEW_LISTENER)
with Sandbox(SandboxConfig()) as box:
    result = box.run(sys.argv[1:])
    print(box.enforcement.syscalls)
    print(result.denials, result.stdout)
"""


def test_where_there_is_a_listener_already_they_are_refused_and_said_not_to_be_observed() -> None:
    argv = [sys.executable, "-c", UNDER_A_LISTENER, PYTHON, "-c", MOUNT]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["full by seccomp: refusals are not observed here", f"() [{errno.EPERM}]", ""]


def test_a_box_opens_no_listener_of_its_own_and_leaves_none_open_outside() -> None:
    def listeners() -> int:
        return sum(os.readlink(f"/proc/self/fd/{each}") == "anon_inode:seccomp notify" for each in descriptors())

    with Sandbox(SandboxConfig()) as box:
        held = box.run(["sh", "-c", "ls -l /proc/1/fd /proc/self/fd"])
        assert "seccomp" not in held.stdout
        assert listeners() == 0


def descriptors() -> list[str]:
    return [each for each in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{each}")]


def test_a_denial_of_a_call_that_no_table_names_is_a_denial_all_the_same() -> None:
    from ringfence.confine.seccomp.told import Told, denials

    (denial,) = denials([Told(9999, 0, 0, 1)])
    assert denial == Denial("syscall", "system call 9999", "system call filter: not in the table", "observed")
