"""The filter on the real kernel, as root and as an ordinary user; beside each refusal the same act without it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ringfence.confine.seccomp import build_filter
from ringfence.confine.seccomp.arguments import NO_FAMILY, Answers, answer
from ringfence.confine.seccomp.bpf import assemble
from ringfence.confine.seccomp.filter import compose
from ringfence.confine.seccomp.table import GROUPS, Machine, Switch, Verdict

pytestmark = pytest.mark.live("seccomp")

MACHINE: Machine = "aarch64" if os.uname().machine == "aarch64" else "x86_64"
NUMBERS = {call: number for group in GROUPS for call, number in group.numbers(MACHINE).items()}
NOBODY = 65534
# Root also stands in for an ordinary user; an ordinary user can only be itself (0: no change).
USERS = (0, NOBODY) if os.getuid() == 0 else (0,)
# A user other than root cannot always reach the interpreter that runs the tests.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
CHILD = Path(__file__).with_name("seccomp_child.py").read_text()
MARK = 4000  # an errno that no kernel gives: who answers with it is the filter
MARKED = assemble(compose(MACHINE, frozenset(), Answers(answer(MARK), NO_FAMILY, answer(MARK))))
REFUSED_CALLS = {
    call: number for group in GROUPS if group.verdict is Verdict.REFUSE for call, number in group.numbers(MACHINE).items()
}
Answers = dict[str, dict[str, list[Any]]]


@cache
def ask(uid: int, program: bytes | None) -> Answers:
    question = {
        "uid": uid,
        "program": None if program is None else program.hex(),
        "numbers": NUMBERS,
        "sweep": REFUSED_CALLS,
    }
    done = subprocess.run(
        [PYTHON, "-I", "-c", CHILD], input=json.dumps(question), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def failed(answers: dict[str, list[Any]], errors: set[int]) -> dict[str, list[Any]]:
    """The answers that are not a failure with one of these errors."""
    return {name: got for name, got in answers.items() if got[0] != -1 or got[1] not in errors}


def succeeded(answers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The answers that are not a success."""
    return {name: got for name, got in answers.items() if got[0] < 0}


@pytest.mark.parametrize("uid", USERS)
def test_forbidden_acts_succeed_without_the_filter_and_fail_with_eperm_under_it(uid: int) -> None:
    control = succeeded(ask(uid, None)["refused"])
    # Some kernels refuse these themselves, with another error than the filter's: TIOCSTI where dev.tty.legacy_tiocsti
    # is 0, fchmodat2 before Linux 6.6.
    theirs = {"TIOCSTI": errno.EIO, "fchmodat2": errno.ENOSYS}
    unexplained = {name: got for name, got in control.items() if got[1] != theirs.get(re.split("[ ,]", name)[0])}
    assert unexplained == {}
    assert failed(ask(uid, build_filter())["refused"], {errno.EPERM}) == {}


@pytest.mark.parametrize("uid", USERS)
def test_what_is_not_there_fails_with_the_error_of_a_kernel_without_it(uid: int) -> None:
    without, under = ask(uid, None), ask(uid, build_filter())
    assert succeeded(without["other_errors"]) == {}
    assert {name: got[1] for name, got in under["other_errors"].items()} == {
        "openat2": errno.ENOSYS,
        "netlink generic": errno.EAFNOSUPPORT,
        "netlink audit": errno.EAFNOSUPPORT,
        "packet": errno.EAFNOSUPPORT,
        "packet, high bits": errno.EAFNOSUPPORT,
    }


@pytest.mark.parametrize("uid", USERS)
def test_ordinary_acts_succeed_as_without_the_filter(uid: int) -> None:
    assert succeeded(ask(uid, None)["kept"]) == {}
    assert succeeded(ask(uid, build_filter())["kept"]) == {}


@pytest.mark.parametrize("uid", USERS)
def test_turning_dumpable_off_succeeds_and_has_no_effect(uid: int) -> None:
    assert ask(uid, None)["compared"]["dumpable after turning it off"] == [0, 0]
    assert ask(uid, build_filter())["compared"]["dumpable after turning it off"] == [1, 0]


@pytest.mark.parametrize("uid", USERS)
def test_no_set_id_file_comes_into_being(uid: int) -> None:
    ways = 9 if "chmod" in NUMBERS else 5
    made, _ = ask(uid, None)["compared"]["set-id files"]
    assert made in (ways, ways - 1)  # fchmodat2 is younger than some kernels
    assert ask(uid, build_filter())["compared"]["set-id files"] == [0, 0]


@pytest.mark.parametrize("uid", USERS)
def test_calls_and_families_that_a_host_may_lack_are_absent_too(uid: int) -> None:
    without, under = ask(uid, None)["compared"], ask(uid, build_filter())["compared"]
    absent = {"clone3": errno.ENOSYS, "io_uring_setup": errno.ENOSYS, "a number that no kernel has": errno.ENOSYS}
    families = {"mptcp": errno.EPROTONOSUPPORT, "vsock": errno.EAFNOSUPPORT, "alg": errno.EAFNOSUPPORT}
    for name, error in (absent | families).items():
        assert under[name] == [-1, error], name
    assert without["clone3"] == [-1, errno.EINVAL]
    # The kernel itself keeps the clock, and knows no pairs of internet sockets.
    for name, error in {"set the clock's frequency": errno.EPERM, "internet socketpair": errno.EOPNOTSUPP}.items():
        assert without[name] == under[name] == [-1, error], name


@pytest.mark.parametrize("uid", USERS)
def test_it_is_the_filter_that_refuses_every_forbidden_call(uid: int) -> None:
    assert failed(ask(uid, MARKED)["sweep"], {MARK}) == {}
    assert failed(ask(uid, build_filter())["sweep"], {errno.EPERM}) == {}
    assert [name for name, got in ask(uid, None)["sweep"].items() if got == [-1, MARK]] == []
    assert failed(ask(uid, MARKED)["refused"], {MARK}) == {}


def test_debug_opens_the_calls_of_debuggers_and_nothing_else() -> None:
    opened = {"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"}
    answers = ask(0, build_filter(debug=True))["refused"]
    assert succeeded({name: answers[name] for name in opened}) == {}
    assert failed({name: got for name, got in answers.items() if name not in opened}, {errno.EPERM}) == {}


def test_nested_opens_namespaces_and_mounts_and_nothing_else() -> None:
    calls = {call for group in GROUPS if group.opened_by is Switch.NESTED for call in group.numbers(MACHINE)}
    answers = ask(0, build_filter(nested=True))["refused"]
    named = {name for name in answers if name.split()[0] in calls | {"umount", "clone"}}
    assert len(named) >= 10
    assert succeeded({name: answers[name] for name in named}) == {}
    assert failed({name: got for name, got in answers.items() if name not in named}, {errno.EPERM}) == {}


INSTALL = """
import ctypes, os, sys
uid, program, argv = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3:]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
if uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
assert libc.prctl(38, 1, 0, 0, 0) == 0
wanted = Program(len(program) // 8, program)
assert not program or libc.prctl(22, 2, ctypes.byref(wanted), 0, 0) == 0, ctypes.get_errno()
os.execvp(argv[0], argv)
"""


def under(program: bytes, uid: int, home: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    home.chmod(0o755)
    if uid:
        os.chown(home, uid, uid)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [PYTHON, "-I", "-c", INSTALL, str(uid), program.hex(), *argv],
        cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip


ENTRY_32 = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("5389f8cd805bc3"))  # push rbx; mov eax, edi; int 0x80; pop rbx; ret
enter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
import os
answer = enter(20)  # getpid of i386
print("pid" if answer == os.getpid() else answer, flush=True)
os._exit(0)
"""

if MACHINE == "x86_64":

    @pytest.mark.parametrize("uid", USERS)
    def test_the_32_bit_entry_has_no_calls(uid: int, home: Path) -> None:
        control = under(b"", uid, home, [PYTHON, "-c", ENTRY_32])
        # A kernel without the 32-bit entry ends the process with SIGSEGV instead, with a filter and without.
        assert control.stdout == "pid\n" or control.returncode == -11, control.stderr
        filtered = under(build_filter(), uid, home, [PYTHON, "-c", ENTRY_32])
        assert filtered.stdout == f"{-errno.ENOSYS}\n" or control.returncode == filtered.returncode == -11


PYTHON_LIFE = """
import asyncio, concurrent.futures, multiprocessing, os, resource, socket, subprocess, sys, tempfile, threading

def square(n):
    return n * n

async def main():
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"piped")
    assert out == b"piped"
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    await (await asyncio.open_connection(*server.sockets[0].getsockname()))[0].read()
    server.close()

if __name__ == "__main__":
    results = []
    threads = [threading.Thread(target=lambda: results.append(os.sched_setaffinity(threading.get_native_id(),
               os.sched_getaffinity(0)))) for _ in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert len(results) == 8
    assert subprocess.run("echo a | tr a b", shell=True, capture_output=True, text=True).stdout == "b\\n"
    asyncio.run(main())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(square, range(5))) == 30
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
    left, right = socket.socketpair()
    left.send(b"x"); assert right.recv(1) == b"x"
    socket.getaddrinfo("127.0.0.1", 80, flags=socket.AI_ADDRCONFIG)
    os.nice(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1770)
    print("lived")
"""

BASH_LIFE = r"""
set -euo pipefail
test "$(seq 1000 | sort -rn | head -3 | wc -l)" -eq 3 || test $? -eq 141
diff <(echo a) <(echo a)
mkfifo pipe; echo through > pipe & test "$(cat pipe)" = through; wait
mkdir -p a/b; cp -r a c; mv c d; ln -s d e; chmod -R u+w,g-w d; touch -d 2001-01-01 d; tar cf x.tar d; tar xf x.tar
rm -r a d e
ulimit -n 128; nice true; trap 'echo lived' EXIT; kill -0 $$
"""

GIT_LIFE = """
set -eu
git init -q . && git config user.email a@example.com && git config user.name a
echo 1 > f && git add f && git commit -qm one && git checkout -qb b && echo 2 > f && git commit -qam two && git gc -q
git clone -q . copy && git log --oneline | wc -l && git fsck && echo lived
"""

C_LIFE = r"""
cat > a.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *run(void *x) { return x; }
int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0); puts("lived"); return 0; }
END
gcc -O1 -o a a.c -pthread && ./a
"""

NODE_LIFE = """
const {Worker, isMainThread} = require("worker_threads"), fs = require("fs"), cp = require("child_process");
require("os").networkInterfaces();
new Worker("process.exit(0)", {eval: true}).on("exit", () => require("dns").lookup("127.0.0.1", () => {
  fs.writeFileSync("f", "x");
  fs.promises.readFile("f", "utf8").then(() => process.stdout.write(cp.execSync("echo lived")));
}));
"""

JAVA_LIFE = "java -Xshare:auto -version 2>&1 | grep -qi version && echo lived"

LIVES = {
    "bash": ["bash", "-c", BASH_LIFE],
    "python": [PYTHON, "life.py"],
    "git": ["sh", "-c", GIT_LIFE],
    "gcc": ["sh", "-c", C_LIFE],
    "node": ["node", "-e", NODE_LIFE],
    "java": ["sh", "-c", JAVA_LIFE],
}
# These three are no part of what the tests may expect of a machine; where one is installed it is held to the same.
OPTIONAL = {"gcc", "node", "java"}
HERE = [tool for tool in LIVES if tool not in OPTIONAL or shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin")]


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("tool", HERE)
def test_ordinary_tools_live_under_the_filter(tool: str, uid: int, home: Path) -> None:
    (home / "life.py").write_text(PYTHON_LIFE)
    done = under(build_filter(), uid, home, LIVES[tool])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1:] == ["lived"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="ringfence-test-", dir="/tmp") as folder:
        yield Path(folder)
