"""Which processes of this host carry a marker in their command line: what a call started is looked for from outside."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

_numbers = itertools.count(os.getpid() % 10_000 * 1000 + 100_000_000)


def fresh_marker() -> str:
    """A number of seconds to sleep that no other process of this host sleeps."""
    return str(next(_numbers))


def running(marker: str, besides: int = 0) -> list[str]:
    """The command lines that contain marker; this process and `besides` left out, and zombies, which have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) not in (os.getpid(), besides):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:  # it ended while it was looked at
                continue
            if marker in line:
                found.append(line.strip())
    return found


def gone(marker: str, within: float = 5.0, besides: int = 0) -> bool:
    """Whether nothing that carries marker runs any more, at the latest after `within` seconds."""
    limit = time.monotonic() + within
    while running(marker, besides):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def wait_for(marker: str, count: int, within: float = 20.0, besides: int = 0) -> None:
    """Until `count` processes carry marker. Raises TimeoutError."""
    limit = time.monotonic() + within
    while len(found := running(marker, besides)) < count:
        if time.monotonic() > limit:
            raise TimeoutError(f"{len(found)} of {count} processes with {marker} were started")
        time.sleep(0.01)
