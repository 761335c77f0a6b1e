"""From the table and the argument rules to the bytes that the kernel takes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cache
from typing import cast, get_args

from ringfence.confine.seccomp.arguments import ALLOWED, BY_A_LISTENER, BY_THE_KERNEL, RULES, TOLD_AT, Answers, answer
from ringfence.confine.seccomp.bpf import (
    ARCH_OFFSET,
    JUMP_EQUAL,
    NR_OFFSET,
    Branch,
    Load,
    Node,
    assemble,
    search,
)
from ringfence.confine.seccomp.table import GROUPS, Group, Machine, Switch, Verdict
from ringfence.errors import TierUnavailableError

# linux/audit.h: AUDIT_ARCH_*. A call through another entry (the 32-bit one of either machine) has another value.
AUDIT_ARCH: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_RULE_OF = {call: rule for rule in RULES for call in rule.calls}


PINS = "sched_setaffinity"
"""Where nothing but affinity caps the cores of a box, it is refused: a filter cannot see whether it widens or narrows."""


def build_filter(
    *, debug: bool = False, nested: bool = False, observed: bool = False, pinned: bool = False, machine: str | None = None
) -> bytes:
    """Returns the packed `struct sock_filter[]` for seccomp(SECCOMP_SET_MODE_FILTER), ready to install.

    `debug` opens ptrace, process_vm_readv and _writev, kcmp and pidfd_getfd; `nested` opens namespaces, mounts, roots
    and host names; `pinned` closes sched_setaffinity, which no listener is told of: programs try it and do without. With
    `observed` a listener is told of refusals and answers them: the filter must then be installed with one.
    `machine` is as in os.uname() and defaults to this one. The answer is kept for the next caller.

    Raises TierUnavailableError for a machine that the table does not know.

    Not promised: that a call with a pointer is judged by what it points to; a filter cannot look there.
    """
    return _build(_known(machine), _opened(debug, nested), observed, pinned)


@cache
def answers() -> bytes:
    """What a listener has to know of the calls that this machine's filter may tell it of, as guest/warden/syscalls.py reads it."""
    numbers = {call: number for group in GROUPS for call, number in group.numbers(machine()).items()}
    errors = dict.fromkeys(("socket", "socketpair"), errno.EAFNOSUPPORT)
    rows = (
        f"{numbers[call]} {first} {second} {errors.get(call, errno.EPERM)};"
        for call, (first, second) in TOLD_AT.items()
        if call in numbers
    )
    return "".join(rows).encode()


def machine() -> Machine:
    """The machine that this is. Raises TierUnavailableError where the table does not know it."""
    return _known(None)


def describe(*, debug: bool = False, nested: bool = False, pinned: bool = False, machine: str | None = None) -> list[str]:
    """Returns what `build_filter` with the same arguments decides, one readable line per rule, for a printed plan.

    Raises TierUnavailableError for a machine that the table does not know.
    """
    known, opened = _known(machine), _opened(debug, nested)
    lines = [f"{known} calls only; another entry to the kernel, and any call not named here: {Verdict.ABSENT.value}"]
    for group in GROUPS:
        calls = group.numbers(known)
        if group.verdict is Verdict.CHECK:
            lines += _describe_rules(calls, opened)
        elif calls:
            verdict = Verdict.ALLOW if group.opened_by in opened else group.verdict
            lines.append(f"{verdict.value} ({group.subject}): {' '.join(calls)}")
    return [*lines, f"{Verdict.REFUSE.value} (a cap of cores): {PINS}"] if pinned else lines


def compose(machine: Machine, opened: frozenset[Switch], answers: Answers, *, pinned: bool = False) -> Node:
    """Returns the filter as a graph. `answers` is how everything is answered that is refused rather than absent."""
    absent = answer(errno.ENOSYS)
    decided: dict[int, Node] = {}
    built: dict[int, Node] = {}
    for group in GROUPS:
        for call, number in group.numbers(machine).items():
            if pinned and call == PINS:
                decided[number] = answers.quiet
                continue
            match _verdict(group, call, opened):
                case Verdict.ALLOW:
                    decided[number] = ALLOWED
                case Verdict.REFUSE:
                    decided[number] = answers.quiet if group.tried else answers.forbidden
                case Verdict.CHECK:
                    rule = _RULE_OF[call]
                    if id(rule) not in built:
                        built[id(rule)] = rule.decide(answers)
                    decided[number] = built[id(rule)]
                case Verdict.ABSENT:
                    decided[number] = absent
    # Numbers past the last one, x32's (bit 30) among them, fall into the last range; gaps are absent like them.
    last = max(decided)
    nodes = [decided.get(number, absent) for number in range(last + 1)] + [absent]
    by_number = Load(NR_OFFSET, search(range(last + 2), nodes))
    return Load(ARCH_OFFSET, Branch(JUMP_EQUAL, AUDIT_ARCH[machine], by_number, absent))


@cache
def _build(machine: Machine, opened: frozenset[Switch], observed: bool, pinned: bool) -> bytes:
    return assemble(compose(machine, opened, BY_A_LISTENER if observed else BY_THE_KERNEL, pinned=pinned))


def _opened(debug: bool, nested: bool) -> frozenset[Switch]:
    return frozenset(switch for switch, on in ((Switch.DEBUG, debug), (Switch.NESTED, nested)) if on)


def _verdict(group: Group, call: str, opened: frozenset[Switch]) -> Verdict:
    opened_by = _RULE_OF[call].opened_by if group.verdict is Verdict.CHECK else group.opened_by
    return Verdict.ALLOW if opened_by in opened else group.verdict


def _describe_rules(calls: dict[str, int], opened: frozenset[Switch]) -> Iterator[str]:
    for rule in RULES:
        here = [call for call in rule.calls if call in calls]
        if here:
            says = Verdict.ALLOW.value if rule.opened_by in opened else rule.says
            yield f"{Verdict.CHECK.value}: {' '.join(here)}: {says}"


def _known(machine: str | None) -> Machine:
    name = os.uname().machine if machine is None else machine
    if name not in get_args(Machine):
        raise TierUnavailableError(
            f"There is no system-call table for machine {name!r}, only for {' and '.join(get_args(Machine))}, "
            "so no filter can be made.",
            machine=name,
        )
    return cast(Machine, name)
