from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confine.bpf_interpreter import decide
from ringfence.confine.seccomp.bpf import (
    ARGS_OFFSET,
    JUMP_ANY_BIT,
    JUMP_AT_LEAST,
    JUMP_EQUAL,
    NR_OFFSET,
    Branch,
    Load,
    Mask,
    Node,
    Return,
    assemble,
    search,
)


def walk(node: Node, number: int, arguments: list[int]) -> int:
    """What the graph itself says, without any assembly."""
    accumulator = 0
    while not isinstance(node, Return):
        match node:
            case Load(offset, then):
                if offset == NR_OFFSET:
                    accumulator = number
                else:
                    index, half = divmod(offset - ARGS_OFFSET, 8)
                    accumulator = arguments[index] >> (8 * half) & 0xFFFFFFFF
                node = then
            case Mask(bits, then):
                accumulator &= bits
                node = then
            case Branch(operation, constant, when_true, when_false):
                holds = {
                    JUMP_EQUAL: accumulator == constant,
                    JUMP_AT_LEAST: accumulator >= constant,
                    JUMP_ANY_BIT: bool(accumulator & constant),
                }[operation]
                node = when_true if holds else when_false
    return node.value


def random_graph(random: Random, size: int) -> Node:
    """A graph of `size` inner nodes that point to any earlier one: near and far, shared and not."""
    nodes: list[Node] = [Return(value) for value in range(6)]
    for _ in range(size):
        target = random.choice(nodes[-40:] if random.random() < 0.7 else nodes)
        kind = random.random()
        if kind < 0.15:
            nodes.append(Load(random.choice([NR_OFFSET, ARGS_OFFSET, ARGS_OFFSET + 4, ARGS_OFFSET + 8]), target))
        elif kind < 0.2:
            nodes.append(Mask(random.getrandbits(4), target))
        else:
            operation = random.choice([JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT])
            pair = [target, random.choice(nodes)]
            random.shuffle(pair)
            nodes.append(Branch(operation, random.randrange(16), *pair))
    return Load(NR_OFFSET, nodes[-1])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 5, 40, 300, 900]))
def test_an_assembled_program_decides_as_its_graph_however_far_its_jumps_are(seed: int, size: int) -> None:
    random = Random(seed)
    graph = random_graph(random, size)
    program = assemble(graph)
    for _ in range(20):
        number, arguments = random.randrange(16), [random.choice([random.randrange(16), random.getrandbits(64)])] * 6
        assert decide(program, 0, number, arguments) == walk(graph, number, arguments)


def test_a_branch_over_more_than_255_instructions_goes_through_a_stand_in() -> None:
    far: Node = Mask(0x7, Branch(JUMP_EQUAL, 5, Return(1), Return(2)))
    for distance in range(240, 270):
        long = far
        for _ in range(distance):
            long = Mask(0xFF, long)
        also_far = Mask(0x3, Branch(JUMP_EQUAL, 1, Return(3), Return(4)))
        inner = Branch(JUMP_AT_LEAST, 0x40, also_far, long)
        graph = Load(NR_OFFSET, Branch(JUMP_ANY_BIT, 0x80, also_far, Branch(JUMP_ANY_BIT, 0x20, far, inner)))
        program = assemble(graph)
        for number in range(256):
            assert decide(program, 0, number) == walk(graph, number, [0] * 6), (distance, number)


@given(
    st.dictionaries(st.integers(1, 2**32 - 1), st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 2**32 - 1), max_size=20),
)
def test_a_search_finds_the_range_that_a_number_lies_in(ranges: dict[int, int], probes: list[int]) -> None:
    verdicts = [Return(value) for value in range(4)]
    starts = sorted({0: 0, **ranges})
    kinds = [({0: 0, **ranges})[start] for start in starts]
    program = assemble(Load(NR_OFFSET, search(starts, [verdicts[kind] for kind in kinds])))
    edges = [start + step for start in starts for step in (-1, 0, 1) if 0 <= start + step < 2**32]
    for probe in [*probes, *edges]:
        expected = next(kind for start, kind in zip(reversed(starts), reversed(kinds), strict=True) if start <= probe)
        assert decide(program, 0, probe) == expected


def test_a_node_that_is_shared_is_placed_once() -> None:
    shared = Load(ARGS_OFFSET, Branch(JUMP_EQUAL, 1, Return(1), Return(2)))
    graph = Load(NR_OFFSET, Branch(JUMP_EQUAL, 7, shared, Branch(JUMP_EQUAL, 8, shared, Return(3))))
    assert len(assemble(graph)) // struct.calcsize("=HBBI") == 8


def test_a_program_longer_than_the_kernel_takes_is_an_error() -> None:
    verdicts = [Return(value) for value in range(2)]

    def alternating(ranges: int) -> Node:
        return Load(NR_OFFSET, search(range(ranges), [verdicts[index % 2] for index in range(ranges)]))

    assert len(assemble(alternating(3000))) // 8 <= 4096
    with pytest.raises(ValueError, match="4096"):
        assemble(alternating(4100))
