"""The filter of the egress server's worker: the few calls that a loop over sockets makes, and none that takes a path.

Everything else is refused with EPERM: another program, another process, another kind of socket, more rights, a name of a file.
"""

from __future__ import annotations

import errno
from functools import cache

from ringfence.confine.seccomp.arguments import ALLOWED, answer, any_bit, one_of
from ringfence.confine.seccomp.bpf import ARCH_OFFSET, JUMP_EQUAL, NR_OFFSET, Branch, Load, Node, assemble, search
from ringfence.confine.seccomp.filter import AUDIT_ARCH
from ringfence.confine.seccomp.filter import machine as this_machine
from ringfence.confine.seccomp.table import GROUPS, Machine

CALLS = """
    read write pread64 close splice pipe2
    epoll_create1 epoll_wait epoll_pwait epoll_ctl
    accept4 connect shutdown getsockname getpeername setsockopt getsockopt sendto recvfrom sendmsg recvmsg
    munmap mremap brk madvise futex rt_sigreturn sigaltstack
    clock_gettime gettimeofday getrandom getpid exit_group exit restart_syscall
"""
"""What the worker's loop needs, whatever it is given."""

PROT_EXEC = 0x4  # asm-generic/mman-common.h
SOCKETS = (2, 10)  # AF_INET, AF_INET6: never the host's local services (AF_UNIX) or its kernel (AF_NETLINK)
KINDS = (1, 2)  # SOCK_STREAM, SOCK_DGRAM
KIND_MASK = 0xF  # linux/net.h: SOCK_TYPE_MASK; the rest are flags
FIONBIO = 0x5421  # asm-generic/ioctls.h
FCNTL = (3, 4, 1031)  # F_GETFL, F_SETFL, F_SETPIPE_SZ


def build_server_filter(machine: Machine | None = None) -> bytes:
    """Returns the packed `struct sock_filter[]`. Raises TierUnavailableError for a machine that the table does not know."""
    return _build(machine or this_machine())


@cache
def _build(machine: Machine) -> bytes:
    refused = answer(errno.EPERM)
    numbers = {call: number for group in GROUPS for call, number in group.numbers(machine).items()}
    decided: dict[int, Node] = {numbers[call]: ALLOWED for call in CALLS.split() if call in numbers}
    not_executable = any_bit(2, PROT_EXEC, refused, ALLOWED)
    decided[numbers["mmap"]] = decided[numbers["mprotect"]] = not_executable
    decided[numbers["socket"]] = one_of(0, SOCKETS, one_of(1, KINDS, ALLOWED, refused, mask=KIND_MASK), refused)
    decided[numbers["ioctl"]] = one_of(1, (FIONBIO,), ALLOWED, refused)
    decided[numbers["fcntl"]] = one_of(1, FCNTL, ALLOWED, refused)
    last = max(decided)
    nodes = [decided.get(number, refused) for number in range(last + 1)] + [refused]
    by_number = Load(NR_OFFSET, search(range(last + 2), nodes))
    return assemble(Load(ARCH_OFFSET, Branch(JUMP_EQUAL, AUDIT_ARCH[machine], by_number, refused)))
