"""What strace(1) saw of a run: the calls that failed, with errno and path, and how the first process ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STRACE = ("strace", "-f", "-q", "-y", "-s", "512", "-o")
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(?: (E[A-Z0-9]+))?")
_END = re.compile(r"(\d+) +\+\+\+ (?:exited with (\d+)|killed by (SIG\w+))")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CWD = re.compile(r"AT_FDCWD<([^>]*)>")
_READS = re.compile(r"stat|access|readlink|getxattr|chdir|execve|getdents|open")
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|W_OK")


@dataclass(frozen=True)
class Failed:
    """A call that the kernel refused. kind: whether it would have read or written a path."""

    pid: int
    call: str
    errno: str
    paths: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Seen:
    """Everything that failed in a run, and the end of its first process, in the words of the corpus."""

    failed: tuple[Failed, ...]
    outcome: str

    def refused(self, kind: str, target: str, errnos: frozenset[str]) -> bool:
        """Whether an act on target failed with one of these."""
        return any(
            each.kind == kind
            and each.errno in errnos
            and any(path == target or path.startswith(target + "/") for path in each.paths)
            for each in self.failed
        )


def read(log: Path, besides: int = 0) -> Seen:
    """What a log says. besides: a process that was traced and is not of the run."""
    first, outcome, failed = 0, "", []
    for line in _whole_lines(log.read_text(errors="replace")):
        if found := _END.match(line):
            pid, code, name = int(found[1]), found[2], found[3]
            if pid == first:
                outcome = f"exited {code}" if code else f"signaled {signal.Signals[name].value}"
        elif found := _CALL.match(line):
            pid = int(found[1])
            first = first or (pid if pid != besides else 0)
            errno = found[5] or ("POLLERR" if "POLLERR" in line[found.end() :] else "")
            if errno and pid != besides:
                failed.append(_failed(pid, found[2], found[3], errno))
    return Seen(tuple(failed), outcome)


def _failed(pid: int, call: str, arguments: str, errno: str) -> Failed:
    cwd = found[1] if (found := _CWD.search(arguments)) else "/"
    paths = tuple(os.path.normpath(os.path.join(cwd, path)) for path in _QUOTED.findall(arguments)[:2])
    reads = bool(_READS.search(call)) and not _WRITES.search(arguments)
    return Failed(pid, call, errno, paths, "read" if reads else "write")


def _whole_lines(text: str) -> Iterator[str]:
    """The lines of a log; a call that was interrupted by another process's is put together again."""
    begun: dict[str, str] = {}
    for line in text.splitlines():
        pid = line.partition(" ")[0]
        if line.endswith("<unfinished ...>"):
            begun[pid] = line.removesuffix("<unfinished ...>").rstrip()
        elif (resumed := re.match(r"\d+ +<\.\.\. \w+ resumed>(.*)", line)) and pid in begun:
            yield begun.pop(pid) + resumed[1]
        else:
            yield line


class Attached:
    """strace on a process that runs and all that it starts; for root."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log

    def __enter__(self) -> Attached:
        self._tracer = subprocess.Popen([*STRACE, str(self.log), "-p", str(self.pid)], stderr=subprocess.PIPE)
        until = time.monotonic() + 10
        while "TracerPid:\t0\n" in Path(f"/proc/{self.pid}/status").read_text():
            if time.monotonic() > until or self._tracer.poll() is not None:
                raise TimeoutError("strace did not attach")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._tracer.terminate()
        self._tracer.communicate()

    def seen(self) -> Seen:
        return read(self.log, self.pid)
