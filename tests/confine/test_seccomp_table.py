"""The numbers of the table against two sources that are not ours: the kernel's headers and libseccomp.

Both are needed: Debian's linux-libc-dev and libseccomp2.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from ringfence.confine.seccomp.arguments import RULES
from ringfence.confine.seccomp.filter import AUDIT_ARCH
from ringfence.confine.seccomp.table import GROUPS, Machine, Verdict

MACHINES: tuple[Machine, ...] = get_args(Machine)
SHARED_FROM = 424  # from here on every machine has the same numbers
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")
X86_HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))
# The generic header also names what a 64-bit machine has not: calls for 64-bit time on 32-bit ones, one variant of a
# call, and the start of each machine's own range.
ONLY_ON_32_BITS = range(403, SHARED_FROM)
NOT_CALLS_OF_AARCH64 = {"sync_file_range2", "arch_specific_syscall", "syscalls"}


def table(machine: Machine) -> dict[str, int]:
    return {call: number for group in GROUPS for call, number in group.numbers(machine).items()}


def from_header(machine: Machine) -> dict[str, int]:
    path = GENERIC_HEADER
    if machine == "x86_64":
        path = next((path for path in X86_HEADERS if path.exists()), X86_HEADERS[0])
    assert path.exists(), f"{path} is missing: install the kernel's headers (Debian: linux-libc-dev)"
    rows = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
    found = {name: int(number) for name, number in rows}
    if machine == "aarch64":
        found = {
            name: number for name, number in found.items() if number not in ONLY_ON_32_BITS and name not in NOT_CALLS_OF_AARCH64
        }
        found["newfstatat"] = found.pop("fstatat")  # the name of the same number where pointers have 64 bits
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_of_the_kernel_headers_is_in_the_table_under_its_number(machine: Machine) -> None:
    header, ours = from_header(machine), table(machine)
    assert len(header) > 280
    # Headers newer than the table name newer calls: those are absent from a box, which is what the table says of them.
    reviewed = max(ours.values())
    assert {call: ours.get(call) for call in header if header[call] <= reviewed} == {
        call: number for call, number in header.items() if number <= reviewed
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_is_the_one_that_libseccomp_gives(machine: Machine) -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise AssertionError("libseccomp.so.2 is missing: install it (Debian: libseccomp2)") from error
    resolve = library.seccomp_syscall_resolve_name_arch
    resolve.argtypes, resolve.restype = [ctypes.c_uint32, ctypes.c_char_p], ctypes.c_int
    theirs = {call: resolve(AUDIT_ARCH[machine], call.encode()) for call in all_names()}
    known = {call: number for call, number in theirs.items() if number >= 0}
    ours = table(machine)
    assert len(known) > 280
    assert {call: ours.get(call) for call in known} == known
    # What the library does not know at all (-1) is newer than it; a call that only the other machine has is below -1.
    assert all(theirs[call] == -1 for call in ours.keys() - known.keys())


def all_names() -> set[str]:
    return {row.split()[0] for group in GROUPS for row in group.rows.split(",")}


def test_new_calls_have_the_same_number_on_every_machine() -> None:
    first, second = ({call: number for call, number in table(machine).items() if number >= SHARED_FROM} for machine in MACHINES)
    assert first == second
    assert sorted(first.values()) == list(range(SHARED_FROM, max(first.values()) + 1))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_and_a_number_are_judged_once(machine: Machine) -> None:
    names = Counter(row.split()[0] for group in GROUPS for row in group.rows.split(","))
    numbers = Counter(number for group in GROUPS for number in group.numbers(machine).values())
    assert [name for name, count in names.items() if count > 1] == []
    assert [number for number, count in numbers.items() if count > 1] == []


def test_each_call_that_is_decided_by_its_arguments_has_exactly_one_rule() -> None:
    checked = [row.split()[0] for group in GROUPS if group.verdict is Verdict.CHECK for row in group.rows.split(",")]
    assert sorted(checked) == sorted(call for rule in RULES for call in rule.calls)


def test_only_what_is_forbidden_can_be_opened_by_a_switch() -> None:
    assert {group.verdict for group in GROUPS if group.opened_by is not None} == {Verdict.REFUSE}
