"""Classic BPF as seccomp runs it: a decision graph, and its assembly into `struct sock_filter[]`.

A conditional jump reaches 255 instructions ahead at most and only forwards. So the graph is placed from its end towards
its start: each target is placed before the jump that needs it, its distance is known, and one that is too far away is
reached through a copy (of a return) or an unconditional jump, whose distance has 32 bits, put right behind the branch.

Only instructions that the kernel's own emulation understands are used (seccomp_is_const_allow in kernel/seccomp.c):
with these it finds out at installation which calls are always allowed, and never runs the program for them.
Sources: linux/bpf_common.h, linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ringfence.values import frozen

NR_OFFSET = 0
ARCH_OFFSET = 4
ARGS_OFFSET = 16

LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP = 0x05  # BPF_JMP | BPF_JA
JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

FURTHEST_BRANCH = 255
MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS


@frozen
class Return:
    """Ends the program with a verdict (SECCOMP_RET_*)."""

    __eq__, __hash__ = object.__eq__, object.__hash__
    value: int


@frozen
class Load:
    """Puts the 32-bit word at `offset` of `struct seccomp_data` into the accumulator."""

    __eq__, __hash__ = object.__eq__, object.__hash__
    offset: int
    then: Node


@frozen
class Mask:
    """Keeps those bits of the accumulator that are in `bits`."""

    __eq__, __hash__ = object.__eq__, object.__hash__
    bits: int
    then: Node


@frozen
class Branch:
    """Compares the accumulator with a constant and goes one of two ways. It leaves the accumulator as it is."""

    __eq__, __hash__ = object.__eq__, object.__hash__
    operation: int
    constant: int
    when_true: Node
    when_false: Node


Node = Return | Load | Mask | Branch


def assemble(start: Node) -> bytes:
    """Returns the packed program, in the byte order of this machine, that decides as the graph from `start` does.

    Raises ValueError when it would be longer than the kernel takes (4096 instructions).
    """
    placement = _Placement()
    placement.place(start)
    instructions = placement.backwards[::-1]
    if len(instructions) > MOST_INSTRUCTIONS:
        raise ValueError(f"a filter of {len(instructions)} instructions; the kernel takes {MOST_INSTRUCTIONS}")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def search(starts: Sequence[int], nodes: Sequence[Node]) -> Node:
    """A binary search on the accumulator: `nodes[i]` decides from `starts[i]` up to the next start.

    `starts` is sorted and begins with 0; neighbours that are the same node are one range.
    """
    ranges = [
        (first, node)
        for index, (first, node) in enumerate(zip(starts, nodes, strict=True))
        if index == 0 or node is not nodes[index - 1]
    ]

    def between(low: int, high: int) -> Node:
        if high - low == 1:
            return ranges[low][1]
        middle = (low + high) // 2
        return Branch(JUMP_AT_LEAST, ranges[middle][0], between(middle, high), between(low, middle))

    return between(0, len(ranges))


class _Placement:
    """The program from its last instruction to its first. A position counts from the end, so it never changes."""

    def __init__(self) -> None:
        self.backwards: list[tuple[int, int, int, int]] = []
        self._placed: dict[int, int] = {}  # by id(): the graph outlives this object
        self._returns: dict[int, int] = {}  # where a return of this value was put last

    def place(self, node: Node) -> int:
        """Makes sure that `node` is in the program and returns its position."""
        if isinstance(node, Return):
            if node.value not in self._returns:
                self._returns[node.value] = self._add(RETURN, node.value)
            return self._returns[node.value]
        if id(node) in self._placed:
            return self._placed[id(node)]
        if isinstance(node, Branch):
            position = self._branch(node)
        else:
            self._fall_into(node.then)
            word = (LOAD_WORD, node.offset) if isinstance(node, Load) else (AND, node.bits)
            position = self._add(*word)
        self._placed[id(node)] = position
        return position

    def _add(self, code: int, constant: int, when_true: int = 0, when_false: int = 0) -> int:
        self.backwards.append((code, when_true, when_false, constant))
        return len(self.backwards) - 1

    def _ahead(self, position: int) -> int:
        """How many instructions the next one to be added would jump over to get to `position`."""
        return len(self.backwards) - 1 - position

    def _fall_into(self, node: Node) -> None:
        position = self.place(node)
        if self._ahead(position):
            if isinstance(node, Return):
                self._returns[node.value] = self._add(RETURN, node.value)
            else:
                self._add(JUMP, self._ahead(position))

    def _branch(self, node: Branch) -> int:
        far = self.place(node.when_true)
        near = self.place(node.when_false)
        # Each stand-in pushes the other target one further away, hence the margin.
        if self._ahead(far) >= FURTHEST_BRANCH:
            far = self._stand_in(node.when_true, far)
        if self._ahead(near) >= FURTHEST_BRANCH:
            near = self._stand_in(node.when_false, near)
        return self._add(node.operation, node.constant, self._ahead(far), self._ahead(near))

    def _stand_in(self, node: Node, position: int) -> int:
        if isinstance(node, Return):
            self._returns[node.value] = self._add(RETURN, node.value)
            return self._returns[node.value]
        return self._add(JUMP, self._ahead(position))
