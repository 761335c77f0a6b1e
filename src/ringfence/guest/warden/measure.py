"""How much memory processes hold: numbers from the host's /proc, each with what it leaves out."""

import os
import time

from ringfence.guest.warden import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

PAGE = os.sysconf("SC_PAGE_SIZE")
MEMFD = "/memfd:"
MEMINFO = (b"Shmem:", b"SwapTotal:", b"SwapFree:")


def resident(pid: int) -> int:
    """Bytes that a process has mapped and present, shared or not (proc_pid_statm(5)): quick, and never less than its share."""
    fields = tree.read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0


def private(pid: int) -> int:
    """Bytes that a process has present and that are of no file and no shared object, divided by nobody."""
    fields = tree.read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE if len(fields) > 2 else 0


def share(pid: int, guest: int) -> "tuple[int, int]":
    """What of a process's memory cannot be dropped, each page divided by those who map it: its own, and of shared objects.

    Bytes, from smaps_rollup (Documentation/filesystems/proc.rst). A kernel before 5.4 tells one sum alone, which is
    taken for its own. Where nobody may look it is mostly a fork of the guest: then what it has beyond the guest.
    """
    parts: dict[bytes, int] = {}
    try:
        content = tree.read_or_raise(f"/proc/{pid}/smaps_rollup")
    except PermissionError:
        return max(0, private(pid) - private(guest)), 0
    except OSError:
        return 0, 0  # it has ended
    for line in content.splitlines()[1:]:
        name, _, value = line.partition(b":")
        parts[name] = int(value.split()[0]) << 10
    if b"Pss_Anon" not in parts:
        return parts.get(b"Pss", 0), 0
    return parts[b"Pss_Anon"] + parts.get(b"SwapPss", 0), parts[b"Pss_Shmem"]


def counted(pid: int, files: "Container[tuple[int, int]]", device: int) -> int:
    """Bytes of a process's share that are of files which are counted whole: these, by device and inode, or all of a device."""
    found = 0
    inside = False
    for line in tree.read_all(f"/proc/{pid}/smaps").splitlines():
        name, _, value = line.partition(b":")
        if b"-" in name:  # a mapping: addresses, modes, offset, device, inode, path (proc_pid_maps(5))
            fields = line.split(None, 5)
            major, _, minor = fields[3].partition(b":")
            number = os.makedev(int(major, 16), int(minor, 16))
            inside = number == device or (number, int(fields[4])) in files
        elif inside and name == b"Pss":
            found += int(value.split()[0]) << 10
    return found


def files_in_memory(pid: int) -> "dict[tuple[int, int], int]":
    """The memory files (memfd_create(2)) that a process has open, mapped or not: bytes by device and inode."""
    found: dict[tuple[int, int], int] = {}
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return found
    for each in descriptors:
        try:
            # The link first: asking a file of a network for its size could take for ever.
            if os.readlink(f"{folder}/{each}").startswith(MEMFD):
                status = os.stat(f"{folder}/{each}")
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return found


_host = (0.0, 0, 0)
FRESH = 0.005
"""Seconds for which a number of the host is taken to stand: boxes that are looked at together share it."""


def of_host() -> "tuple[int, int]":
    """Bytes of all shared memory and memory files of the host, and of all that it has swapped out (proc_meminfo(5)).

    No box can have taken more than the first grew by, or have more on swap than the second.
    """
    global _host
    now = time.monotonic()
    if now - _host[0] > FRESH:
        fields = tree.read("/proc/meminfo").split()
        found = {name: int(fields[at + 1]) << 10 for at, name in enumerate(fields) if name in MEMINFO}
        _host = (now, found.get(b"Shmem:", 0), found.get(b"SwapTotal:", 0) - found.get(b"SwapFree:", 0))
    return _host[1], _host[2]


def used_of(folder: int) -> int:
    """Bytes that the files of a file system take, which folder is a descriptor of."""
    found = os.fstatvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
