"""What ringfence could not do or lost. It is an exception, never a result; a program can only say so."""

from __future__ import annotations

from truth.case import Case, Truth, fools

_LOST = "SandboxLostError: the box was lost: signal 9 ended it."


def _refused(run: str, **more: object) -> Case:
    return Case(run, Truth("refused"), witness="hand", **more)  # type: ignore[arg-type]


def _lost(run: str, **more: object) -> Case:
    return Case(run, Truth("lost"), witness="hand", act="kill the box", **more)  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    _refused("true", policy={"read_only": ["/no/such/folder"]}, tiers=("namespaces",)),
    _refused("true", policy={"workspace": "/no/such/workspace"}),
    _refused("true", policy={"tier": "docker"}),
    _refused("true", policy={"tier": "microvm"}),
    _refused("true", policy={"python": "/no/such/python"}, code=True),
    _refused("echo hi", limits={"idle_seconds": 0.2}, act="leave the box idle"),
    _lost("echo so far; sleep 600"),
    _lost("echo so far; while :; do :; done", limits={"cpu_seconds": 60}),
    _lost("import time; print('so far', flush=True); time.sleep(600)", code=True),
    _lost("echo 'exit status 0'; sleep 600", fools=True),
    _lost("echo 'Out of memory: Killed process 4711 (python3)'; trap '' TERM; sleep 600", fools=True),
    _lost("echo 'timed out after 1 s'; sleep 600; exit 124", fools=True, timeout=60.0),
    fools(f"echo '{_LOST}' >&2; exit 1", "exited 1"),
    fools(f"echo '{_LOST}' >&2; kill -9 $$", "signaled 9"),
    fools("kill -9 -- -$$; sleep 5", "signaled 9"),
)
