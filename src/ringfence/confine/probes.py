"""What this host can do, found by doing it: each probe is a fork that tries one thing and exits. Nothing is left.

Not by a kernel's version, nor by a distribution's name: a container, a filter or a setting may have taken away what they promise.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ringfence.confine import ids as box_ids
from ringfence.confine.host import MOUNT_PROC, NO_PROC, Capability, Failure, State, installing, judged
from ringfence.confine.plan import Ids
from ringfence.confine.seccomp import build_filter
from ringfence.guest import kernel

PROBE_SECONDS = 10.0
"""After this a probe counts as refused and its fork is ended: a host under load takes long, not for ever."""
STAGE = b"/tmp"
"""Where the root of a box is mounted first (guest/view.py)."""
DESCRIPTORS = 256
"""How many a process that makes a box must be able to open: the mounts of a root caller's, and what serves the runs."""
TASKS = 4
BOX = ("namespaces",)
EVERY = ("namespaces", "process")

NAMESPACES = (
    ("user namespaces", "user", 0),
    ("mount namespaces", "mnt", kernel.CLONE_NEWNS),
    ("process namespaces", "pid", kernel.CLONE_NEWPID),
    ("network namespaces", "net", kernel.CLONE_NEWNET),
    ("IPC namespaces", "ipc", kernel.CLONE_NEWIPC),
    ("host name namespaces", "uts", kernel.CLONE_NEWUTS),
    ("cgroup namespaces", "cgroup", kernel.CLONE_NEWCGROUP),
)

# linux/landlock.h; the numbers of these calls are the same everywhere (asm-generic/unistd.h).
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, LANDLOCK_ACCESS_FS_READ_DIR = 444, 446, 1 << 3


def capabilities() -> Iterator[Capability]:
    """Each thing that a tier or a cap needs, tried."""
    yield _proc()
    yield judged("descriptors", in_fork(_open_many), EVERY)
    yield judged("pidfd", in_fork(_pidfd), EVERY)
    yield judged("timers", in_fork(lambda: os.close(kernel.timer_descriptor())), EVERY)
    yield judged("close_range", in_fork(lambda: kernel.close_from(1000)), EVERY)
    for name, kind, flag in NAMESPACES:
        yield judged(name, in_namespaces(flag, _nothing), BOX, kind=kind)
    yield judged("mounts by descriptor", in_namespaces(kernel.CLONE_NEWNS, _mount_tree), BOX, kind="mnt")
    yield _own_proc()
    yield judged("a /dev/pts of its own", in_namespaces(kernel.CLONE_NEWNS, _devpts), BOX, kind="mnt")
    yield judged("seccomp filter", in_fork(_filter), BOX)
    if _is_root():
        yield _idmapped()
    yield judged("seccomp listener", in_fork(_listener), ("refusals that are observed",))
    yield judged("Landlock", in_fork(_landlock), ("landlock",))
    yield judged("RLIMIT_NPROC in a user namespace", in_namespaces(0, _bounded_tasks), ("max_processes",), kind="user")
    yield _python()
    yield _program("git", ("work in repositories",))


def _is_root() -> bool:
    """Whether this caller's boxes have ids of their own. Without /proc no maps can be written, whoever it is."""
    return os.path.exists("/proc/self/uid_map") and box_ids.has_blocks()


# Forks


def in_fork(act: Callable[[], object]) -> Failure | None:
    """Do act in a fork of this process that then exits; how it failed, or None."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _report(theirs, act)
    os.close(theirs)
    try:
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        until = time.monotonic() + PROBE_SECONDS
        said = os.read(ours, 1000) if poll.poll(PROBE_SECONDS * 1000) else b""
        late = not said and time.monotonic() >= until
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has said all that it had to say, or never will
        os.waitpid(pid, 0)
    number, _, call = said.decode("utf-8", "replace").partition(" ")
    if not number.isdecimal():
        return Failure(errno.ETIMEDOUT if late else errno.EPERM, "the probe, which gave no answer")
    return Failure(int(number), call) if int(number) else None


def _report(descriptor: int, act: Callable[[], object]) -> None:
    """Never returns: says on descriptor how act went."""
    try:
        act()
        said = b"0 "
    except OSError as error:
        said = b"%d %s" % (error.errno or errno.EPERM, _call(error).encode("utf-8", "replace"))
    except BaseException as error:
        said = b"%d %s" % (errno.EPERM, repr(error).encode("utf-8", "replace"))
    try:
        os.write(descriptor, said[:1000])
    finally:
        os._exit(0)


def _call(error: OSError) -> str:
    """The call that failed: kernel.py begins its messages with it; else the file is named."""
    head, colon, _ = str(error.strerror or "").partition(": ")
    return head if colon else os.fsdecode(error.filename) if error.filename else str(error.strerror)


def in_namespaces(flags: int, act: Callable[[], object]) -> Failure | None:
    """Do act in namespaces of its own, with the ids of a box, made by the call that makes a box."""
    return in_fork(lambda: _cloned(flags | kernel.CLONE_NEWUSER, act))


def _cloned(flags: int, act: Callable[[], object]) -> None:
    ids = box_ids.of_block(box_ids.FIRST_BLOCK, (0, 0)) if _is_root() else box_ids.own(os.getuid(), os.getgid())
    ours, theirs = os.pipe()
    with _held_clone(flags, lambda: _report(theirs, lambda: _as_box(ids, act))) as pid:
        os.close(theirs)
        _write_maps(pid, ids)
    number, _, call = os.read(ours, 1000).decode("utf-8", "replace").partition(" ")
    if number != "0":
        raise OSError(int(number or errno.EPERM), f"{call}: refused")


@contextmanager
def _held_clone(flags: int, act: Callable[[], object]) -> Iterator[int]:
    """A clone that does act at the end of the block, and exits; nothing where the block fails. It has ended after the block."""
    go, given = os.pipe()
    pid = kernel.clone(flags)
    if pid == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(given)
        if os.read(go, 1):
            act()
        os._exit(0)
    try:
        yield pid
        os.write(given, b"g")
    finally:
        os.close(given)
        os.waitpid(pid, 0)


def _as_box(ids: Ids, act: Callable[[], object]) -> None:
    if not ids.deny_setgroups:
        os.setgroups([])
    os.setresgid(ids.gid, ids.gid, ids.gid)
    os.setresuid(ids.uid, ids.uid, ids.uid)
    act()


def _write_maps(pid: int, ids: Ids) -> None:
    denied = (("setgroups", "deny"),) if ids.deny_setgroups else ()
    for name, content in (*denied, ("uid_map", ids.uid_map), ("gid_map", ids.gid_map)):
        with open(f"/proc/{pid}/{name}", "wb", 0) as file:
            file.write(content.encode())


# What is tried


def count_processes() -> None:
    """Raise OSError unless RLIMIT_NPROC allows exactly one process more here, whatever else its user runs elsewhere."""
    resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
    started = []
    try:
        for _ in range(2):
            started.append(_sleeping())
    except BlockingIOError:
        pass
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if len(started) != 1:
        raise OSError(errno.EAGAIN, "fork: it counts others too" if not started else "fork: it counts nothing")


def _sleeping() -> int:
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    return pid


def _nothing() -> None:
    return None


def _open_many() -> None:
    try:
        for _ in range(DESCRIPTORS):
            os.open("/", os.O_RDONLY)
    except OSError as error:
        raise OSError(error.errno, f"open: {error.strerror}") from None


def _pidfd() -> None:
    descriptor = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(descriptor, 0)


def _mount_tree() -> None:
    """As a view is made: a tree of the host, cloned by descriptor, made read-only, attached in a new file system."""
    tree = kernel.clone_tree(kernel.open_path(b"/usr", follow=False), recursive=True)
    kernel.set_mount_attributes(tree, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID, recursive=True)
    kernel.mount(b"ringfence", STAGE, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, b"mode=755,size=1m")
    os.mkdir(STAGE + b"/usr")
    kernel.attach(tree, STAGE + b"/usr")


def _mount_proc() -> None:
    kernel.mount(b"proc", STAGE, b"proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def _devpts() -> None:
    kernel.mount(b"devpts", STAGE, b"devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")


def _filter() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.install_filter(build_filter())


def _listener() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.install_filter(build_filter(), flags=kernel.SECCOMP_FILTER_FLAG_NEW_LISTENER)


def _landlock() -> None:
    handled = ctypes.c_uint64(LANDLOCK_ACCESS_FS_READ_DIR)
    ruleset = kernel.call("landlock", LANDLOCK_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call("landlock", LANDLOCK_RESTRICT_SELF, ruleset, 0)
    try:
        os.listdir("/")
    except PermissionError:
        return
    raise OSError(errno.EINVAL, "landlock: a folder that no rule opens was listed")


def _idmap() -> None:
    """An idmapped mount of the current folder's file system, as a root caller's workspace is one."""
    with _held_clone(kernel.CLONE_NEWUSER, _nothing) as pid:
        _write_maps(pid, box_ids.of_block(box_ids.FIRST_BLOCK, (0, 0)))
        namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        tree = kernel.clone_tree(kernel.open_path(os.fsencode(os.getcwd()), follow=False), recursive=False)
        kernel.set_mount_attributes(tree, kernel.MOUNT_ATTR_IDMAP, recursive=False, userns=namespace)


def _bounded_tasks() -> None:
    """A limit that is set in a user namespace bounds that namespace, whatever else the same login runs."""
    resource.setrlimit(resource.RLIMIT_NPROC, (TASKS, TASKS))
    made: list[int] = []
    refused = False
    wait, end = os.pipe()
    while not refused and len(made) <= TASKS:
        try:
            pid = os.fork()
        except BlockingIOError:
            refused = True
            continue
        if pid == 0:
            os.close(end)
            os.read(wait, 1)
            os._exit(0)
        made.append(pid)
    os.close(end)
    for pid in made:
        os.waitpid(pid, 0)
    if not refused or not made:
        raise OSError(errno.ENOSYS, "RLIMIT_NPROC by user namespace: refused")


# What needs a word of its own


def _proc() -> Capability:
    if os.path.exists("/proc/self/status"):
        return Capability("/proc", State.DELIVERED, needed_by=EVERY)
    return Capability("/proc", State.ABSENT, NO_PROC, MOUNT_PROC, EVERY)


def _own_proc() -> Capability:
    """Refused where the /proc of this mount namespace is not whole: a second one would show what is hidden there."""
    name = "a /proc of its own"
    failure = in_namespaces(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID, _mount_proc)
    if failure is None or failure.errno != errno.EPERM or not failure.call.startswith("mount"):
        return judged(name, failure, BOX, kind="pid")
    cause = "the /proc here is missing or partly hidden, as in a container"
    return Capability(name, State.FORBIDDEN, cause, "docker run --security-opt systempaths=unconfined", BOX)


def _idmapped() -> Capability:
    """Of the current folder, which is the workspace where none is named."""
    name, failure = "idmapped mounts", in_fork(_idmap)
    if failure is None or failure.errno not in (errno.EINVAL, errno.EPERM) or not failure.call.startswith("mount_setattr"):
        return judged(name, failure, BOX)
    cause = f"the file system of {os.getcwd()} cannot be idmapped: a workspace there is refused"
    step = "use a workspace on ext4, xfs, btrfs or tmpfs, or run as its owner"
    return Capability(name, State.ABSENT, cause, step, ("a workspace here",))


def _python() -> Capability:
    """An interpreter that an ordinary user can run: a root caller's box is one."""
    name, tried = "Python for an ordinary user", []
    for path in dict.fromkeys((sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")):
        if path and _runs(path, "-I", "-S", "-c", "pass"):
            return Capability(name, State.DELIVERED, needed_by=("programs",))
        tried.append(path)
    cause = f"none of {', '.join(tried)} can be run by one"
    return Capability(name, State.ABSENT, cause, installing("python3"), ("programs",))


def _program(name: str, needed_by: tuple[str, ...]) -> Capability:
    """A program of the caller's PATH. It is not started here: a folder of PATH may be one that boxes write."""
    from shutil import which

    path = which(name)
    if path is None:
        return Capability(name, State.ABSENT, "no folder of PATH has it", installing(name), needed_by)
    if not _as_ordinary(lambda: os._exit(not os.access(path, os.X_OK))):
        return Capability(name, State.FORBIDDEN, f"{path} cannot be run by an ordinary user", f"chmod a+rx {path}", needed_by)
    return Capability(name, State.DELIVERED, needed_by=needed_by)


def _runs(*argv: str) -> bool:
    """Whether a program ends with status 0 for an ordinary user."""
    return _as_ordinary(lambda: os.execve(argv[0], argv, {"PATH": os.defpath}))


def _as_ordinary(act: Callable[[], object]) -> bool:
    """Whether a fork that does this ends with status 0 as an ordinary user: the caller, or for a root caller the id of a box."""
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            if _is_root():
                os.setgroups([])
                os.setresgid(*[box_ids.FIRST_BLOCK * box_ids.BLOCK] * 3)
                os.setresuid(*[box_ids.FIRST_BLOCK * box_ids.BLOCK] * 3)
            os.chdir("/")
            act()
        finally:
            os._exit(127)
    until = time.monotonic() + PROBE_SECONDS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
