"""Calls that are decided by their arguments.

An argument arrives as a 64-bit register. Where the kernel's own prototype is narrower (int, pid_t, umode_t, unsigned
int), it drops the high half, so only the low half is compared: a caller that sets high bits gets the same verdict.
Both machines are little-endian. Memory behind a pointer cannot be read, which is why calls that keep their
flags there (clone3, openat2) are absent from the box altogether.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from ringfence.confine.seccomp.bpf import ARGS_OFFSET, JUMP_ANY_BIT, JUMP_EQUAL, Branch, Load, Mask, Node, Return
from ringfence.confine.seccomp.table import Switch
from ringfence.values import frozen

RET_ALLOW = 0x7FFF0000  # linux/seccomp.h: SECCOMP_RET_ALLOW
RET_ERRNO = 0x00050000  # SECCOMP_RET_ERRNO, the low 16 bits are the errno
RET_USER_NOTIF = 0x7FC00000  # SECCOMP_RET_USER_NOTIF

ALLOWED = Return(RET_ALLOW)
SUCCESS_WITHOUT_EFFECT = Return(RET_ERRNO | 0)


def answer(number: int) -> Return:
    """The call is not made and fails with this errno."""
    return Return(RET_ERRNO | number)


@frozen
class Answers:
    """How refusals are answered: what is forbidden, a socket family or protocol that a box has not, and, quiet, what programs
    try as a matter of course and do without: never told to a listener."""

    forbidden: Return
    no_family: Return
    quiet: Return


REFUSED = answer(errno.EPERM)
NO_FAMILY = answer(errno.EAFNOSUPPORT)
BY_THE_KERNEL = Answers(REFUSED, NO_FAMILY, REFUSED)
BY_A_LISTENER = Answers(Return(RET_USER_NOTIF | errno.EPERM), Return(RET_USER_NOTIF | errno.EAFNOSUPPORT), REFUSED)
"""The errno is for whoever reads the program; the kernel does not pass it on. See guest/kernel.py, by_the_kernel()."""


@frozen
class Rule:
    """How calls of one kind are decided: `decide` is given the answers to refusals and returns the graph."""

    calls: tuple[str, ...]
    says: str
    decide: Callable[[Answers], Node]
    opened_by: Switch | None = None


def one_of(argument: int, values: Iterable[int], then: Node, otherwise: Node, *, mask: int | None = None) -> Node:
    """`then` if the low half of the argument, or those bits of it that are in `mask`, is one of the few `values`."""
    test = otherwise
    for value in reversed(list(values)):
        test = Branch(JUMP_EQUAL, value, then, test)
    if mask is not None:
        test = Mask(mask, test)
    return Load(ARGS_OFFSET + 8 * argument, test)


def any_bit(argument: int, bits: int, then: Node, otherwise: Node) -> Node:
    """`then` if the low half of the argument has any of `bits`."""
    return Load(ARGS_OFFSET + 8 * argument, Branch(JUMP_ANY_BIT, bits, then, otherwise))


def zero(argument: int, then: Node, otherwise: Node) -> Node:
    """`then` if all 64 bits of the argument are 0: a null pointer, an unsigned long."""
    high = Load(ARGS_OFFSET + 8 * argument + 4, Branch(JUMP_EQUAL, 0, then, otherwise))
    return Load(ARGS_OFFSET + 8 * argument, Branch(JUMP_EQUAL, 0, high, otherwise))


# Set-id mode bits, linux/stat.h: S_ISUID | S_ISGID. Both are refused, for folders too, and for an ordinary user's box
# as for root's: a set-group-id program left in a workspace lends its group to whoever runs it on the host, and a
# filter cannot tell a folder from a file. The cost is that `chmod g+s`, `git init --shared` and copying the mode of
# such a folder fail. What is made inside one still inherits the bit from the kernel.
SET_ID_BITS = 0o6000
CREATING_FLAGS = 0o100 | 0o20000000  # asm-generic/fcntl.h: O_CREAT | __O_TMPFILE; without them open ignores its mode


def _mode(argument: int) -> Callable[[Answers], Node]:
    return lambda answers: any_bit(argument, SET_ID_BITS, answers.forbidden, ALLOWED)


def _open(flags: int) -> Callable[[Answers], Node]:
    def decide(answers: Answers) -> Node:
        return any_bit(flags, CREATING_FLAGS, any_bit(flags + 1, SET_ID_BITS, answers.forbidden, ALLOWED), ALLOWED)

    return decide


# asm-generic/ioctls.h. TIOCSTI types into a terminal as if the user did, TIOCLINUX pastes into a console, TIOCCONS
# takes the console's output, TIOCSETD loads line disciplines (kernel modules that no box needs). The command is an
# unsigned int.
TERMINAL_IOCTLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}

# linux/socket.h, linux/net.h, linux/in.h. AF_VSOCK is not namespaced and reaches the hypervisor; other families,
# netlink protocols and transports are kernel code (some of it loaded on demand) that a box does not need.
# SOCK_SEQPACKET with protocol 0 would mean SCTP. Raw sockets the kernel itself refuses without a capability.
AF_UNIX, AF_INET, AF_NETLINK, AF_INET6 = 1, 2, 16, 10
SOCK_TYPE_MASK = 0xF
INET_TYPES = (1, 2, 3)  # SOCK_STREAM, SOCK_DGRAM, SOCK_RAW
INET_PROTOCOLS = (0, 1, 6, 17, 58, 136, 255)  # the default, ICMP, TCP, UDP, ICMPv6, UDP-Lite, RAW


# What finds nothing there asks elsewhere: ss reads /proc, libudev lists /sys, PAM goes without an audit trail.
NETLINK_TRIED = (4, 9, 15)  # NETLINK_SOCK_DIAG, NETLINK_AUDIT, NETLINK_KOBJECT_UEVENT, linux/netlink.h


def _socket(answers: Answers) -> Node:
    protocol = one_of(2, INET_PROTOCOLS, ALLOWED, answer(errno.EPROTONOSUPPORT))
    internet = one_of(1, INET_TYPES, protocol, answer(errno.ESOCKTNOSUPPORT), mask=SOCK_TYPE_MASK)
    other = one_of(2, NETLINK_TRIED, NO_FAMILY, answers.no_family)
    netlink = one_of(0, [AF_NETLINK], one_of(2, [0], ALLOWED, other), answers.no_family)
    return one_of(0, [AF_UNIX], ALLOWED, one_of(0, [AF_INET, AF_INET6], internet, netlink))


# linux/sched.h: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME overlaps the exit signal and
# is known to clone3 and unshare only.
NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

# linux/prctl.h. Not dumpable means that nobody of the same user can read a process's descriptors and memory counters,
# and so hides memory from the caps; asking for it succeeds, as programs expect, and changes nothing. PR_SET_MM
# rewrites what /proc says about a process; programs that rename themselves try it, and no ordinary user may. All other
# options act on the caller alone.
PR_SET_DUMPABLE, PR_SET_MM = 4, 35


def _prctl(answers: Answers) -> Node:
    dumpable = zero(1, SUCCESS_WITHOUT_EFFECT, ALLOWED)
    return one_of(0, [PR_SET_DUMPABLE], dumpable, one_of(0, [PR_SET_MM], answers.quiet, ALLOWED))


# linux/personality.h: PER_LINUX, PER_LINUX32 (setarch), UNAME26 (old build scripts), ADDR_NO_RANDOMIZE (debuggers,
# sanitizers and Lisps start themselves again with it; it weakens only the caller), and 0xffffffff, which only asks.
# The rest are other systems' personalities and relics (MMAP_PAGE_ZERO, READ_IMPLIES_EXEC) that undo memory
# protections.
PERSONALITIES = (0, 0x8, 0x0020000, 0x0020008, 0x0040000, 0x0040008, 0xFFFFFFFF)


SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8  # linux/seccomp.h


def _seccomp(answers: Answers) -> Node:
    listener = any_bit(1, SECCOMP_FILTER_FLAG_NEW_LISTENER, answers.forbidden, ALLOWED)
    return one_of(0, [SECCOMP_SET_MODE_FILTER], listener, ALLOWED)


# Calls that change another process without asking whether it may be traced. The box's first process is its process 1,
# and losing it ends the box. Thread libraries pass thread ids of their own to the scheduler's calls, so there 1 is
# refused and nothing else; who sets limits of a process by its number is rare (ulimit, prlimit(1) and Python's
# setrlimit do not), so there only 0 is allowed. Groups and users in setpriority and ioprio_set can include process 1.
FIRST_PROCESS = 1
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1  # linux/resource.h, linux/ioprio.h


def _not_the_first(argument: int) -> Callable[[Answers], Node]:
    return lambda answers: one_of(argument, [FIRST_PROCESS], answers.forbidden, ALLOWED)


def _single(kind: int) -> Callable[[Answers], Node]:
    return lambda answers: one_of(0, [kind], _not_the_first(1)(answers), answers.forbidden)


def _own(answers: Answers) -> Node:
    return one_of(0, [0], ALLOWED, answers.forbidden)


def _prlimit(answers: Answers) -> Node:
    # The guest makes limits of what it starts hard by this call, so only its own number is closed to a new limit.
    return one_of(0, [1], zero(2, ALLOWED, answers.forbidden), ALLOWED)


MODE_AT = {"chmod": 1, "fchmod": 1, "mkdir": 1, "mknod": 1, "creat": 1, "open": 2} | {
    "fchmodat": 2, "fchmodat2": 2, "mkdirat": 2, "mknodat": 2, "openat": 3
}  # fmt: skip
NOWHERE = 6
TOLD_AT = {call: (at, NOWHERE) for call, at in MODE_AT.items()} | {
    "ioctl": (1, NOWHERE), "socket": (0, 2), "socketpair": (0, 2), "setns": (1, NOWHERE),
    **dict.fromkeys(("clone", "unshare", "ptrace", "bpf", "personality", "setpriority", "ioprio_set"), (0, NOWHERE)),
}  # fmt: skip
"""Which arguments tell what a refused call was for: what a listener tells of it (guest/warden/syscalls.py). A call has six."""

RULES = (
    Rule(("chmod", "fchmod", "mkdir", "mknod", "creat"), "no set-user-id or set-group-id bit", _mode(1)),
    Rule(("fchmodat", "fchmodat2", "mkdirat", "mknodat"), "no set-user-id or set-group-id bit", _mode(2)),
    Rule(("open",), "no set-user-id or set-group-id bit on what it creates", _open(1)),
    Rule(("openat",), "no set-user-id or set-group-id bit on what it creates", _open(2)),
    Rule(
        ("ioctl",),
        f"not {', '.join(TERMINAL_IOCTLS)}",
        lambda answers: one_of(1, TERMINAL_IOCTLS.values(), answers.forbidden, ALLOWED),
    ),
    Rule(
        ("socket", "socketpair"),
        "UNIX, INET and INET6 (TCP, UDP, UDP-Lite, ICMP), NETLINK_ROUTE; else the error of a kernel without it",
        _socket,
    ),
    Rule(
        ("clone",),
        "no namespace flag",
        lambda answers: any_bit(0, NAMESPACE_FLAGS, answers.forbidden, ALLOWED),
        opened_by=Switch.NESTED,
    ),
    Rule(("prctl",), "PR_SET_DUMPABLE 0 succeeds without effect; not PR_SET_MM", _prctl),
    Rule(
        ("personality",),
        "Linux, 32-bit names, UNAME26, ADDR_NO_RANDOMIZE, and asking",
        lambda answers: one_of(0, PERSONALITIES, ALLOWED, answers.forbidden),
    ),
    Rule(("seccomp",), "not with SECCOMP_FILTER_FLAG_NEW_LISTENER", _seccomp),
    Rule(("prlimit64",), "no new limits for process 1", _prlimit),
    Rule(
        ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"),
        "not for process 1",
        _not_the_first(0),
    ),
    Rule(("setpriority",), "PRIO_PROCESS only, not for process 1", _single(PRIO_PROCESS)),
    Rule(("ioprio_set",), "IOPRIO_WHO_PROCESS only, not for process 1", _single(IOPRIO_WHO_PROCESS)),
    Rule(("migrate_pages", "move_pages"), "only for the caller (process 0)", _own),
)
