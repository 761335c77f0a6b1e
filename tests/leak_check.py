"""Fails a test that leaves something behind on the host.

Looked at before and after each test: the processes below this one, the boxes that lost their caller, threads,
descriptors, mounts, control groups and temporary folders. What is still there after the test has a deadline to be gone,
since ends are asynchronous in the kernel. What fixtures of a wider scope hold was there before, and does not count.

Pipes that are made ahead for the next run are closed before each look. Six things may come and stay: the one zygote of
this process and the one warden below it, the one egress server and its worker, with the few descriptors that lead to them,
root's open register of box ids, root's id maps (a user namespace for each block of ids that was in use at once), the three
queues on which the kernel tells of changes in workspaces, with the thread that serves one of them and the table of mounts, and
the worker threads that trio keeps for ten seconds.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DEADLINE_SECONDS = 10.0
ZYGOTE_NAME, WARDEN_NAME = "ringfence", "ringfence-watch"
SERVER_NAME, WORKER_NAME = "ringfence-net", "ringfence-net-w"
ZYGOTE_DESCRIPTORS, WARDEN_DESCRIPTORS, SERVER_DESCRIPTORS = 5, 1, 1
ID_REGISTER = "/run/ringfence/ids"
ID_MAP = " user:["
QUEUE, QUEUES = "anon_inode:inotify", 3
MOUNTS = f"/proc/{os.getpid()}/mountinfo"
WATCHMAN = "ringfence-watchman"

_scratch = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this run a temporary folder of its own, so that what is left in it was left by this run."""
    if "PYTEST_XDIST_WORKER" in os.environ or _scratch in config.stash:
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    scratch = tempfile.mkdtemp(prefix="rf-tests-")
    os.chmod(scratch, 0o1777)  # like /tmp itself: tests that act as another user make their files in it too
    config.stash[_scratch] = os.environ["TMPDIR"] = tempfile.tempdir = scratch


def pytest_unconfigure(config: pytest.Config) -> None:
    if scratch := config.stash.get(_scratch, ""):
        tempfile.tempdir = None
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class Task:
    """One line of /proc: what proc_pid_stat(5) says of a process."""

    pid: int
    parent: int
    name: str
    state: str
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}, state {self.state}, parent {self.parent})"


@dataclass(frozen=True)
class Seen:
    """What is on the host at one moment, of that which a test could have left there."""

    below: frozenset[Task]
    strays: frozenset[Task]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[str]
    mounts: frozenset[str]
    folders: frozenset[str]

    def new_since(self, before: Seen) -> list[str]:
        below = _new_tasks(self.below, before.below)
        zygotes = [task for task in below if task.name == ZYGOTE_NAME and task.parent == os.getpid()][:1]
        wardens = [task for task in below if task.name == WARDEN_NAME][:1]
        servers = [task for task in below if task.name == SERVER_NAME and task.parent == os.getpid()][:1]
        servers += [task for task in below if task.name == WORKER_NAME and task.parent != os.getpid()][:1]
        new = self.descriptors - before.descriptors
        descriptors = sorted(each for each in new if not each.endswith(ID_REGISTER) and ID_MAP not in each)
        if sum(each.endswith(QUEUE) for each in self.descriptors) <= QUEUES:
            descriptors = [each for each in descriptors if not each.endswith((QUEUE, MOUNTS))]
        if zygotes or wardens:
            descriptors = _without_ends(descriptors, ZYGOTE_DESCRIPTORS if zygotes else WARDEN_DESCRIPTORS)
        if servers:
            descriptors = _without_ends(descriptors, SERVER_DESCRIPTORS)
        threads = {thread for thread in self.threads - before.threads if not thread.name.startswith(("Trio thread", WATCHMAN))}
        return [
            *(str(task) for task in below if task not in (*zygotes, *wardens, *servers)),
            *(f"orphaned {task}" for task in _new_tasks(self.strays, before.strays)),
            *(f"thread {thread.name}" for thread in threads),
            *(f"descriptor {descriptor}" for descriptor in descriptors),
            *(f"mount {mount}" for mount in self.mounts - before.mounts),
            *(f"folder {folder}" for folder in self.folders - before.folders),
        ]


def _new_tasks(now: frozenset[Task], before: frozenset[Task]) -> list[Task]:
    known = {(task.pid, task.started) for task in before}
    return sorted((task for task in now if (task.pid, task.started) not in known), key=lambda task: task.pid)


def _without_ends(descriptors: list[str], most: int) -> list[str]:
    kinds = ("socket:", "anon_inode:[pidfd]")
    ends = [descriptor for descriptor in descriptors if descriptor.partition(" ")[2].startswith(kinds)]
    return [descriptor for descriptor in descriptors if descriptor not in ends[:most]]


def _tasks() -> dict[int, Task]:
    tasks = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            content = Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:  # it ended while it was looked at
            continue
        name, _, rest = content.partition("(")[2].rpartition(")")
        fields = rest.split()
        tasks[int(entry)] = Task(int(entry), int(fields[1]), name, fields[0], int(fields[19]))
    return tasks


def _below(tasks: dict[int, Task], root: int) -> frozenset[Task]:
    children: dict[int, list[Task]] = {}
    for task in tasks.values():
        children.setdefault(task.parent, []).append(task)
    found: set[Task] = set()
    waiting = [root]
    while waiting:
        for task in children.get(waiting.pop(), ()):
            found.add(task)
            waiting.append(task.pid)
    return frozenset(found)


def _descriptors() -> Iterator[str]:
    with os.scandir("/proc/self/fd") as entries:
        for entry in entries:
            try:
                target = os.readlink(entry.path)
            except OSError:
                continue
            if not target.startswith(f"/proc/{os.getpid()}/fd"):  # the one that this loop reads from
                yield f"{entry.name} {target}"


def _folders() -> Iterator[str]:
    """Temporary folders and control groups that carry our name; of groups those of the dead, and of this process those in use."""
    yield from map(str, Path(tempfile.gettempdir()).glob("ringfence-*"))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        group = Path("/sys/fs/cgroup", controllers, path.lstrip("/"))
        for found in group.glob("ringfence-*"):
            try:
                owner, started = (int(part) for part in found.name.split("-")[2:4])
                used = any(listed.read_text() for listed in found.rglob("cgroup.procs"))
            except (OSError, ValueError):  # it was removed while it was looked at, or is a probe's
                continue
            if used if owner == os.getpid() else not _lives(owner, started):
                yield str(found)


def _lives(pid: int, started: int) -> bool:
    try:
        return int(Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()[19]) == started
    except OSError:
        return False


def look() -> Seen:
    tasks = _tasks()
    below = _below(tasks, os.getpid())
    # A box whose caller and zygote are both gone belongs to the host's first process; no other run's box does. Once it has ended,
    # when it is reaped is that process's business, and takes some seconds.
    strays = {task for task in tasks.values() if task.name == ZYGOTE_NAME and task.parent == 1 and task.state not in "ZX"}
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return Seen(
        below,
        frozenset(strays - below),
        frozenset(threading.enumerate()),
        frozenset(_descriptors()),
        frozenset(mounts),
        frozenset(_folders()),
    )


def wait_until_gone(before: Seen, deadline_seconds: float) -> list[str]:
    """What is new since `before` and still there at the deadline."""
    end = time.monotonic() + deadline_seconds
    while left := look().new_since(before):
        if time.monotonic() > end:
            break
        gc.collect()  # what only a cycle still holds is not left behind
        time.sleep(0.01)
    return left


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """The check itself; it applies to every test and has no way to be turned off."""
    before = look()
    yield
    if left := wait_until_gone(before, DEADLINE_SECONDS):
        pytest.fail("left behind by the test: " + "; ".join(left), pytrace=False)
