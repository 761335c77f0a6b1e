"""What a guest may say: its own messages, and nothing else gives anything but ProtocolError."""

from __future__ import annotations

import os
import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ProtocolError
from ringfence.guest import wire
from ringfence.process import messages

# A million takes half a minute where the machine is shared: left to continuous integration, which sets CI (.ci/run).
MUTATIONS = 1_000_000 if os.environ.get("CI") else 100_000

GOOD = {
    messages.Ready(): {"ready": 1},
    messages.Started(17): {"started": 17},
    messages.Refused("tree", "/usr", 13): {"failed": 13, "stage": "tree", "path": "/usr"},
    messages.Failed(2, "exec", "/w/x", 0, "", 0): {"failed": 2, "stage": "exec", "path": "/w/x", "mode": 0, "cause": "", "pid": 0},
    messages.Ended(256, 0.5, 0.25, 1.5, "", ("a", "b/c"), 7): {
        "pid": 7, "status": 256, "user": 500_000, "system": 250_000, "took": 1_500_000_000, "cause": "", "created": ["a", "b/c"],
    },
    messages.Ended(9, 0, 0, 0, "deadline", None, 7): {
        "pid": 7, "status": 9, "user": 0, "system": 0, "took": 0, "cause": "deadline",
    },
}  # fmt: skip


@pytest.mark.parametrize(("message", "fields"), GOOD.items(), ids=[type(each).__name__ for each in GOOD])
def test_each_message_is_read_as_it_was_said(message: object, fields: dict[str, object]) -> None:
    assert messages.parse(wire.encode(fields)) == message


BAD: dict[str, object] = {
    "no message": [],
    "a number": 7,
    "no field": {},
    "an unknown field": {"ready": 1, "extra": 1},
    "a pid that is none": {"started": 0},
    "a pid past the kernel's": {"started": 1 << 23},
    "a negative time": {"status": 0, "user": -1, "system": 0, "took": 0, "pid": 7, "cause": ""},
    "a status that no ended process has": {"status": 0x7F, "user": 0, "system": 0, "took": 0, "pid": 7, "cause": ""},
    "an unknown cause": {"status": 0, "user": 0, "system": 0, "took": 0, "pid": 7, "cause": "because"},
    "text for a number": {"started": "7"},
    "an absolute name": {"status": 0, "user": 0, "system": 0, "took": 0, "pid": 7, "cause": "", "created": ["/etc/passwd"]},
    "a name that leads outside": {"status": 0, "user": 0, "system": 0, "took": 0, "pid": 7, "cause": "", "created": ["a/../../b"]},
    "too many names": {"status": 0, "user": 0, "system": 0, "took": 0, "pid": 7, "cause": "", "created": ["a"] * 257},
    "a path too long": {"failed": 1, "stage": "tree", "path": "x" * 5000},
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD.keys())
def test_anything_else_is_a_protocol_error(said: object) -> None:
    with pytest.raises(ProtocolError):
        messages.parse(wire.encode(said))


def mutated(source: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(source.choice(seeds))
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        match source.randrange(4):
            case 0:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                data[at:at] = source.choice(seeds)[: source.randrange(12)]
            case 2:
                del data[at : at + source.randrange(8)]
            case _:
                data[at:at] = source.choice((b"d", b"l", b"e", b"i", b"0:", b"9" * 30, b"i-0e", b"99999:"))
    return bytes(data)


@pytest.mark.timeout(300)
def test_mutated_messages_give_only_protocol_errors_and_no_growth() -> None:
    seed = random.randrange(1 << 32)
    source = random.Random(seed)
    seeds = [wire.encode(fields) for fields in GOOD.values()]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(MUTATIONS):
        try:
            messages.parse(mutated(source, seeds))
        except ProtocolError:
            refused += 1
        except BaseException as error:
            pytest.fail(f"seed {seed}: {error!r}")
    assert refused > MUTATIONS // 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


values = st.recursive(
    st.integers(-(10**19), 10**19) | st.binary(max_size=64),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=6), inner, max_size=4),
    max_leaves=12,
)


def depth(value: object) -> int:
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return 1 + max(map(depth, inner), default=-1) if inner or isinstance(value, (list, dict)) else 0


@given(values)
def test_what_is_encoded_is_decoded_as_it_was(value: object) -> None:
    if depth(value) <= wire.MAX_DEPTH:
        assert wire.decode(wire.encode(value)) == value


@given(st.binary(max_size=200))
def test_bytes_have_one_meaning_or_none(data: bytes) -> None:
    try:
        value = wire.decode(data)
    except wire.WireError:
        return
    assert wire.encode(value) == data


def test_nesting_is_bounded_before_it_can_exhaust_the_stack() -> None:
    with pytest.raises(wire.WireError):
        wire.decode(b"l" * 100_000 + b"e" * 100_000)
