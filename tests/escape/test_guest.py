"""The first process of a box: nothing that it starts can stop it, look into it or change how it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ringfence.sync import Sandbox, SandboxConfig

PYTHON = "/usr/bin/python3"

ACTS = """
import ctypes, json, os, resource, signal, sys
victim = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
answers = {}
def act(name, call):
    try:
        call()
        answers[name] = 0
    except OSError as e:
        answers[name] = e.errno
def c(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), 'refused')
def look(name):
    with open('/proc/%d/%s' % (victim, name), 'rb') as f:
        f.read(1)
act('prlimit', lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (64, 64)))
act('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, victim, 5))
act('sched_setscheduler', lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)))
act('sched_setaffinity', lambda: os.sched_setaffinity(victim, {min(os.sched_getaffinity(0))}))
act('ioprio_set', lambda: c(libc.syscall(IOPRIO, 1, victim, 3 << 13)))
act('ptrace-seize', lambda: c(libc.ptrace(0x4206, victim, 0, 0)))
act('process_vm_readv', lambda: c(libc.process_vm_readv(victim, None, 0, None, 0, 0)))
act('pidfd_getfd', lambda: c(libc.syscall(438, os.pidfd_open(victim), 0, 0)))
act('mem', lambda: os.close(os.open('/proc/%d/mem' % victim, os.O_RDWR)))
for name in ('environ', 'maps', 'auxv'):
    act(name, lambda: look(name))
act('fd', lambda: os.listdir('/proc/%d/fd' % victim))
act('cwd', lambda: os.readlink('/proc/%d/cwd' % victim))
act('root', lambda: os.readlink('/proc/%d/root' % victim))
act('exe', lambda: os.readlink('/proc/%d/exe' % victim))
act('oom_score_adj', lambda: open('/proc/%d/oom_score_adj' % victim, 'w').write('1000'))
json.dump(answers, sys.stdout)
""".replace("IOPRIO", "251" if os.uname().machine == "x86_64" else "30")

VICTIM = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'import ctypes; ctypes.CDLL(None).prctl(0x59616d61, -1); '
                          'print(1, flush=True); input()'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
done = subprocess.run([sys.executable, 'acts.py', str(child.pid)], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout)
child.kill()
child.wait()
"""

SIGNALS = """
import os, signal, sys
sent = 0
for number in sorted(signal.valid_signals()):
    for send in (os.kill, lambda p, n: signal.pidfd_send_signal(os.pidfd_open(p), n)):
        try:
            send(1, number)
            sent += 1
        except OSError:
            pass
print(sent)
"""


def acts(box: Sandbox, argv: list[str]) -> dict[str, Any]:
    result = box.run([PYTHON, *argv])
    assert result.ok, result.stderr
    answers: dict[str, Any] = json.loads(result.stdout)
    return answers


def test_the_first_process_cannot_be_traced_read_reniced_rescheduled_or_limited(workspace: Path) -> None:
    (workspace / "acts.py").write_text(ACTS)
    (workspace / "victim.py").write_text(VICTIM)
    os.chmod(workspace / "acts.py", 0o644)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        inside = acts(box, ["acts.py", "1"])
        assert [name for name, errno in inside.items() if errno == 0] == []
        assert box.run(["/bin/true"]).ok
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        control = acts(box, ["victim.py"])
    allowed = {name for name, errno in control.items() if errno == 0}
    assert allowed == set(inside), set(inside) - allowed


def test_no_signal_of_a_program_ends_stops_or_interrupts_the_first_process(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for _ in range(2):
            result = box.run([PYTHON, "-c", SIGNALS])
            assert result.ok, result.stderr
        assert int(result.stdout) > 60  # they were sent
        assert box.run([PYTHON, "-c", "import os; os.kill(-1, 9)"]).outcome is not None
        assert box.execute("print(6 * 7)").stdout == "42\n"
        assert box.run(["/bin/echo", "alive"]).stdout == "alive\n"


def test_the_same_signal_ends_another_process_of_the_box(workspace: Path) -> None:
    program = "import os, signal, subprocess; p = subprocess.Popen(['sleep', '60']); os.kill(p.pid, 2); print(p.wait())"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run([PYTHON, "-c", program]).stdout == "-2\n"


def test_only_processes_of_the_box_are_listed_and_can_be_signalled(workspace: Path) -> None:
    lister = "import os; print(*[p for p in os.listdir('/proc') if p.isdigit()])"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        seen = {int(pid) for pid in box.run([PYTHON, "-c", lister]).stdout.split()}
        assert len(seen) <= 4 and os.getpid() not in seen
        refused = box.run([PYTHON, "-c", f"import os; os.kill({os.getpid()}, 0)"])
        assert "ProcessLookupError" in refused.stderr
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        assert os.getpid() in {int(pid) for pid in box.run([PYTHON, "-c", lister]).stdout.split()}
        assert box.run([PYTHON, "-c", f"import os; os.kill({os.getpid()}, 0)"]).ok


def test_programs_run_in_a_process_that_is_not_the_callers_whatever_the_interpreter_can_reach(workspace: Path) -> None:
    program = (
        "import os, ctypes\n"
        "names = [k.__name__ for k in ().__class__.__base__.__subclasses__()]\n"
        "pid = ctypes.CDLL(None).getpid()\n"
        "print(pid, os.readlink('/proc/self/ns/pid'), 'Sandbox' in names, open('/proc/self/comm').read())\n"
    )
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        result = box.execute(program)
        assert result.ok, result.stderr
        pid, namespace, found, *_ = result.stdout.split()
        assert int(pid) < 100
        assert namespace != os.readlink("/proc/self/ns/pid")
        assert found == "False"
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        result = box.execute(program)
        assert result.stdout.split()[1] == os.readlink("/proc/self/ns/pid")
