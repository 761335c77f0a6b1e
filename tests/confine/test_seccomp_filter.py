from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from confine.bpf_interpreter import decide
from ringfence.confine.seccomp import build_filter, describe
from ringfence.confine.seccomp.arguments import RET_USER_NOTIF
from ringfence.confine.seccomp.filter import AUDIT_ARCH
from ringfence.confine.seccomp.table import GROUPS, Machine, Switch, Verdict
from ringfence.errors import TierUnavailableError
from ringfence.guest.kernel import by_the_kernel

MACHINES: tuple[Machine, ...] = get_args(Machine)
I386, ARM, X32_BIT = 0x40000003, 0x40000028, 0x40000000
ALLOW = 0x7FFF0000


def refusal(number: int) -> int:
    return 0x00050000 | number


EPERM, ENOSYS = refusal(errno.EPERM), refusal(errno.ENOSYS)
FAMILY, PROTOCOL, TYPE = refusal(errno.EAFNOSUPPORT), refusal(errno.EPROTONOSUPPORT), refusal(errno.ESOCKTNOSUPPORT)

# What each call that is decided by its arguments must answer, written down again without the filter's own words.
# The arguments are those that the kernel's prototype sees: cut to 32 bits, except where it takes a pointer or a long.
Arguments = Sequence[int]


def int32(value: int) -> int:
    return value & 0xFFFFFFFF


def set_id(mode: int) -> int:
    return EPERM if mode & 0o6000 else ALLOW


def opened(flags: int, mode: int) -> int:
    return set_id(mode) if flags & (os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY) else ALLOW


def socket(family: int, kind: int, protocol: int) -> int:
    if family == 1:
        return ALLOW
    if family == 16:
        return ALLOW if protocol == 0 else FAMILY
    if family not in (2, 10):
        return FAMILY
    if kind & 15 not in (1, 2, 3):
        return TYPE
    return ALLOW if protocol in (0, 1, 6, 17, 58, 136, 255) else PROTOCOL


def prctl(option: int, value: int) -> int:
    if option == 4:
        return refusal(0) if value == 0 else ALLOW
    return EPERM if option == 35 else ALLOW


def one_process(kind: int, which: int, who: int) -> int:
    return ALLOW if which == kind and who != 1 else EPERM


EXPECTED: dict[str, Callable[[Arguments], int]] = {
    "chmod": lambda a: set_id(a[1]),
    "fchmod": lambda a: set_id(a[1]),
    "mkdir": lambda a: set_id(a[1]),
    "mknod": lambda a: set_id(a[1]),
    "creat": lambda a: set_id(a[1]),
    "fchmodat": lambda a: set_id(a[2]),
    "fchmodat2": lambda a: set_id(a[2]),
    "mkdirat": lambda a: set_id(a[2]),
    "mknodat": lambda a: set_id(a[2]),
    "open": lambda a: opened(a[1], a[2]),
    "openat": lambda a: opened(a[2], a[3]),
    "ioctl": lambda a: EPERM if int32(a[1]) in (0x5412, 0x541C, 0x541D, 0x5423) else ALLOW,
    "socket": lambda a: socket(int32(a[0]), a[1], int32(a[2])),
    "socketpair": lambda a: socket(int32(a[0]), a[1], int32(a[2])),
    "clone": lambda a: EPERM if a[0] & 0x7E020000 else ALLOW,
    "prctl": lambda a: prctl(int32(a[0]), a[1]),
    "personality": lambda a: ALLOW if int32(a[0]) in (0, 8, 0x20000, 0x20008, 0x40000, 0x40008, 0xFFFFFFFF) else EPERM,
    "seccomp": lambda a: EPERM if int32(a[0]) == 1 and a[1] & 8 else ALLOW,
    "prlimit64": lambda a: ALLOW if int32(a[0]) != 1 or a[2] == 0 else EPERM,
    "sched_setparam": lambda a: EPERM if int32(a[0]) == 1 else ALLOW,
    "sched_setscheduler": lambda a: EPERM if int32(a[0]) == 1 else ALLOW,
    "sched_setaffinity": lambda a: EPERM if int32(a[0]) == 1 else ALLOW,
    "sched_setattr": lambda a: EPERM if int32(a[0]) == 1 else ALLOW,
    "setpriority": lambda a: one_process(0, int32(a[0]), int32(a[1])),
    "ioprio_set": lambda a: one_process(1, int32(a[0]), int32(a[1])),
    "migrate_pages": lambda a: ALLOW if int32(a[0]) == 0 else EPERM,
    "move_pages": lambda a: ALLOW if int32(a[0]) == 0 else EPERM,
}

INTERESTING = [
    *range(20), 35, 38, 40, 58, 132, 136, 255, 262,
    0o4755, 0o2755, 0o6755, 0o1777, 0o755, 0o100, 0o1102, 0o20200002, 0o20000000, 0x80801,
    0x5411, 0x5412, 0x5413, 0x541C, 0x541D, 0x5423, 0x20000, 0x40000, 0x400000, 0x10000000, 0x7E020011, 0x1200011,
    0xFFFFFFFF,
]  # fmt: skip
argument = st.one_of(
    st.sampled_from(INTERESTING),
    st.builds(lambda low, high: low | high << 32, st.sampled_from(INTERESTING), st.integers(1, 2**32 - 1)),
    st.integers(0, 2**64 - 1),
)
switches = st.frozensets(st.sampled_from(Switch))
PROGRAMS = {
    (machine, frozenset(opened)): build_filter(debug=Switch.DEBUG in opened, nested=Switch.NESTED in opened, machine=machine)
    for machine in MACHINES
    for opened in ([], [Switch.DEBUG], [Switch.NESTED], [Switch.DEBUG, Switch.NESTED])
}
BY_NUMBER = {
    machine: {number: (call, group) for group in GROUPS for call, number in group.numbers(machine).items()} for machine in MACHINES
}


def expected(machine: Machine, opened: frozenset[Switch], number: int, arguments: Arguments) -> int:
    if number not in BY_NUMBER[machine]:
        return ENOSYS
    call, group = BY_NUMBER[machine][number]
    if group.opened_by in opened or (call == "clone" and Switch.NESTED in opened):
        return ALLOW
    if group.verdict is Verdict.CHECK:
        return EXPECTED[call](arguments)
    return {Verdict.ALLOW: ALLOW, Verdict.REFUSE: EPERM, Verdict.ABSENT: ENOSYS}[group.verdict]


@settings(max_examples=800, deadline=None)
@given(
    st.sampled_from(MACHINES),
    switches,
    st.one_of(st.integers(0, 480), st.integers(0, 2**32 - 1)),
    st.lists(argument, min_size=6, max_size=6),
)
@example("x86_64", frozenset(), 0xFFFFFFFF, [0] * 6)
def test_a_program_decides_as_the_table_says(
    machine: Machine, opened: frozenset[Switch], number: int, arguments: list[int]
) -> None:
    program = PROGRAMS[machine, opened]
    assert decide(program, AUDIT_ARCH[machine], number, arguments) == expected(machine, opened, number, arguments)


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(MACHINES), switches, st.sampled_from(sorted(EXPECTED)), st.lists(argument, min_size=6, max_size=6))
def test_a_call_with_a_rule_is_decided_by_its_arguments(
    machine: Machine, opened: frozenset[Switch], call: str, arguments: list[int]
) -> None:
    numbers = {name: number for number, (name, _) in BY_NUMBER[machine].items()}
    if call in numbers:
        verdict = decide(PROGRAMS[machine, opened], AUDIT_ARCH[machine], numbers[call], arguments)
        assert verdict == expected(machine, opened, numbers[call], arguments)


@pytest.mark.parametrize(("machine", "opened"), PROGRAMS)
def test_every_number_without_arguments_decides_as_the_table_says(machine: Machine, opened: frozenset[Switch]) -> None:
    program = PROGRAMS[machine, opened]
    for number in [*range(600), *range(X32_BIT - 2, X32_BIT + 600), 2**31, 2**32 - 1]:
        verdict = decide(program, AUDIT_ARCH[machine], number)
        assert verdict == expected(machine, opened, number, [0] * 6), number


@pytest.mark.parametrize(("machine", "opened"), PROGRAMS)
def test_another_entry_to_the_kernel_has_no_calls_at_all(machine: Machine, opened: frozenset[Switch]) -> None:
    others = {I386, ARM, *AUDIT_ARCH.values(), 0} - {AUDIT_ARCH[machine]}
    for arch, number in product(others, range(480)):
        assert decide(PROGRAMS[machine, opened], arch, number) == ENOSYS


TRIED = {"kcmp", "process_madvise", "name_to_handle_at"}
"""Calls that ordinary programs make and expect to fail, beside prctl(PR_SET_MM) and three netlink protocols."""


@pytest.mark.parametrize("machine", MACHINES)
def test_a_listener_is_told_of_what_is_refused_and_of_nothing_else(machine: Machine) -> None:
    plain, watched = build_filter(machine=machine), build_filter(machine=machine, observed=True)
    told = set()
    for number, word in product(range(480), (0, 1, 40, 0o4755, 0x5412, 2**64 - 1)):
        before, after = (decide(program, AUDIT_ARCH[machine], number, [word] * 6) for program in (plain, watched))
        if after == before:
            continue
        call, _ = BY_NUMBER[machine][number]
        assert before == (FAMILY if call in ("socket", "socketpair") else EPERM)
        assert after == RET_USER_NOTIF | before & 0xFFFF
        told.add(call)
    refused = {call for call, group in BY_NUMBER[machine].values() if group.verdict is Verdict.REFUSE}
    ruled = EXPECTED.keys() & dict(BY_NUMBER[machine].values()).keys()
    assert told - refused == ruled - {"prctl", "seccomp"}  # what is refused of these takes two words, or is never told
    assert refused - told == TRIED


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_try_as_a_matter_of_course_never_reaches_a_listener(machine: Machine) -> None:
    watched = build_filter(machine=machine, observed=True)
    numbers = {call: number for number, (call, _) in BY_NUMBER[machine].items()}

    def verdict(call: str, *arguments: int) -> int:
        return decide(watched, AUDIT_ARCH[machine], numbers[call], [*arguments, *[0] * (6 - len(arguments))])

    assert {verdict(call) for call in TRIED} == {EPERM} == {verdict("prctl", 35)}
    assert {verdict("socket", 16, 3, protocol) for protocol in (4, 9, 15)} == {FAMILY}
    assert verdict("socket", 2, 1, 262) == PROTOCOL  # MPTCP, which Go tries
    assert verdict("seccomp", 1, 8) == RET_USER_NOTIF | errno.EPERM
    assert verdict("socket", 16, 3, 12) == verdict("socket", 40, 1, 0) == RET_USER_NOTIF | errno.EAFNOSUPPORT
    for call in ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert verdict(call, *[2**64 - 1] * 6) == ENOSYS  # their flags lie in memory, or they go round the filter
    assert verdict("sendmsg", *[2**64 - 1] * 6) == ALLOW  # it hands the listener out


@pytest.mark.parametrize(("machine", "opened"), PROGRAMS)
def test_where_nobody_listens_the_kernel_gives_the_same_answers(machine: Machine, opened: frozenset[Switch]) -> None:
    watched = build_filter(debug=Switch.DEBUG in opened, nested=Switch.NESTED in opened, machine=machine, observed=True)
    alone = by_the_kernel(watched)
    assert len(alone) == len(watched) and alone != watched
    for number, word in product([*range(480), 2**32 - 1], (0, 1, 40, 0o4755, 0x5412, 2**64 - 1)):
        verdicts = [decide(program, AUDIT_ARCH[machine], number, [word] * 6) for program in (PROGRAMS[machine, opened], alone)]
        assert verdicts[0] == verdicts[1], number


@pytest.mark.parametrize("machine", MACHINES)
def test_a_pinned_filter_refuses_to_set_affinity_and_is_the_same_otherwise(machine: Machine) -> None:
    pinned, plain = build_filter(machine=machine, pinned=True), build_filter(machine=machine)
    for number in range(480):
        verdict = decide(pinned, AUDIT_ARCH[machine], number, [0] * 6)
        is_it = BY_NUMBER[machine].get(number, ("",))[0] == "sched_setaffinity"
        assert verdict == (EPERM if is_it else decide(plain, AUDIT_ARCH[machine], number, [0] * 6))
    assert "sched_setaffinity" in describe(machine=machine, pinned=True)[-1]


def test_a_filter_is_built_once() -> None:
    assert build_filter(debug=True) is build_filter(debug=True)
    assert build_filter() is not build_filter(nested=True)
    assert build_filter() == build_filter(machine=os.uname().machine)


def test_programs_are_short() -> None:
    # Each instruction is paid for by every call that is decided by its arguments, and at installation.
    assert max(len(program) // 8 for program in PROGRAMS.values()) <= 256


def test_a_machine_without_a_table_is_an_error_that_names_it() -> None:
    with pytest.raises(TierUnavailableError, match="riscv64"):
        build_filter(machine="riscv64")
    with pytest.raises(TierUnavailableError, match="riscv64"):
        describe(machine="riscv64")


def test_the_description_names_every_call_once_with_its_verdict() -> None:
    lines = describe(machine="aarch64")
    for call in dict(BY_NUMBER["aarch64"].values()):
        assert sum(call in line.replace(":", " ").split() for line in lines) == 1, call
    assert any("EPERM" in line and "unshare" in line for line in lines)
    assert any("allowed" in line and "unshare" in line for line in describe(nested=True, machine="aarch64"))
    assert any("allowed" in line and "ptrace" in line for line in describe(debug=True, machine="aarch64"))
    assert not any(" open " in line for line in lines)
