"""Output within bounds: the head, the tail, how much was left out, and no character cut in two."""

from __future__ import annotations

import os

from hypothesis import example, given
from hypothesis import strategies as st

from ringfence.outcome import Output
from ringfence.process.output import Stream


def streamed(chunks: list[bytes], keep: int) -> Stream:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        stream = Stream(reading, keep)
        for chunk in chunks:
            os.write(writing, chunk)
            while stream.read():
                pass
        return stream
    finally:
        os.close(reading)
        os.close(writing)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=12), st.integers(1, 400))
def test_head_and_tail_are_exact_for_any_chunks_and_any_bound(chunks: list[bytes], keep: int) -> None:
    whole = b"".join(chunks)
    stream = streamed(chunks, keep)
    output = stream.output()
    assert stream.total == len(whole)
    assert output.omitted == max(0, len(whole) - keep)
    if not output.omitted:
        assert output.data == whole
    else:
        assert whole.startswith(output.head)
        assert whole.endswith(output.tail)
        assert len(output.head) == (keep + 1) // 2
        assert len(output.head) + len(output.tail) + output.omitted == len(whole)


@given(st.text(min_size=1, max_size=60), st.integers(1, 100))
@example("\u0800", 2)  # all that is kept of it are its first and its last byte
def test_text_is_never_cut_inside_a_character(text: str, keep: int) -> None:
    data = text.encode("utf-8", "replace")
    output = streamed([data], keep).output()
    clean = data.decode()
    if not output.omitted:
        assert output.text == clean
    else:
        head, _, rest = output.text.partition("\n[... ")
        left_out, _, tail = rest.partition(" bytes left out ...]\n")
        assert clean.startswith(head)
        assert clean.endswith(tail)
        assert len(head.encode()) + int(left_out) + len(tail.encode()) == len(data)


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(1, 1000))
def test_bytes_that_are_no_text_are_replaced_and_counted_and_never_raise(head: bytes, tail: bytes, omitted: int) -> None:
    output = Output(head, tail, omitted)
    left_out = int(output.text.partition("[... ")[2].split()[0]) if b"[... " not in head else omitted
    assert omitted <= left_out <= omitted + 6
    assert output.data == head + tail
