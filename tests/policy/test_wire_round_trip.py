"""What is encoded for the other side is decoded to the same, and nothing else decodes to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.guest import wire

INTEGERS = st.integers(-(10**18), 10**18)
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=6)


def nested(depth: int) -> st.SearchStrategy[object]:
    plain: st.SearchStrategy[object] = INTEGERS | st.binary(max_size=40)
    for _ in range(depth):
        plain = plain | st.lists(plain, max_size=4) | st.dictionaries(KEYS, plain, max_size=4)
    return plain


@given(nested(3))
def test_every_value_comes_back_as_it_was_by_one_spelling(value: object) -> None:
    data = wire.encode(value)
    assert wire.decode(data) == value and wire.encode(wire.decode(data)) == data
    for other in (data + b"e", data + data, data[:-1], b" " + data):
        with pytest.raises(wire.WireError):
            wire.decode(other)


@given(st.binary(max_size=200))
def test_bytes_decode_to_a_value_that_encodes_to_them_or_not_at_all(data: bytes) -> None:
    try:
        value = wire.decode(data)
    except wire.WireError:
        return
    assert wire.encode(value) == data


@given(nested(2), st.data())
def test_a_changed_byte_gives_another_value_or_an_error(value: object, data: st.DataObject) -> None:
    encoded = bytearray(wire.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = (encoded[at] + data.draw(st.integers(1, 255))) % 256
    try:
        assert wire.decode(bytes(encoded)) != value
    except wire.WireError:
        pass


@given(st.binary(max_size=60))
def test_names_that_are_not_utf_8_travel_as_text(name: bytes) -> None:
    assert wire.decode(wire.encode(name.decode("utf-8", "surrogateescape"))) == name


@pytest.mark.parametrize(
    "data",
    [b"i01e", b"i-0e", b"ie", b"i+1e", b"01:a", b"1:", b"-1:a", b"d1:bi1e1:ai1ee", b"d1:ai1e1:ai1ee", b"di1ei1ee", b"l" * 50],
)
def test_another_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data)
    assert wire.decode(b"d1:ai1e1:bi-1ee") == {"a": 1, "b": -1}


def test_what_has_no_form_is_refused_when_it_is_sent() -> None:
    for value in (1.5, None, object(), {"a": {1.5}}):
        with pytest.raises(TypeError):
            wire.encode(value)
