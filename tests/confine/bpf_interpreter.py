"""An independent reading of what a seccomp program decides, for the tests: one plain loop over its instructions."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def decide(program: bytes, arch: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Returns the SECCOMP_RET_* value for a call. Fails on whatever the kernel's own check of a filter refuses."""
    values = [argument & 0xFFFFFFFFFFFFFFFF for argument in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0x1234, *values)  # struct seccomp_data
    instructions: list[tuple[int, int, int, int]] = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, when_true, when_false, constant = instructions[at]
        at += 1
        match code:
            case 0x20:
                assert constant % 4 == 0
                assert constant < len(data)
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += when_true if accumulator == constant else when_false
            case 0x35:
                at += when_true if accumulator >= constant else when_false
            case 0x45:
                at += when_true if accumulator & constant else when_false
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"instruction {code:#x} is not one that the kernel can reason about")
