"""Commands that end by themselves: exit codes and signals, those that imitate what others mean by a code among them."""

from __future__ import annotations

import signal

from truth.case import Case, exits, fools, program

IMITATED = {
    124: "timeout(1)",
    125: "timeout(1), docker run, ringfence run",
    126: "the shell: not executable",
    127: "the shell: not found",
    134: "128 + SIGABRT",
    137: "128 + SIGKILL, docker: out of memory",
    139: "128 + SIGSEGV",
    143: "128 + SIGTERM",
    152: "128 + SIGXCPU",
    153: "128 + SIGXFSZ",
    159: "128 + SIGSYS, seccomp",
    255: "ssh: connection lost",
}
TO_ITSELF = ("HUP", "INT", "ABRT", "KILL", "SEGV", "TERM", "XCPU", "XFSZ", "SYS", "BUS", "USR1", "ALRM", "PIPE")

FAILING_TEST = """
import unittest
class Sandbox(unittest.TestCase):
    def test_the_sandbox_denies_it(self):
        raise PermissionError(13, "Permission denied by sandbox (seccomp, landlock)", "/etc/shadow.example")
    def test_memory(self):
        self.assertEqual("oom-kill", "exit 0", "Out of memory: Killed process 4711 (python3)")
unittest.main()
"""

CASES: tuple[Case, ...] = (
    exits("true"),
    exits("false", 1),
    exits("grep zzz /dev/null", 1),
    exits(("python3", "-c", "import sys; sys.exit(2)"), 2),
    exits("python3 -m unittest no_such_module 2>&1 | tail -1; exit ${PIPESTATUS[0]}", 1),
    exits("echo 1 > a; echo 2 > b; diff a b", 1),
    exits("test -e nope", 1),
    exits("ls nope", 2),
    exits("cat nope", 1),
    exits("nope-no-such-command", 127),
    exits("cd nope", 1),
    exits("mkdir d; mkdir d", 1),
    exits("rmdir .. 2>/dev/null; exit 3", 3),
    exits("set -e; false; echo not reached", 1),
    exits("(exit 42)", 42),
    exits("exit 256", 0),
    exits("exit -1", 255),
    exits("read -r line; echo $line; exit 4", 4, input=b"one line\n"),
    exits("cat | wc -c", 0, input=b"x" * 100_000),
    exits("yes | head -1", 0),
    exits("set -o pipefail; yes | head -1", 141),
    exits("sleep 0.05 & wait $!; exit 6", 6),
    exits("(sleep 0.2; exit 9) & exit 5", 5),
    exits("trap 'exit 8' TERM; kill -TERM $$; sleep 9", 8),
    exits("timeout -s KILL 5 true"),
    exits(("bash", "-c", "exec true")),
    exits(("env", "true")),
    program("print(400)", "exited 0"),
    program("raise SystemExit(3)", "exited 3"),
    program("raise SystemExit('text')", "exited 1"),
    program("1/0", "exited 1"),
    program("import nothing_of_this_name", "exited 1"),
    program("def f(: pass", "exited 1"),
    program("import os; os._exit(77)", "exited 77"),
    program("import sys; sys.exit(300)", "exited 44"),
    program("import threading, sys\nthreading.Thread(target=sys.exit, args=(5,)).start()", "exited 0"),
    program("open('made', 'w').write('x'); import os; os.stat('made')", "exited 0"),
    program("assert False, 'plain'", "exited 1"),
    program("import subprocess\nraise SystemExit(subprocess.run(['sh', '-c', 'exit 21']).returncode)", "exited 21"),
    *(fools(f"exit {code}", f"exited {code}") for code in IMITATED),
    *(program(f"raise SystemExit({code})", f"exited {code}", fools=True) for code in (124, 137, 152, 159)),
    *(fools(f"kill -{name} $$; sleep 5", f"signaled {signal.Signals['SIG' + name].value}") for name in TO_ITSELF),
    program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signaled 9", fools=True),
    program("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "signaled 24", fools=True),
    program("import os; os.abort()", "signaled 6"),
    program("import ctypes; ctypes.string_at(0)", "signaled 11"),
    fools("sh -c 'kill -9 $$'; exit $?", "exited 137"),
    fools("sh -c 'kill -XCPU $$'; exit $?", "exited 152"),
    fools("sh -c 'kill -SYS $$'; exit $?", "exited 159"),
    fools("timeout 0.1 sleep 5", "exited 124"),
    fools("timeout -s KILL 0.1 sleep 5", "signaled 9"),
    fools("(sleep 0.1; kill -9 $$) & sleep 5", "signaled 9"),
    fools("(sleep 0.1; kill -TERM $$) & wait; sleep 5", "signaled 15"),
    fools("sleep 5 & kill -9 $!; wait $!; echo survived", "exited 0"),
    program(FAILING_TEST, "exited 1", fools=True),
    fools("python3 t.py", "exited 1", files={"t.py": (FAILING_TEST, 0o644)}),
    fools("python3 t.py; exit 0", "exited 0", files={"t.py": (FAILING_TEST, 0o644)}),
)
