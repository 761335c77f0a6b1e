"""The caps on disk and inodes where they end the run: over a folder of the host, or asked for with on_breach."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth, fools

_BYTES = {"disk_bytes": 4 << 20}
_FILES = {"inodes": 100}
_KILL: dict[str, Any] = {"policy": {"workspace": None}, "tiers": ("namespaces",), "witness": "refusal"}
_MANY = "for i in $(seq 40); do head -c 1000000 /dev/zero > f$i; sleep 0.03; done; sleep 6"
_NAMES = "for i in $(seq 400); do : > f$i; done; sleep 6"
_REUSED = "for i in $(seq 12); do head -c 2000000 /dev/zero > f; sleep 0.03; rm f; done"
_FULL = "echo 'write error: No space left on device' >&2; "


def _hit(run: str, cap: str, limits: dict[str, object], **more: Any) -> Case:
    return Case(run, Truth(f"cap {cap}"), **{"witness": "usage", "limits": limits, "timeout": 30.0, "fresh": True, **more})


CASES: tuple[Case, ...] = (
    _hit(_MANY, "disk", _BYTES),
    _hit(f"({_MANY}) 2>/dev/null || true; exit 0", "disk", _BYTES, fools=True),
    _hit(f"({_MANY}) & wait; exit 124", "disk", _BYTES, fools=True),
    _hit(_NAMES, "inodes", _FILES),
    _hit(f"echo 'timed out' >&2; {_NAMES}", "inodes", _FILES, fools=True),
    _hit("head -c 10000000 /dev/zero > big; sleep 6", "disk", {**_BYTES, "on_breach": {"disk": "kill"}}, **_KILL),
    _hit("for i in $(seq 300); do : > f$i; done; sleep 6", "inodes", {**_FILES, "on_breach": {"inodes": "kill"}}, **_KILL),
    fools(_REUSED, "exited 0", limits=_BYTES, fresh=True),
    fools(_FULL + "exit 1", "exited 1", limits=_BYTES, fresh=True),
    fools(_FULL + "kill -9 $$", "signaled 9", limits=_BYTES, fresh=True),
    Case("head -c 100 /dev/zero > /dev/full; exit 4", Truth("exited 4", claimed=("cap inodes",)), fools=True, limits=_FILES),
    fools("head -c 3000000 /dev/zero > f; sleep 0.4", "exited 0", limits=_BYTES, fresh=True),
)
