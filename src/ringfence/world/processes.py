"""What runs in a box, as a fork of its guest reads it from /proc; believed in nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ringfence.errors import ProtocolError
from ringfence.guest import wire
from ringfence.process.messages import MAX_PID
from ringfence.process.wait import Waits
from ringfence.values import frozen
from ringfence.world.files import FileWork

MAX_ANSWER = 64 << 20
MAX_ARGUMENTS = 4096
MAX_NUMBER = 1 << 62
STATES = "RSDZTtXxKWPI"  # proc_pid_stat(5), field 3
_FIELDS = {"pid", "parent", "name", "argv", "state", "run", "rss", "cpu", "started"}


@frozen
class ProcessInfo:
    """One process of a box, as it was when it was looked at. name and argv are what the process makes of them.

    pid, ppid: as the box's programs see them. argv: the first 4096 bytes. state: the kernel's letter (proc_pid_stat(5)), R
    runs, S sleeps, T is stopped, Z has ended and waits for its parent. started: seconds since the epoch. rss_bytes: memory
    that it has resident, shared parts included. cpu_seconds: user and system. run: the pid of the first process of the run that
    it belongs to, as Process.pid has it, None where that is not known.
    """

    pid: int
    ppid: int
    name: str
    argv: tuple[str, ...]
    state: str
    started: float
    rss_bytes: int
    cpu_seconds: float
    run: int | None


def processes(work: FileWork) -> Waits[list[ProcessInfo]]:
    """Every process that was started in the box, sorted by number; none of ours."""
    answer = yield from work.ask("processes", work.world.workdir, {}, keep=MAX_ANSWER)
    try:
        return parse(answer)
    except ProtocolError:
        work.world.box.kill()
        raise


def parse(answer: bytes) -> list[ProcessInfo]:
    """Raises ProtocolError for anything but a list of processes; never anything but that."""
    try:
        described = wire.decode(answer)
    except wire.WireError as error:
        raise ProtocolError(f"the box sent bytes that are no list of processes: {error}.") from None
    if not isinstance(described, list):
        raise ProtocolError("the box sent something that is no list of processes.")
    return sorted((_process(each) for each in described), key=lambda process: process.pid)


def _process(fields: object) -> ProcessInfo:
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise ProtocolError("the box sent something that is no process.")
    argv, name, state = fields["argv"], fields["name"], fields["state"]
    words = argv if isinstance(argv, list) and all(isinstance(word, bytes) for word in argv) else None
    if words is None or len(words) > MAX_ARGUMENTS or sum(map(len, words)) > MAX_ARGUMENTS:
        raise ProtocolError("the box sent the arguments of a process that are none.")
    if not isinstance(name, bytes) or len(name) > 64 or not isinstance(state, bytes) or len(state) != 1:
        raise ProtocolError("the box sent the name or state of a process that is none.")
    letter = state.decode("latin-1")
    if letter not in STATES:
        raise ProtocolError("the box sent the state of a process that is not known.")
    return ProcessInfo(
        pid=_number(fields, "pid", 1, MAX_PID),
        ppid=_number(fields, "parent", 0, MAX_PID),
        name=os.fsdecode(name),
        argv=tuple(os.fsdecode(word) for word in words),
        state=letter,
        started=_number(fields, "started", 0, MAX_NUMBER) / 1e6,
        rss_bytes=_number(fields, "rss", 0, MAX_NUMBER),
        cpu_seconds=_number(fields, "cpu", 0, MAX_NUMBER) / 1e6,
        run=_number(fields, "run", 0, MAX_PID) or None,
    )


def _number(fields: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"the box sent a {name} of a process that is out of bounds.")
    return value
