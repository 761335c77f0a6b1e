"""Acts on the real kernel, with a filter or none; test_seccomp_kernel.py starts it as text in a process of its own.

It has namespaces of its own in which it is root, so that whatever fails does not fail for want of a capability. Each
act is raw system calls by number in a fork of process 1, with no_new_privs and the filter. Answers are
[result, errno].
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable

libc = ctypes.PyDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
HIGH = 0x5_0000_0000  # bits that the kernel drops from a 32-bit argument
CLONE_NEW = {"NS": 0x00020000, "UTS": 0x04000000, "IPC": 0x08000000, "USER": 0x10000000, "PID": 0x20000000}
CLONE_NEWNET, SIGCHLD, AT_FDCWD = 0x40000000, 17, -100
O_TMPFILE = os.O_TMPFILE | os.O_RDWR
Answer = list[int]

question = json.load(sys.stdin)
NUMBERS: dict[str, int] = question["numbers"]


class SockFprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def raw(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> Answer:
    ctypes.set_errno(0)
    words = [ctypes.c_ulong(word & (1 << 64) - 1) if isinstance(word, int) else word for word in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return [result, ctypes.get_errno() if result == -1 else 0]


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> Answer:
    return raw(NUMBERS[name], *arguments)


def install(program: bytes, flags: int = 0) -> Answer:
    wanted = SockFprog(len(program) // 8, program)
    return raw(NUMBERS["seccomp"], 1, flags, ctypes.addressof(wanted))


def clone_new_uts() -> Answer:
    answer = call("clone", CLONE_NEW["UTS"] | SIGCHLD, 0, 0, 0, 0)
    if answer[0] == 0:
        os._exit(0)
    return answer


def file_named(name: str) -> int:
    return os.open(name, os.O_CREAT | os.O_RDWR, 0o644)


def terminal() -> int:
    """A terminal that is the caller's own, so that the kernel lets it type into it."""
    os.setsid()
    _, slave = os.openpty()
    assert libc.ioctl(slave, 0x540E, 0) == 0  # TIOCSCTTY
    return slave


def set_id_acts(bits: int) -> dict[str, Callable[[], Answer]]:
    create, regular = os.O_CREAT | os.O_RDWR, 0o100000 | bits
    acts: dict[str, Callable[[], Answer]] = {
        "fchmod": lambda: call("fchmod", file_named("a"), bits),
        "fchmodat": lambda: (file_named("b"), call("fchmodat", AT_FDCWD, b"b", bits))[1],
        "fchmodat2": lambda: (file_named("k"), call("fchmodat2", AT_FDCWD, b"k", bits, 0))[1],
        "openat create": lambda: call("openat", AT_FDCWD, b"c", create, bits),
        "openat tmpfile": lambda: call("openat", AT_FDCWD, b".", O_TMPFILE, bits),
        "mknodat": lambda: call("mknodat", AT_FDCWD, b"d", regular, 0),
        "mkdirat": lambda: call("mkdirat", AT_FDCWD, b"e", bits),
    }
    if "chmod" in NUMBERS:
        acts |= {
            "chmod": lambda: (file_named("f"), call("chmod", b"f", bits))[1],
            "open create": lambda: call("open", b"g", create, bits),
            "creat": lambda: call("creat", b"h", bits),
            "mknod": lambda: call("mknod", b"i", regular, 0),
            "mkdir": lambda: call("mkdir", b"j", bits),
        }
    return {f"{name} {bits:#o}": act for name, act in acts.items()}


def set_id_files() -> Answer:
    """How many files with such a bit there are after every way to make one."""
    for act in set_id_acts(0o6755).values():
        act()
    return [sum(os.stat(name).st_mode & 0o6000 == 0o6000 for name in os.listdir()), 0]


def refused() -> dict[str, Callable[[], Answer]]:
    """Acts that succeed without a filter and fail with EPERM under it."""
    limits, mask, parameter = struct.pack("QQ", 0, 0), b"\xff" * 128, struct.pack("i", 0)
    scheduling = struct.pack("IIQiIQQQ", 48, 0, 0, 19, 0, 0, 0, 0)  # struct sched_attr, the nicest
    accept = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
    acts: dict[str, Callable[[], Answer]] = {
        "unshare": lambda: call("unshare", CLONE_NEW["UTS"]),
        "unshare user": lambda: call("unshare", CLONE_NEW["USER"]),
        "clone with a namespace": clone_new_uts,
        "setns": lambda: call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0),
        "sethostname": lambda: call("sethostname", b"box", 3),
        "setdomainname": lambda: call("setdomainname", b"box", 3),
        "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
        "mount private": lambda: call("mount", b"none", b"/", 0, 0x44000, 0),
        "umount": lambda: call("umount2", b"/tmp", 2),
        "chroot": lambda: call("chroot", b"/"),
        "fsopen": lambda: call("fsopen", b"tmpfs", 0),
        "open_tree": lambda: call("open_tree", AT_FDCWD, b"/tmp", 1),
        "mount_setattr": lambda: call("mount_setattr", AT_FDCWD, b"/tmp", 0, struct.pack("QQQQ", 1, 0, 0, 0), 32),
        "ptrace": lambda: call("ptrace", 0, 0, 0, 0),
        "process_vm_readv": lambda: call("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
        "process_vm_writev": lambda: call("process_vm_writev", os.getpid(), 0, 0, 0, 0, 0),
        "pidfd_getfd": lambda: call("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0),
        "keyctl": lambda: call("keyctl", 0, -2, 1),
        "add_key": lambda: call("add_key", b"user", b"ringfence-test", b"x", 1, -2),
        "name_to_handle_at": lambda: call(
            "name_to_handle_at", AT_FDCWD, b"/tmp", struct.pack("Ii", 128, 0) + bytes(128), bytes(4), 0
        ),
        "prlimit of process 1": lambda: call("prlimit64", 1, 4, limits, 0),
        "prlimit of process 1, high bits": lambda: call("prlimit64", HIGH | 1, 4, limits, 0),
        "sched_setaffinity of process 1": lambda: call("sched_setaffinity", 1, len(mask), mask),
        "sched_setaffinity of process 1, high bits": lambda: call("sched_setaffinity", HIGH | 1, len(mask), mask),
        "sched_setscheduler of process 1": lambda: call("sched_setscheduler", 1, 0, parameter),
        "sched_setparam of process 1": lambda: call("sched_setparam", 1, parameter),
        "sched_setattr of process 1": lambda: call("sched_setattr", 1, scheduling, 0),
        "setpriority of process 1": lambda: call("setpriority", 0, 1, 19),
        "setpriority of process 1, high bits": lambda: call("setpriority", HIGH, HIGH | 1, 19),
        "setpriority of a group": lambda: call("setpriority", 1, 0, 19),
        "setpriority of a user": lambda: call("setpriority", 2, 0, 19),
        "ioprio_set of process 1": lambda: call("ioprio_set", 1, 1, 2 << 13 | 4),
        "ioprio_set of a group": lambda: call("ioprio_set", 2, 0, 2 << 13 | 4),
        "ioprio_set of a user": lambda: call("ioprio_set", 3, 0, 2 << 13 | 4),
        "personality READ_IMPLIES_EXEC": lambda: call("personality", 0x0400000),
        "seccomp with a listener": lambda: install(accept, 8),
        "TIOCSETD": lambda: call("ioctl", terminal(), 0x5423, bytes(4)),
        "TIOCSETD, high bits": lambda: call("ioctl", terminal(), HIGH | 0x5423, bytes(4)),
        "TIOCSTI": lambda: call("ioctl", terminal(), 0x5412, b"x"),
        "TIOCSTI, high bits": lambda: call("ioctl", terminal(), HIGH | 0x5412, b"x"),
    }
    for bits in (0o4755, 0o2755, 0o6711, HIGH | 0o4755):
        acts |= set_id_acts(bits)
    return acts


def other_errors() -> dict[str, Callable[[], Answer]]:
    """Acts that succeed without a filter and fail under it with an error that says what is not there."""
    return {
        "openat2": lambda: call("openat2", AT_FDCWD, b"/", bytes(24), 24),
        "netlink generic": lambda: call("socket", 16, 3, 16),
        "netlink audit": lambda: call("socket", 16, 3, 9),
        "packet": lambda: call("socket", 17, 3, 0),
        "packet, high bits": lambda: call("socket", HIGH | 17, 3, 0),
    }


def kept() -> dict[str, Callable[[], Answer]]:
    """Acts that succeed with a filter as without."""
    accept = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
    current = struct.pack("QQ", 0, 0)
    return {
        "own filter": lambda: install(accept),
        "landlock version": lambda: call("landlock_create_ruleset", 0, 0, 1),
        "prlimit of itself": lambda: call("prlimit64", 0, 4, current, 0),
        "prlimit by its own process id": lambda: call("prlimit64", os.getpid(), 4, current, 0),
        "prlimit that asks": lambda: call("prlimit64", 1, 4, 0, bytes(16)),
        "affinity by its own thread id": lambda: call("sched_setaffinity", os.getpid(), 128, b"\xff" * 128),
        "nice": lambda: call("setpriority", 0, 0, 19),
        "nice by its own thread id": lambda: call("setpriority", 0, os.getpid(), 19),
        "ionice": lambda: call("ioprio_set", 1, 0, 2 << 13 | 4),
        "window size": lambda: call("ioctl", terminal(), 0x5413, bytes(8)),
        "open with a mode it ignores": lambda: call("openat", AT_FDCWD, b".", os.O_RDONLY, 0o6755),
        "sticky folder": lambda: call("mkdirat", AT_FDCWD, b"sticky", 0o1777),
        "create": lambda: call("openat", AT_FDCWD, b"plain", os.O_CREAT | os.O_RDWR, 0o777),
        "chmod": lambda: call("fchmod", file_named("a"), 0o1777),
        "ask personality": lambda: call("personality", 0xFFFFFFFF),
        "no address randomisation": lambda: call("personality", 0x0040000),
        "memfd": lambda: call("memfd_create", b"x", 0),
        "unix socket": lambda: call("socket", 1, 1, 0),
        "tcp": lambda: call("socket", 2, 1 | os.O_CLOEXEC | os.O_NONBLOCK, 6),
        "udp 6": lambda: call("socket", 10, 2, 17),
        "netlink route": lambda: call("socket", 16, 3, 0),
        "socketpair": lambda: call("socketpair", 1, 1, 0, bytes(8)),
        "read the clock's state": lambda: call("adjtimex", bytes(208)),
        "pidfd": lambda: call("pidfd_open", os.getpid(), 0),
        "dumpable off": lambda: call("prctl", 4, 0, 0, 0, 0),
        "dumpable on": lambda: call("prctl", 4, 1, 0, 0, 0),
    }


def compared() -> dict[str, Callable[[], Answer]]:
    """Acts whose answers the test compares itself."""
    return {
        "dumpable after turning it off": lambda: (call("prctl", 4, 0, 0, 0, 0), call("prctl", 3, 0, 0, 0, 0))[1],
        "set-id files": set_id_files,
        "set the clock's frequency": lambda: call("adjtimex", struct.pack("I", 0x0002) + bytes(204)),
        "mptcp": lambda: call("socket", 2, 1, 262),
        "vsock": lambda: call("socket", 40, 1, 0),
        "alg": lambda: call("socket", 38, 5, 0),
        "internet socketpair": lambda: call("socketpair", 2, 1, 0, bytes(8)),
        "clone3": lambda: call("clone3", 0, 0),
        "io_uring_setup": lambda: call("io_uring_setup", 0, 0),
        "a number that no kernel has": lambda: raw(100_000),
    }


def in_a_fork(act: Callable[[], Answer]) -> Answer:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert libc.unshare(CLONE_NEW["NS"]) == 0  # what an act mounts is gone with it
            if question["program"] is not None:
                assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
                assert install(bytes.fromhex(question["program"])) == [0, 0]
            os.write(writer, json.dumps(act()).encode())
        except BaseException as error:
            os.write(writer, json.dumps([-2, repr(error)]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else [-2, status]


def enter_namespaces() -> None:
    if question["uid"]:
        os.setgroups([])
        os.setresgid(*[question["uid"]] * 3)
        os.setresuid(*[question["uid"]] * 3)
        libc.prctl(4, 1, 0, 0, 0)  # changing ids took it away, and with it the right to write the maps
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(sum(CLONE_NEW.values()) | CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "this test needs user namespaces: unshare")
    for path, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{path}", "w") as stream:
            stream.write(text)


def main() -> None:
    enter_namespaces()
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    assert os.getpid() == 1
    os.setsid()
    os.umask(0)
    for source, flags in ((0, 0x44000), (b"tmpfs", 0)):  # MS_REC | MS_PRIVATE, then a folder of its own
        assert call("mount", b"none", b"/tmp" if source else b"/", source, flags, 0) == [0, 0]
    answers: dict[str, dict[str, Answer]] = {}
    for kind in (refused, other_errors, kept, compared):
        answers[kind.__name__] = {}
        for name, act in kind().items():
            os.mkdir("/tmp/act")
            os.chdir("/tmp/act")
            answers[kind.__name__][name] = in_a_fork(act)
            os.chdir("/")
            shutil.rmtree("/tmp/act")
    answers["sweep"] = {
        name: in_a_fork(lambda number=number: raw(number, *[-1] * 6))  # type: ignore[misc]
        for name, number in question["sweep"].items()
    }
    print(json.dumps(answers))


main()
