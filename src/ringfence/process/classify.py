"""How a run ended, decided from what the child cannot write: the wait status, the guest's cause, the kernel's errno.

Nothing is read from the command's output. An exit code of 124 or 137 is an exit code.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Sequence, Set

from ringfence.outcome import CapHit, Denial, Exited, NotStarted, Outcome, Reason, Signaled
from ringfence.policy.config import SandboxLimits
from ringfence.process.evidence import Cap
from ringfence.process.messages import Ended, Failed

KEYS = {
    "memory": ("resources.memory_gib.limit", 1 << 30),
    "cpu": ("resources.cpu_seconds", 1),
    "processes": ("resources.max_processes", 1),
    "open_files": ("resources.open_files", 1),
    "file_size": ("resources.file_size_mib", 1 << 20),
    "disk": ("resources.disk_gib", 1 << 30),
    "inodes": ("resources.inodes", 1),
}
"""The key of a policy file for each kind of cap that the warden can see met, and its unit there."""

CPU_SPENT = {signal.SIGXCPU: 0.7, signal.SIGKILL: 0.95}
"""The share of its CPU limit that a program must have used for the signal to be the kernel's.

The limit is checked against time that is counted in whole ticks, wait4(2) reports time to the nanosecond: on a busy machine the
kernel's SIGXCPU was seen at 0.81 of the limit. SIGKILL comes at the hard limit, a second later."""


def of_ended(ended: Ended, limits: SandboxLimits, wall: float | None, caps: Sequence[Cap], command: int) -> Outcome:
    """The outcome of a run whose first process was reaped. wall is the deadline that held, in seconds.

    caps are the warden's records of the run, command is its pid at a terminal, where its first process is another. The cause that
    the guest names counts only where a record says the same.
    """
    if ended.cause == "deadline" and wall is not None:
        return CapHit("wall", wall, ended.took, "deadline of the call")
    for cap in caps:
        # What the kernel killed itself it only counts: then a first process that was killed is taken for it.
        victims = (cap.pid,) if cap.pid else (ended.pid,) if cap.kind == "memory" and not cap.ends_run else ()
        was_victim = ended.status == signal.SIGKILL and not {ended.pid, command}.isdisjoint(victims)
        if was_victim or (cap.ends_run and cap.kind == ended.cause):
            return CapHit(cap.kind, cap.limit, cap.observed, cap.by)
    if os.WIFEXITED(ended.status):
        return Exited(os.WEXITSTATUS(ended.status))
    number = os.WTERMSIG(ended.status)
    used = ended.user + ended.system
    seconds = limits.cpu_seconds
    # A program can send itself SIGXCPU: it is a cap only where the time was really spent.
    if number in CPU_SPENT and seconds is not None and used >= seconds * CPU_SPENT[signal.Signals(number)]:
        return CapHit("cpu", seconds, used, "rlimit")
    return Signaled(number)


def of_breach(outcome: Outcome, caps: Sequence[Cap], kills: Set[str]) -> Outcome:
    """The outcome where a cap that only refuses is to end the run, and the run ended by itself before anybody could."""
    for cap in caps:
        if cap.kind in kills and not isinstance(outcome, CapHit):
            return CapHit(cap.kind, cap.limit, cap.observed, cap.by)
    return outcome


def denials(caps: Sequence[Cap], outcome: Outcome | None) -> tuple[Denial, ...]:
    """One for each kind of cap that was met in a run and is not its outcome."""
    first: dict[str, Cap] = {}
    for cap in caps:
        if not (isinstance(outcome, CapHit) and outcome.kind == cap.kind):
            first.setdefault(cap.kind, cap)
    return tuple(_denial(cap) for cap in first.values())


def _denial(cap: Cap) -> Denial:
    key, unit = KEYS[cap.kind]
    of = "" if cap.run else ", of a run that is not known"
    killed = f"process {cap.pid}{of} was killed" if cap.pid else ""
    detail = f"{cap.observed / unit:.3g} of {cap.limit / unit:g}, seen by {cap.by}" + (f"; {killed}" if killed else "")
    return Denial("cap", cap.kind, f"{key}: {cap.limit / unit:g}", "observed", f"{key}: {2 * cap.limit / unit:g}", detail)


def of_failed(failed: Failed, wall: float | None) -> Outcome:
    """The outcome of a run that did not start, or whose deadline came before its program did."""
    if failed.cause == "deadline" and wall is not None:
        return CapHit("wall", wall, wall, "deadline of the call")
    return NotStarted(_reason(failed), failed.path, failed.errno)


def _reason(failed: Failed) -> Reason:
    if failed.stage == "cwd":
        return Reason.BAD_CWD
    exists = failed.mode != 0
    match failed.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.ELOOP:
            return Reason.MISSING_INTERPRETER if exists and stat.S_ISREG(failed.mode) else Reason.NOT_FOUND
        case errno.EACCES | errno.EPERM | errno.EISDIR:
            return Reason.IS_A_DIRECTORY if stat.S_ISDIR(failed.mode) else Reason.NOT_EXECUTABLE
        case errno.ENOEXEC | errno.ELIBBAD:
            return Reason.BAD_FORMAT
        case errno.E2BIG:
            return Reason.TOO_LARGE
        case errno.EAGAIN:
            return Reason.NO_PROCESS
        case errno.ENOMEM | errno.EMFILE | errno.ENFILE:
            return Reason.NO_RESOURCES
        case errno.ENOSPC:
            return Reason.NO_SPACE
    return Reason.REFUSED
