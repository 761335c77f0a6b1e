"""The runs outside ringfence: by themselves as subprocess.run makes them, and in a bubblewrap box. What others judge by."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truth.case import Case
from truth.place import Place

CUT_SECONDS = 0.4
"""When a run that only a cap ends is ended here."""
PATIENCE_SECONDS = 20.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Record:
    """One run outside. status: of subprocess (negative: a signal); None where it was ended here or never started."""

    status: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    error: OSError | None = None
    folder: Path | None = None


def bare(case: Case, place: Place, before: Sequence[str] = (), cut: float | None = None) -> Record:
    """Run a case by itself, behind the words of `before` (strace, bwrap)."""
    assert before or "process" in case.tiers, "a case that only a boundary keeps from the host is not run without one"
    folder = place.lay(case, place.workspace())
    words = [word.replace("@folder", str(folder)) for word in before]
    limit = cut or (CUT_SECONDS if case.endless else PATIENCE_SECONDS)
    try:
        process = subprocess.Popen(
            [*words, *place.argv(case)],
            cwd=folder / case.cwd,
            env={**ENVIRONMENT, "HOME": str(folder)},
            stdin=subprocess.PIPE if case.input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Record(None, error=error)
    timed_out = False
    try:
        stdout, stderr = process.communicate(case.input, timeout=limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        end(process)
        stdout, stderr = process.communicate()
    return Record(None if timed_out else process.returncode, stdout, stderr, timed_out, folder=folder)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a run and all below it, sessions of their own included."""
    from truth.accounts import below

    for pid in list(below(process.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def boxed(case: Case, place: Place) -> Record:
    """The same command line in bubblewrap: everything read-only, the case's own folder writable, no network."""
    return bare(case, place, BWRAP)


BWRAP = (
    "bwrap", "--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
    "--tmpfs", "/tmp", "--bind", "@folder", "@folder",
)  # fmt: skip
