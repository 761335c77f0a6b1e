"""Holds every label to a witness that is not ringfence: what the truth of the corpus is worth.

status: the wait status of a run outside. trace: strace on the run in its box (root) or in bubblewrap. usage: the kernel's account
of a run that nothing caps. refusal: the same failure under the kernel's own limits, set by others. far
side: a server that hears of it. hand: the corpus did it itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from truth import hosts, strace
from truth.accounts import Account, account
from truth.adapters.outside import BWRAP, Record, bare
from truth.adapters.plain import judge
from truth.adapters.ringfence import Ringfence
from truth.case import Case, Truth
from truth.place import Place

REFUSALS = {"write": frozenset(("EROFS", "EACCES", "EPERM", "ENOENT")), "read": frozenset(("EACCES", "EPERM", "ENOENT", "EROFS"))}


def disagreements(case: Case, place: Place) -> Iterator[str]:
    """What the witness of a case says against its label; nothing where they agree."""
    match case.witness:
        case "status":
            yield from _status(case, bare(case, place))
        case "trace":
            yield from _trace(case, place)
        case "refusal":
            yield from _refusal(case, place)
        case "far side":
            yield from _far_side(case, place)
        case "usage":
            yield from _usage(case, account(case, place))
        case "hand":
            return  # the corpus did it itself


def _status(case: Case, record: Record) -> Iterator[str]:
    outcome = judge(record).outcome if record.error is None else f"not started: {reason(record.error, case)}"
    if outcome != case.on("process").outcome:
        yield f"{case.id}: {case.shown}: by itself it {outcome}, the label is {case.on('process').outcome}"
    for denial in case.truth.denials:
        if not record.folder or not (record.folder / denial.removeprefix("planted @folder/")).is_dir():
            yield f"{case.id}: {case.shown}: by itself it leaves nothing that makes it {denial}"


def reason(error: OSError, case: Case) -> str:
    """Why a command did not start, from the kernel's errno and what lies there."""
    if case.cwd and str(error.filename).endswith(case.cwd):
        return "the working directory cannot be entered"
    mode = case.files.get(case.argv[0].removeprefix("./"), ("", 0))[1]
    there = mode or os.path.exists(case.argv[0])
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "its interpreter is missing" if there else "not found"
        case errno.EACCES:
            folder = not mode and (f"{case.argv[0].removeprefix('./')}/" in " ".join(case.files) or os.path.isdir(case.argv[0]))
            return "is a directory" if folder else "not executable"
        case errno.ENOEXEC:
            return "not in a format that this machine runs"
    return "arguments and environment larger than the kernel takes" if error.errno == errno.E2BIG else "refused by the kernel"


def _trace(case: Case, place: Place) -> Iterator[str]:
    """The calls of the run itself, seen from outside its box; an ordinary user sees those of the same run in bubblewrap."""
    log = place.root / f"trace-{case.id}"
    names: dict[str, str] = {"@outside": str(place.outside)}
    if os.getuid() == 0:
        with Ringfence("namespaces", place) as adapter:
            box, folder = adapter.made_for(case)
            names["@folder"] = str(folder)
            with strace.Attached(box._open().box.pid, log) as traced:
                adapter.call(box, case, folder)
            seen = traced.seen()
        if seen.outcome != case.truth.outcome:
            yield f"{case.id}: {case.shown}: strace saw that it {seen.outcome}, the label is {case.truth.outcome}"
        yield from _against(case, case.truth, seen, names)
    else:
        bare(case, place, (*strace.STRACE, str(log), *BWRAP))
        writes = tuple(denial for denial in case.truth.denials if denial.startswith("write ") and "@folder" not in denial)
        yield from _against(case, Truth(case.truth.outcome, writes), strace.read(log), names)
    log.unlink(missing_ok=True)


def _against(case: Case, truth: Truth, seen: strace.Seen, names: dict[str, str]) -> Iterator[str]:
    for denial in (*truth.denials, *truth.may):
        if not _happened(denial, seen, names):
            yield f"{case.id}: {case.shown}: strace saw no refusal of {denial}"
    for denial in truth.claimed:
        if _happened(denial, seen, names):
            yield f"{case.id}: {case.shown}: strace saw a refusal of {denial}, which is called a mere claim"


CAPS = {"open_files": "EMFILE", "file_size": "EFBIG", "disk": "ENOSPC", "inodes": "ENOSPC", "processes": "EAGAIN"}
MOUNT = 'mount -t tmpfs -o "$0" none . && cd "$PWD" && exec "$@"'


def _refusal(case: Case, place: Place) -> Iterator[str]:
    """The same command under the kernel's own limit, set by others, with strace looking."""
    log = place.root / f"refusal-{case.id}"
    words: tuple[str, ...] = ()
    limits = case.limits
    if "open_files" in limits:
        words = ("prlimit", f"--nofile={limits['open_files']}")
    elif "file_size_bytes" in limits:
        words = ("env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={limits['file_size_bytes']}")
    elif "max_processes" in limits:
        words = hosts.bounded_processes(int(str(limits["max_processes"])))
    else:
        options = f"size={limits.get('disk_bytes', '50%')},nr_inodes={limits.get('inodes', '0')}"
        words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, options)
    bare(case, place, (*words, *strace.STRACE, str(log)))
    seen = strace.read(log)
    if not case.truth.outcome.startswith("cap ") and seen.outcome != case.truth.outcome:
        yield f"{case.id}: {case.shown}: under a limit set by others it {seen.outcome}, the label is {case.truth.outcome}"
    for denial in (case.truth.outcome, *case.truth.denials, *case.truth.may):
        if denial.startswith("cap ") and not any(each.errno == CAPS[denial.removeprefix("cap ")] for each in seen.failed):
            yield f"{case.id}: {case.shown}: under a limit set by others no call failed as {denial} says"
    log.unlink()


def _far_side(case: Case, place: Place) -> Iterator[str]:
    """Whether a server outside hears of it: by itself yes, in a box no."""
    place.heard()
    bare(case, place)
    if not place.heard():
        yield f"{case.id}: {case.shown}: by itself it does not reach the server outside"
    with Ringfence("namespaces", place) as adapter:
        box, folder = adapter.made_for(case)
        adapter.call(box, case, folder)
    if place.heard():
        yield f"{case.id}: {case.shown}: in a box it reaches the server outside"


def _happened(denial: str, seen: strace.Seen, names: dict[str, str]) -> bool:
    kind, target = denial.split(" ", 1)
    for name, folder in names.items():
        target = target.replace(name, folder)
    if kind in REFUSALS:
        return seen.refused(kind, target, REFUSALS[kind])
    if kind == "net":
        return any(each.errno in ("ECONNREFUSED", "ENETUNREACH", "POLLERR") for each in seen.failed)
    return any(each.call == target for each in seen.failed)


def _usage(case: Case, spent: Account) -> Iterator[str]:
    """A capped run, left alone: whether it does what the cap is about, and not what another cap would end sooner."""
    outcome = case.truth.outcome
    limits = {"cpu_seconds": 60.0, **case.limits}
    if outcome == "cap wall" and not (spent.alive and spent.cpu_seconds < limits["cpu_seconds"]):
        yield f"{case.id}: {case.shown}: by itself {spent}, which is no cap on time"
    met = {
        "cpu": (spent.cpu_seconds, limits["cpu_seconds"]),
        "memory": (spent.peak_bytes, limits.get("memory_bytes")),
        "disk": (spent.disk_bytes, limits.get("disk_bytes")),
        "inodes": (spent.files, limits.get("inodes")),
    }
    for cap, (took, limit) in met.items():
        if f"cap {cap}" in (outcome, *case.truth.denials) and took < limit:
            yield f"{case.id}: {case.shown}: by itself {spent}, which is no cap on {cap} of {limit}"
