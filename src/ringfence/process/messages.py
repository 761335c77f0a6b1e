"""What a guest may say, and nothing else. The guest is hostile: each field has a type and bounds, each message its fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

from ringfence.errors import ProtocolError
from ringfence.guest import wire
from ringfence.values import frozen

MAX_PATH = 4096
MAX_PID = 1 << 22  # PID_MAX_LIMIT, linux/threads.h
MAX_MICROSECONDS = 1 << 50
STAGES = ("cwd", "exec", "guest")
CAUSES = ("", "deadline", "killed", "cpu", "memory", "disk", "inodes", "processes", "open_files", "file_size")
_NO_NAMES = frozenset((b"", b".", b".."))


@frozen
class Ready:
    """The box is built and its guest serves. network: how its network was made, then the names of what was handed out of it."""

    network: tuple[str, ...] = ()


@frozen
class Refused:
    """The box could not be built: the stage of the plan, its path, the kernel's errno."""

    stage: str
    path: str
    errno: int


@frozen
class Started:
    pid: int


@frozen
class Stopped:
    """The job at a terminal was stopped, as Ctrl-Z does."""


@frozen
class Ended:
    """The first process of a run was reaped; status is as wait(2) gives it, times in seconds."""

    status: int
    user: float
    system: float
    took: float
    cause: str
    created: tuple[str, ...] | None
    pid: int
    kept: bool = False  # nothing but the guest holds the pipes of this run: they may serve the next


@frozen
class Failed:
    """The first process of a run did not start. mode is that of the file that was tried, 0 where there is none."""

    errno: int
    stage: str
    path: str
    mode: int
    cause: str
    pid: int
    kept: bool = False


Message: TypeAlias = Ready | Refused | Started | Stopped | Ended | Failed


def parse(packet: bytes) -> Message:
    """The message of one packet. Raises ProtocolError for anything else; never anything but that."""
    try:
        fields = wire.decode(packet)
    except wire.WireError as error:
        raise ProtocolError(f"the guest sent bytes that are no message: {error}.") from None
    if not isinstance(fields, dict):
        raise ProtocolError("the guest sent something that is not a message.")
    names = fields.keys()
    if names - {"created", "kept"} == {"status", "user", "system", "took", "cause", "pid"}:
        return Ended(
            _status(fields),
            _integer(fields, "user", 0, MAX_MICROSECONDS) / 1e6,
            _integer(fields, "system", 0, MAX_MICROSECONDS) / 1e6,
            _integer(fields, "took", 0, MAX_MICROSECONDS * 1000) / 1e9,
            _one_of(fields, "cause", CAUSES),
            _created(fields.get("created")),
            _integer(fields, "pid", 0, MAX_PID),
            "kept" in fields and bool(_integer(fields, "kept", 0, 1)),
        )
    if names - {"kept"} == {"failed", "stage", "path", "mode", "cause", "pid"}:
        return Failed(
            _integer(fields, "failed", 0, 4096),
            _one_of(fields, "stage", STAGES),
            _text(fields, "path", MAX_PATH),
            _integer(fields, "mode", 0, 0o177777),
            _one_of(fields, "cause", CAUSES),
            _integer(fields, "pid", 0, MAX_PID),
            "kept" in fields and bool(_integer(fields, "kept", 0, 1)),
        )
    if names == {"started"}:
        return Started(_integer(fields, "started", 1, MAX_PID))
    if names == {"stopped"}:
        _integer(fields, "stopped", 1, 1)
        return Stopped()
    if names - {"network"} == {"ready"}:
        _integer(fields, "ready", 1, MAX_PID)
        return Ready(_names(fields.get("network", [])))
    if names == {"failed", "stage", "path"}:
        return Refused(_text(fields, "stage", 500), _text(fields, "path", MAX_PATH), _integer(fields, "failed", 0, 4096))
    raise ProtocolError(f"the guest sent a message with the fields {str(sorted(fields)[:8])[:200]}.")


def _integer(fields: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"the guest sent a {name} that is out of bounds.")
    return value


def _text(fields: Mapping[str, object], name: str, most: int) -> str:
    value = fields[name]
    if not isinstance(value, bytes) or len(value) > most:
        raise ProtocolError(f"the guest sent a {name} that is out of bounds.")
    return os.fsdecode(value)


def _one_of(fields: Mapping[str, object], name: str, allowed: tuple[str, ...]) -> str:
    value = _text(fields, name, 64)
    if value not in allowed:
        raise ProtocolError(f"the guest sent a {name} that is not known.")
    return value


def _status(fields: Mapping[str, object]) -> int:
    status = _integer(fields, "status", 0, 0xFFFF)
    if not (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
        raise ProtocolError("the guest sent a status that no ended process has.")
    return status


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > wire.MOST_DESCRIPTORS:
        raise ProtocolError("the guest sent a list of names that is out of bounds.")
    if not all(isinstance(name, bytes) and len(name) <= 64 for name in value):
        raise ProtocolError("the guest sent a name that is out of bounds.")
    return tuple(os.fsdecode(name) for name in value)


def _created(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > 256:
        raise ProtocolError("the guest sent a list of files that is out of bounds.")
    names = []
    for name in value:
        # A caller joins these to the workspace's path and opens them: none may lead out of it.
        if not isinstance(name, bytes) or len(name) > MAX_PATH or b"\0" in name or not _NO_NAMES.isdisjoint(name.split(b"/")):
            raise ProtocolError("the guest sent a file name that is out of bounds.")
        names.append(os.fsdecode(name))
    return tuple(names)
