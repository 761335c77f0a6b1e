"""System calls that Python does not offer, through ctypes. Constants are from the Linux uapi headers named beside them.

Every function raises OSError with the kernel's errno and the name of the call. The numbers of calls added since 5.1 are
the same on every architecture (include/uapi/asm-generic/unistd.h); the few older ones come from a table.
"""

import ctypes
import os
import sys

_libc = ctypes.CDLL(None, use_errno=True)
_raw = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL: the child of a raw clone has only the calling thread
_libc.syscall.restype = ctypes.c_long
_raw.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4

_OLDER = {"x86_64": (56, 155, 317), "aarch64": (220, 41, 277)}  # clone, pivot_root, seccomp
OPEN_TREE, MOVE_MOUNT, CLOSE_RANGE, OPENAT2, MOUNT_SETATTR = 428, 429, 436, 437, 442

# linux/sched.h
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
SIGCHLD = 17

# linux/mount.h
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 0x1, 0x2, 0x4
MOUNT_ATTR_IDMAP = 0x100000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_PRIVATE = 0x20, 0x1000, 1 << 18
MNT_DETACH = 2
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 0x1, 0x80000
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x4, 0x40

# linux/fcntl.h, linux/openat2.h
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x100, 0x1000, 0x8000
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
O_PATH = 0x200000
STATX_BTIME = 0x800  # linux/stat.h; stx_mask at 0, stx_btime at 80

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_CAPBSET_DROP = 1, 4, 15, 24
LAST_OLD_CAPABILITY = 37  # CAP_AUDIT_READ, linux/capability.h: every kernel with these namespaces knows it
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
# linux/seccomp.h
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1, 1 << 3, 1 << 5
SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF = b"\x05\x00", b"\xc0\x7f"  # the high halves of 0x00050000 and 0x7fc00000
BPF_RETURN = 0x06  # BPF_RET | BPF_K, linux/bpf_common.h
SFD_NONBLOCK, SFD_CLOEXEC = 0x800, 0x80000  # sys/signalfd.h
IN_MODIFY = 0x2  # sys/inotify.h
TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME, CLOCK_MONOTONIC = 0x800, 0x80000, 1, 1  # sys/timerfd.h


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


class _OpenHow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


class _TimerSpec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _check(result: int, call: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
    return result


def _older(index: int) -> int:
    machine = os.uname().machine
    if machine not in _OLDER:
        raise OSError(38, f"no system call table for {machine}")  # ENOSYS
    return _OLDER[machine][index]


def _syscall(call: str, number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), call)


def call(name: str, number: int, *arguments: object) -> int:
    """Any call by its number, for what is only tried: name is how its error begins."""
    return _syscall(name, number, *arguments)


def clone(flags: int) -> int:
    """Fork with clone(2) into new namespaces; 0 in the child. Runs none of Python's fork hooks: for a process of one thread."""
    zero = ctypes.c_long(0)
    return _check(_raw.syscall(ctypes.c_long(_older(0)), ctypes.c_ulong(flags | SIGCHLD), zero, zero, zero, zero), "clone")


def prctl(option: int, argument: int = 0, second: int = 0) -> int:
    return _check(_libc.prctl(option, argument, second, 0, 0), f"prctl {option}")


def open_path(path: bytes, *, follow: bool, flags: int = O_PATH) -> int:
    """A descriptor of path; without follow no component may be a symbolic link, magic links never are followed.

    With O_PATH | O_NOFOLLOW the last component may be a link, and the descriptor is of the link itself (openat2(2)).
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS | (0 if follow else RESOLVE_NO_SYMLINKS))
    return _syscall("openat2", OPENAT2, AT_FDCWD, path, ctypes.byref(how), ctypes.sizeof(how))


def open_beneath(folder: int, path: bytes, flags: int) -> int:
    """A descriptor of path, which is relative to folder, follows no link at all and does not leave it."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
    return _syscall("openat2", OPENAT2, folder, path, ctypes.byref(how), ctypes.sizeof(how))


def clone_tree(descriptor: int, *, recursive: bool) -> int:
    """A detached copy of the mount that descriptor lies in, rooted there (open_tree)."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    return _syscall("open_tree", OPEN_TREE, descriptor, b"", flags)


def set_mount_attributes(descriptor: int, attributes: int, *, recursive: bool, userns: int = 0) -> None:
    """Set mount attributes and make the tree private, so that no later mount of the host appears in it."""
    wanted = _MountAttr(attributes, 0, MS_PRIVATE, userns)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _syscall("mount_setattr", MOUNT_SETATTR, descriptor, b"", flags, ctypes.byref(wanted), ctypes.sizeof(wanted))


def set_attributes_at(path: bytes, attributes: int) -> None:
    """Set the attributes of the mount at path, which no link may be."""
    wanted = _MountAttr(attributes, 0, 0, 0)
    flags = AT_SYMLINK_NOFOLLOW
    _syscall("mount_setattr", MOUNT_SETATTR, AT_FDCWD, path, flags, ctypes.byref(wanted), ctypes.sizeof(wanted))


def attach(tree: int, target: bytes) -> None:
    """Attach a detached tree at target; a link at the end of target is not followed."""
    _syscall("move_mount", MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)


def attach_to(tree: int, target: int) -> None:
    """Attach a detached tree on the file or folder that target is a descriptor of, whatever its name is by now."""
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    _syscall("move_mount", MOVE_MOUNT, tree, b"", target, b"", flags)


def join_namespace(descriptor: int, kind: int) -> None:
    """Move this process into a namespace of a kind, CLONE_NEW* (setns(2))."""
    _check(_libc.setns(descriptor, kind), "setns")


def unshare(kinds: int) -> None:
    """Leave namespaces, CLONE_NEW*, for new ones (unshare(2))."""
    _check(_libc.unshare(kinds), "unshare")


def mount(source: bytes, target: bytes, kind: bytes, flags: int, data: bytes = b"") -> None:
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), data), f"mount {kind.decode()}")


def unmount(target: bytes) -> None:
    _check(_libc.umount2(target, MNT_DETACH), "umount2")


def pivot_root(new: bytes, old: bytes) -> None:
    _syscall("pivot_root", _older(1), new, old)


def set_hostname(name: bytes) -> None:
    _check(_libc.sethostname(name, ctypes.c_size_t(len(name))), "sethostname")


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set included."""
    capability = 0
    while _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1  # up to EINVAL: past the last capability that this kernel knows
    if capability < LAST_OLD_CAPABILITY:
        raise OSError(ctypes.get_errno(), f"the bounding set could not be emptied at capability {capability}")
    clear_capabilities()


def clear_capabilities() -> None:
    """Empty the sets of this thread, which needs no right, and leave the bounding set."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # EINVAL: a kernel without them has none to clear
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, linux/capability.h
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def install_filter(program: bytes, flags: int = 0) -> int:
    """Install a seccomp filter, the packed struct sock_filter[] of program, on this thread; what the kernel returns for flags."""
    wanted = _FilterProgram(len(program) // 8, program)
    return _syscall("seccomp", _older(2), SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(wanted))


def install_observed(program: bytes) -> int:
    """Install a filter with a listener that is told of what it refuses, and return that; -1 where the kernel alone refuses it.

    Where the kernel offers it, a call that was told can only be killed: a signal would have it made, and told, once more.
    """
    for further in (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0):
        try:
            return install_filter(program, SECCOMP_FILTER_FLAG_NEW_LISTENER | further)
        except OSError:
            pass  # older, or there is a listener already, as in a box in another
    install_filter(by_the_kernel(program))
    return -1


def by_the_kernel(program: bytes) -> bytes:
    """The same filter for where nobody listens: what it would tell is refused at once, by the errno that each return carries."""
    made = bytearray(program)
    for at in range(0, len(made), 8):  # struct sock_filter: code, two jumps, and a constant, little-endian on both machines
        if made[at] == BPF_RETURN and made[at + 6 : at + 8] == SECCOMP_RET_USER_NOTIF:
            made[at + 6 : at + 8] = SECCOMP_RET_ERRNO
    return bytes(made)


def birth(folder: int, name: bytes) -> int:
    """When an entry of a folder was made, in nanoseconds since the epoch (statx(2)); 0 where its file system does not know."""
    found = ctypes.create_string_buffer(256)
    if (
        _libc.statx(folder, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, found)
        or not int.from_bytes(found.raw[:4], sys.byteorder) & STATX_BTIME
    ):
        return 0
    seconds, rest = found.raw[80:88], found.raw[88:92]
    return int.from_bytes(seconds, sys.byteorder, signed=True) * 1_000_000_000 + int.from_bytes(rest, sys.byteorder)


def give_back_memory() -> None:
    """Return to the kernel what was allocated and freed (malloc_trim(3), which only glibc has)."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def close_from(first: int) -> None:
    """Close every descriptor from first on."""
    _syscall("close_range", CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0))


def signal_descriptor(signal: int) -> int:
    """A signalfd for one signal, which the caller has blocked."""
    mask = (ctypes.c_uint64 * 16)(1 << (signal - 1))
    return _check(_libc.signalfd(-1, mask, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd")


def timer_descriptor() -> int:
    return _check(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create")


def arm(timer: int, at_ns: int) -> None:
    """Let timer fire at at_ns of CLOCK_MONOTONIC (nanoseconds); 0 disarms it."""
    wanted = _TimerSpec(0, 0, *divmod(at_ns, 1_000_000_000))
    _check(_libc.timerfd_settime(timer, TFD_TIMER_ABSTIME, ctypes.byref(wanted), None), "timerfd_settime")


def change_descriptor(path: bytes) -> int:
    """A descriptor that can be read when the file at path is changed (inotify(7))."""
    descriptor = _check(_libc.inotify_init1(SFD_NONBLOCK | SFD_CLOEXEC), "inotify_init1")  # the same bits, sys/inotify.h
    _check(_libc.inotify_add_watch(descriptor, path, IN_MODIFY), "inotify_add_watch")
    return descriptor


def hide_command_line(name: bytes) -> None:
    """Blank the bytes that /proc/PID/cmdline shows, which name host paths, and set the thread's name."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: proc_pid_stat(5) fields 48 and 49
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, name, min(len(name), end - start - 1))
    buffer = ctypes.create_string_buffer(name[:15])
    _check(_libc.prctl(PR_SET_NAME, ctypes.addressof(buffer), 0, 0, 0), "prctl name")
