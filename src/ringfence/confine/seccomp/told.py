"""What the listener of the filter told, as denials: each refused call by its name, with what it was for in words.

Sources of the names: linux/sched.h, linux/ptrace.h, bits/socket.h, linux/netlink.h, linux/bpf.h, linux/resource.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ringfence.confine.seccomp.arguments import AF_NETLINK, MODE_AT, RULES, TERMINAL_IOCTLS
from ringfence.confine.seccomp.filter import machine
from ringfence.confine.seccomp.table import GROUPS, Verdict
from ringfence.outcome import Denial

EXACT = 8
"""From so many repetitions on the listener tells each doubling only."""
FURTHER = 1 << 32
"""What the listener tells of arguments past the first four that a run made a call with."""
NAMESPACES = {0x80: "NEWTIME", 0x20000: "NEWNS", 0x2000000: "NEWCGROUP", 0x4000000: "NEWUTS", 0x8000000: "NEWIPC"} | {
    0x10000000: "NEWUSER", 0x20000000: "NEWPID", 0x40000000: "NEWNET"
}  # fmt: skip
TRACES = {0: "TRACEME", 16: "ATTACH", 17: "DETACH", 0x4206: "SEIZE", 0x4207: "INTERRUPT"}
FAMILIES = (
    "UNSPEC UNIX INET AX25 IPX APPLETALK NETROM BRIDGE ATMPVC X25 INET6 ROSE DECNET NETBEUI SECURITY KEY NETLINK PACKET ASH ECONET "
    "ATMSVC RDS SNA IRDA PPPOX WANPIPE LLC IB MPLS CAN TIPC BLUETOOTH IUCV RXRPC ISDN PHONET IEEE802154 CAIF ALG NFC VSOCK KCM "
    "QIPCRTR SMC XDP MCTP"
)
NETLINKS = {6: "XFRM", 12: "NETFILTER", 16: "GENERIC"}
PROGRAMS = {0: "MAP_CREATE", 5: "PROG_LOAD", 18: "BTF_LOAD"}


class Told(NamedTuple):
    """A record of the listener: the call's number, what it was for, how often it was made by then. whose: nothing where it was
    made by the run that it is told of, else who made it."""

    number: int
    first: int
    second: int
    times: int
    whose: str = ""


def _flags(first: int, _second: int) -> str:
    return " | ".join(f"CLONE_{name}" for bit, name in NAMESPACES.items() if first & bit) or f"flags {first:#x}"


def _socket(first: int, second: int) -> str:
    names = FAMILIES.split()
    name = f"AF_{names[first]}" if first < len(names) else f"family {first}"
    return f"{name}, NETLINK_{NETLINKS.get(second, second)}" if first == AF_NETLINK else name


def _named(what: str, names: Mapping[int, str]) -> Callable[[int, int], str]:
    return lambda first, _second: names.get(first, f"{what} {first:#x}")


def _mode(first: int, _second: int) -> str:
    return f"mode {first & 0o7777:04o}"


def _who(kind: int) -> Callable[[int, int], str]:
    return lambda first, _second: "process 1" if first == kind else "a group or a user"


WORDS: dict[str, Callable[[int, int], str]] = {
    **dict.fromkeys(MODE_AT, _mode),
    "ioctl": _named("ioctl", {value: name for name, value in TERMINAL_IOCTLS.items()}),
    "socket": _socket,
    "socketpair": _socket,
    **dict.fromkeys(("clone", "unshare", "setns"), _flags),
    "ptrace": _named("request", {number: f"PTRACE_{name}" for number, name in TRACES.items()}),
    "bpf": _named("command", {number: f"BPF_{name}" for number, name in PROGRAMS.items()}),
    "personality": _named("personality", {}),
    "seccomp": lambda *_: "SECCOMP_FILTER_FLAG_NEW_LISTENER: a box has a listener already, outside",
    "setpriority": _who(0),
    "ioprio_set": _who(1),
    **dict.fromkeys(("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"), _who(0)),
}
"""What a call was for, by the two arguments that the listener tells. Every other call speaks for itself."""


def denials(told: Iterable[Told]) -> tuple[Denial, ...]:
    """One for each call that was refused, whatever it was for, and for each that made it: the run or another."""
    counts: dict[tuple[str, str], dict[tuple[int, int], int]] = {}
    names = {number: call for group in GROUPS for call, number in group.numbers(machine()).items()}
    for each in told:
        call = names.get(each.number, f"system call {each.number}")
        kinds = counts.setdefault((call, each.whose), {})
        kinds[each.first, each.second] = max(kinds.get((each.first, each.second), 0), each.times)
    return tuple(_denial(call, whose, kinds) for (call, whose), kinds in counts.items())


def _denial(call: str, whose: str, kinds: Mapping[tuple[int, int], int]) -> Denial:
    said = list(dict.fromkeys("..." if kind[0] == FURTHER else WORDS[call](*kind) for kind in kinds)) if call in WORDS else []
    count = sum(kinds.values())
    often = f"{count} calls" + (" or more" if max(kinds.values()) >= EXACT else "") if count > 1 else ""
    subject, remedy = _rule_of(call)
    detail = "; ".join(part for part in (", ".join(said), often, whose) if part)
    return Denial("syscall", call, f"system call filter: {subject}", "observed", remedy, detail)


def _rule_of(call: str) -> tuple[str, str | None]:
    """Which rule of the table refuses a call, and the line of a policy that opens it."""
    for rule in RULES:
        if call in rule.calls:
            return rule.says.partition(";")[0], f"syscalls.{rule.opened_by.value}: true" if rule.opened_by else None
    for group in GROUPS:
        if group.verdict is Verdict.REFUSE and call in group.numbers(machine()):
            return group.subject, f"syscalls.{group.opened_by.value}: true" if group.opened_by else None
    return "not in the table", None
