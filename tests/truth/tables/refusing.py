"""Caps that refuse a call: reported beside the outcome, unless on_breach ends the run. And the same errors without a cap."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth, fools
from truth.hosts import counts_processes

_OPEN: dict[str, Any] = {"witness": "refusal", "limits": {"open_files": 32}}
_SIZE: dict[str, Any] = {"witness": "refusal", "limits": {"file_size_bytes": 100_000}}
_MANY: dict[str, Any] = {"witness": "refusal", "limits": {"max_processes": 24}}
_KILLED = Truth("cap processes" if counts_processes() else "refused")
_KILL: dict[str, Any] = {"limits": {"max_processes": 24, "on_breach": {"processes": "kill"}}, "timeout": 30.0}
_KILL["witness"] = "refusal" if counts_processes() else "hand"
_OWN: dict[str, Any] = {"witness": "refusal", "fresh": True, "policy": {"workspace": None}, "tiers": ("namespaces",)}
_DISK: dict[str, Any] = {**_OWN, "limits": {"disk_bytes": 4 << 20}}
_INODES: dict[str, Any] = {**_OWN, "limits": {"inodes": 100}}
_OPENS = "python3 -c 'held = [open(\"/dev/null\") for _ in range(64)]'"
_FILLS = "head -c 10000000 /dev/zero > big"
_WRITES = "head -c 1000000 /dev/zero > big"
_MAKES = "for i in $(seq 300); do : > f$i || exit 3; done"
_FORKS = """
import os, sys, time
for number in range(60):
    if not os.fork():
        time.sleep(1)
        os._exit(0)
"""
_THREADS = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()"
_CAUGHT = "try:\n    held = [open('/dev/null') for _ in range(64)]\nexcept OSError:\n    raise SystemExit(4)"


def _refused(run: str, cap: str, status: int, more: dict[str, Any], **further: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"cap {cap}",)), **{**more, **further})


def _unseen(run: str, cap: str, status: int, more: dict[str, Any], **further: Any) -> Case:
    truth = Truth(f"exited {status}", may=(f"cap {cap}",))
    return Case(run, truth, fools=True, unconfined=truth, **{**more, **further})


def _processes(run: str, status: int, **further: Any) -> Case:
    unconfined = None if counts_processes() else Truth("refused")
    return _refused(run, "processes", status, _MANY, unconfined=unconfined, **further)


CASES: tuple[Case, ...] = (
    _refused(_OPENS, "open_files", 1, _OPEN),
    _refused("held = [open('/dev/null') for _ in range(64)]", "open_files", 1, _OPEN, code=True),
    _refused(f"{_OPENS} || true", "open_files", 0, _OPEN, fools=True),
    _refused(f"{_OPENS} | cat; exit 137", "open_files", 137, _OPEN, fools=True),
    _unseen(f"{_OPENS} 2>/dev/null; exit 5", "open_files", 5, _OPEN),
    _unseen(_CAUGHT, "open_files", 4, _OPEN, code=True),
    _refused(_WRITES, "file_size", 1, _SIZE),
    _refused(f"{_WRITES} || true", "file_size", 0, _SIZE, fools=True),
    _refused("open('big', 'wb').write(bytes(1000000))", "file_size", 1, _SIZE, code=True),
    _refused("dd if=/dev/zero of=big bs=10000 count=30; exit 153", "file_size", 153, _SIZE, fools=True),
    _unseen(f"{_WRITES} 2>/dev/null; exit 6", "file_size", 6, _SIZE),
    fools("head -c 90000 /dev/zero > big", "exited 0", limits={"file_size_bytes": 100_000}),
    _refused(_FILLS, "disk", 1, _DISK),
    _refused(f"{_FILLS} || true", "disk", 0, _DISK, fools=True),
    _refused("open('big', 'wb').write(bytes(10000000))", "disk", 1, _DISK, code=True),
    _unseen(f"{_FILLS} 2>/dev/null; exit 7", "disk", 7, _DISK),
    _refused(_MAKES, "inodes", 3, _INODES),
    _unseen(f"({_MAKES}) 2>/dev/null; exit 8", "inodes", 8, _INODES),
    _processes(_FORKS, 1, code=True),
    _processes(_THREADS, 1, code=True),
    _processes(f"python3 -c '{_FORKS}' || true", 0, fools=True),
    Case(_FORKS + "time.sleep(6)", _KILLED, code=True, **_KILL),
    Case(f"python3 -c '{_FORKS}' 2>/dev/null; sleep 6; exit 0", _KILLED, fools=True, **_KILL),
    fools("echo x > /dev/full", "exited 1", limits={"open_files": 64}),
    fools(
        "ulimit -n 16; python3 -c 'held = [open(\"/dev/null\") for _ in range(20)]' 2>/dev/null",
        "exited 1",
        limits={"open_files": 64},
    ),
    Case("ulimit -n 20; " + _OPENS, Truth("exited 1", claimed=("cap open_files",)), fools=True, limits={"open_files": 512}),
)
