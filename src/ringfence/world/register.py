"""What live boxes of this user on this host were guaranteed: a folder with a file for each, locked for as long as the box lives.

The kernel drops a lock with the last process that has it, however that ends; a file that nobody has locked is of a box that is
gone, and whoever looks removes it. A look and what follows from it happen under a lock of the folder itself.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ringfence.errors import HostError

ROOTS = "/run/ringfence/shares"
"""Where a root caller's register is."""
USERS = "/dev/shm/ringfence-{}"  # one for all sessions of a user, whatever their environments; gone with a reboot
MOST_BYTES = 65536
TRIES = 1000

_numbers = itertools.count(1)
_live: set[int] = set()


class Holder(NamedTuple):
    """A box that was guaranteed something: the process that opened it, and of which bounds it takes its share."""

    pid: int
    command: str
    cores: float
    memory: int
    bounds: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) {amount(self.cores, self.memory)}"


class Short(NamedTuple):
    """What does not fit: the name of the bound, what it has, and who holds a share of it."""

    bound: str
    has: str
    holders: tuple[Holder, ...]


Bounds = Sequence[tuple[str, float | None, int | None]]
"""Name, cores and bytes of memory of each thing that has so much and no more."""


def amount(cores: float | None, memory: int | None) -> str:
    """Cores and memory in words, those that there are."""
    said = [f"{cores:g} {'core' if cores == 1 else 'cores'}"] if cores else []
    said += [f"{memory / 2**30:.3g} GiB"] if memory else []
    return " and ".join(said) or "nothing"


def place() -> str:
    """The folder of this user's register."""
    return ROOTS if os.geteuid() == 0 else USERS.format(os.geteuid())


class Share:
    """What one box is guaranteed, entered in the register until release()."""

    def __init__(self, folder: int, cores: float, memory: int, bounds: Bounds) -> None:
        self._process = os.getpid()
        self._name = f"{self._process}-{next(_numbers)}-{os.urandom(4).hex()}"  # another namespace has the same numbers
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._name, flags, 0o600, dir_fd=folder)
        _live.add(self._file)
        try:
            self._enter(cores, memory, bounds)
        except BaseException:
            self.release()
            raise

    def _enter(self, cores: float, memory: int, bounds: Bounds) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        holder = Holder(self._process, _command(), cores, memory, tuple(name for name, *_ in bounds))
        os.write(self._file, json.dumps(holder).encode() + b"\n")

    def is_of(self, pid: int) -> None:
        """Name the first process of the box, once there is one: when it is gone, nothing is held any more."""
        if started := _started(pid):
            try:
                os.write(self._file, f"{pid} {started} {_namespace()}\n".encode())
            except OSError:
                pass  # the disk is full: then it is held until it is released

    def release(self) -> None:
        """Give it back; safe to call again. A fork of the caller gives nothing back."""
        if self._file in _live and self._process == os.getpid():
            _live.discard(self._file)
            path = place()
            try:
                os.unlink(f"{path}/{self._name}")
            except FileNotFoundError:
                pass
            os.close(self._file)
            _remove_if_empty(path)
        self._file = -1


def _remove_if_empty(path: str) -> None:
    try:
        folder = locked()
    except HostError:
        return
    if folder is not None:
        try:
            if not os.listdir(folder):
                os.rmdir(path)
        finally:
            os.close(folder)


def take(cores: float, memory: int, bounds: Bounds) -> Share | Short | None:
    """A share, or what it does not fit into, or None where another process looks at the register this very moment."""
    folder = locked()
    if folder is None:
        return None
    try:
        present = _holders(folder)
        for name, most_cores, most_memory in bounds:
            sharing = tuple(each for each in present if name in each.bounds)
            free_cores = (most_cores or 0) - sum(each.cores for each in sharing)
            free_memory = (most_memory or 0) - sum(each.memory for each in sharing)
            # Fractions of cores are sums of floats: a billionth of one is none.
            if (most_cores is not None and cores - free_cores > 1e-9) or (most_memory is not None and memory > free_memory):
                return Short(name, amount(most_cores, most_memory), sharing)
        return Share(folder, cores, memory, bounds)
    except OSError as error:
        raise _unusable(error.strerror or str(error), error.errno or 0) from None
    except ValueError:
        raise _unusable("a file in it is none of a box") from None
    finally:
        os.close(folder)


def locked() -> int | None:
    """The folder, made where it is not there, with its lock; None where that is not to be had this moment."""
    folder = opened()
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(folder), os.lstat(place())):
            return folder
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(folder)  # it has another lock, or was removed when the last box left it
    return None


def opened() -> int:
    """The folder, made where it is not there: a descriptor. Raises HostError where it is not this user's alone."""
    path = place()
    try:
        folder = _made(path)
    except OSError as error:
        raise _unusable(error.strerror or str(error), error.errno or 0) from None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(folder)
        raise _unusable("it belongs to another user, or is open to one")
    return folder


def _made(path: str) -> int:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    for _ in range(TRIES):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # the last box that had a share was just closed, and took the folder away
    raise FileNotFoundError(errno.ENOENT, "it is removed again and again")


def _unusable(why: str, number: int = 0) -> HostError:
    hint = "Remove what is there, or guarantee nothing: limits alone need no register."
    return HostError(f"the register of guaranteed shares at {place()} cannot be used: {why}.", hint=hint, errno=number)


def _holders(folder: int) -> list[Holder]:
    """Those of live boxes; the files of others are removed."""
    found = []
    for name in os.listdir(folder):
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
        except BlockingIOError:
            said, _, box = os.read(file, MOST_BYTES).decode().partition("\n")
            if box.endswith("\n") and _is_gone(*box.split()):
                os.unlink(name, dir_fd=folder)  # its caller has not closed it yet
                continue
            pid, command, cores, memory, bounds = json.loads(said)
            found.append(Holder(pid, command, cores, memory, tuple(bounds)))
        except FileNotFoundError:
            pass
        finally:
            os.close(file)
    return found


def _started(pid: int | str) -> str:
    """When a process began, in ticks since the boot (proc_pid_stat(5), starttime); empty where it is not there or is not reaped."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[18] if state not in "ZX" else ""


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _is_gone(pid: str, started: str, namespace: str) -> bool:
    """Whether a box has ended. One of another process namespace cannot be looked at from here."""
    return namespace == _namespace() and _started(pid) != started


def _command() -> str:
    try:
        with open("/proc/self/comm") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def _forget() -> None:
    # In a fork of the caller: its copies would hold the shares after the caller's death.
    while _live:
        os.close(_live.pop())


os.register_at_fork(after_in_child=_forget)
