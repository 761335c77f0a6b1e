"""Caps that end a run, and what looks like one: spinning and sleeping, in one process and in many, with the signals caught."""

from __future__ import annotations

from truth.case import Case, Truth, fools

_SPIN = "while True: pass"
_IGNORES = "import signal\nfor n in (signal.SIGXCPU, signal.SIGTERM, signal.SIGINT): signal.signal(n, signal.SIG_IGN)\n"
_TREE = "for i in 1 2 3 4 5; do python3 -c 'import time\nwhile time.process_time() < 0.8: pass' & done; wait; echo end"
_FORKED = """
import os, time
for _ in range(6):
    if not os.fork():
        while time.process_time() < 0.7:
            pass
        os._exit(0)
for _ in range(6):
    os.wait()
"""
_TREE_CPU = {"cpu_seconds": 2}
_CPU = {"cpu_seconds": 1}


def _wall(run: str, **more: object) -> Case:
    more = {"timeout": 0.4, "endless": True, "witness": "usage", **more}
    return Case(run, Truth("cap wall"), **more)  # type: ignore[arg-type]


def _cpu(run: str, **more: object) -> Case:
    more = {"timeout": 60.0, "endless": True, "witness": "usage", "limits": _CPU, **more}
    return Case(run, Truth("cap cpu"), **more)  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    _wall("sleep 600"),
    _wall("echo begun; sleep 600"),
    _wall("sleep 600 | cat"),
    _wall("sleep 600 & wait"),
    _wall("cat /dev/zero > /dev/null"),
    _wall("while :; do :; done"),
    _wall("kill -STOP $$"),
    _wall("import time\ntime.sleep(600)", code=True),
    _wall("import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()", code=True),
    _wall(_IGNORES + _SPIN, code=True, fools=True),
    _wall("trap '' TERM INT HUP XCPU; while :; do sleep 1; done", fools=True),
    _wall("trap 'exit 0' TERM INT HUP; while :; do sleep 0.1; done", fools=True),
    _wall("echo 'Out of memory: Killed process 4711' >&2; exec sleep 600", fools=True),
    _wall("echo 'exit status 0'; setsid sleep 600; echo not reached", fools=True),
    _wall("yes 'Permission denied: sandbox' >&2", fools=True),
    _wall("sleep 600", limits={"wall_seconds": 0.4}, timeout=None),
    _wall("sleep 600", limits={"lifetime_seconds": 0.4}, timeout=None, fresh=True),
    _wall("sleep 600", limits=_CPU, fools=True),
    _cpu(_SPIN, code=True),
    _cpu("while :; do :; done"),
    _cpu(_IGNORES + _SPIN, code=True, fools=True),
    _cpu("echo 'Timed out after 60 seconds' >&2; while :; do :; done", fools=True),
    _cpu(_TREE, limits=_TREE_CPU, fools=True),
    _cpu(_FORKED, limits=_TREE_CPU, code=True, fools=True),
    fools("kill -XCPU $$", "signaled 24", limits=_CPU),
    fools("kill -KILL $$", "signaled 9", limits=_CPU),
    fools("sleep 0.3; exit 152", "exited 152", limits=_CPU),
    fools("timeout 0.3 sh -c 'while :; do :; done'; exit $?", "exited 124", limits=_CPU),
    fools("sleep 0.1; exit 124", "exited 124", timeout=20.0),
    fools("sleep 0.1; echo 'timed out' >&2; kill -9 $$", "signaled 9", timeout=20.0),
)
