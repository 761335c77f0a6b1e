"""The cap on memory: met by the command, by a child that it survives, by many together; and kills that look like it."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth, fools

MIB = 1 << 20
_CAP = {"memory_bytes": 64 * MIB}
_HOLD = "import time; held = bytearray({} << 20); time.sleep(6)"
_TAKE = "python3 -c '" + _HOLD.format(150) + "'"
_HALF = "python3 -c 'import time; held = bytearray(45 << 20); time.sleep(1.5)'"
_SHARED = """
import os, time
held = bytearray(24 << 20)
children = []
for _ in range(6):
    pid = os.fork()
    if not pid:
        time.sleep(0.5)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
_STEPS = "import time\nheld = []\nwhile True:\n    held.append(bytearray(8 << 20))\n    time.sleep(0.02)"
_MEMFD = """
import os, time
made = os.memfd_create("x")
for _ in range(150):
    try:
        os.write(made, bytes(1 << 20))
    except OSError:  # a control group can refuse the call; what is asked for next it cannot
        held = bytearray(1 << 20)
time.sleep(6)
"""
_MAPPED = "import mmap, time\nheld = mmap.mmap(-1, 150 << 20)\nfor at in range(0, len(held), 4096): held[at] = 1\ntime.sleep(6)"
_FORKED = "import os, time\nif os.fork() == 0:\n    held = bytearray(150 << 20)\n    time.sleep(6)\n    os._exit(0)\nos.wait()"
_OOM = "echo 'Memory cgroup out of memory: Killed process 1 (python3)' >&2; "


def _hit(run: str, **more: Any) -> Case:
    return Case(run, Truth("cap memory"), **{"witness": "usage", "limits": _CAP, "timeout": 30.0, **more})


def _survived(run: str, status: int = 0, **more: Any) -> Case:
    """A child was ended for it, and the command went on."""
    return Case(run, Truth(f"exited {status}", ("cap memory",)), witness="usage", limits=_CAP, timeout=30.0, fools=True, **more)


CASES: tuple[Case, ...] = (
    _hit(_TAKE),
    _hit(_HOLD.format(200), code=True),
    _hit(_STEPS, code=True),
    _hit(_MEMFD, code=True),
    _hit(_MAPPED, code=True),
    _hit("exec " + _TAKE),
    _hit("echo 'timed out' >&2; exec " + _TAKE, fools=True),
    _hit("trap '' TERM INT; exec " + _TAKE, fools=True),
    _hit(f"{_TAKE}; {_TAKE}; echo not reached", fools=True),
    _survived(f"{_TAKE}; echo survived"),
    _survived(f"{_TAKE} 2>/dev/null || true"),
    _survived(f"({_TAKE}) > /dev/null 2>&1; exit 3", 3),
    _survived(f"{_TAKE}; exit $?", 137),
    _survived(f"{_TAKE} | cat"),
    _survived(f"{_TAKE} & wait $!; exit 124", 124),
    _survived(f"{_HALF} & {_HALF} & wait; echo done"),
    _survived(_FORKED, code=True),
    fools("kill -KILL $$", "signaled 9", limits=_CAP),
    fools("exit 137", "exited 137", limits=_CAP),
    fools(f"{_OOM}kill -KILL $$", "signaled 9", limits=_CAP),
    fools(f"{_OOM}exit 137", "exited 137", limits=_CAP),
    fools("sleep 5 & kill -KILL $!; wait $!; exit $?", "exited 137", limits=_CAP),
    fools("python3 -c 'raise MemoryError'", "exited 1", limits=_CAP),
    fools("ulimit -v 300000; python3 -c 'held = bytearray(1 << 30)'", "exited 1", limits=_CAP),
    fools("python3 -c 'held = bytearray(1 << 50)'", "exited 1", limits=_CAP),
    fools("python3 -c 'import time; held = bytearray(24 << 20); time.sleep(0.5)'", "exited 0", limits=_CAP),
    fools(_SHARED, "exited 0", limits=_CAP, code=True),
    fools("head -c 150000000 /dev/zero > big; cat big > /dev/null; sleep 0.3; rm big", "exited 0", limits=_CAP),
    fools("python3 -c 'import mmap, time; m = mmap.mmap(-1, 1 << 30); time.sleep(0.4)'", "exited 0", limits=_CAP),
)
