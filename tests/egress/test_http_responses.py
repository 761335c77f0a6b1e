"""Responses as transcripts: what the client gets, what is kept, and what is not passed on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress.http_proxy import Body, Done, Request, Requests
from ringfence.egress.http_response import Response, Responses
from ringfence.egress.refusals import BadBytesError

FUZZED = 20_000


def asked(line: bytes = b"GET http://files.example.org/ HTTP/1.1", *headers: bytes) -> Request:
    requests = Requests()
    requests.receive(b"\r\n".join([line, b"Host: files.example.org", *headers, b"", b""]))
    request = requests.next()
    assert isinstance(request, Request)
    return request


GET = asked()
OLD = asked(b"GET http://files.example.org/ HTTP/1.0")
HEAD = asked(b"HEAD http://files.example.org/ HTTP/1.1")
CLOSING = asked(b"GET http://files.example.org/ HTTP/1.1", b"Connection: close")
WEBSOCKET = asked(b"GET http://files.example.org/ HTTP/1.1", b"Connection: Upgrade", b"Upgrade: websocket")


def run(request: Request, pieces: list[bytes], *, ended: bool = False) -> tuple[bytes, str]:
    """All that the client gets, and how it ended: keep, keep+reuse, close, tunnel, bad, or more."""
    responses, got = Responses(request), b""
    try:
        for at, each in enumerate([*pieces, None] if ended else pieces):
            if each is None:
                responses.end()
            else:
                responses.receive(each)
            while (event := responses.next()) is not None:
                match event:
                    case Response(tunnel=True):
                        return got + event.head + responses.rest() + b"".join(pieces[at + 1 :]), "tunnel"
                    case Response():
                        got += event.head
                    case Body(data):
                        assert data
                        got += data
                    case Done(keep, reusable):
                        return got, "close" if not keep else "keep+reuse" if reusable else "keep"
    except BadBytesError as error:
        return got + error.answer, "bad"
    return got, "more"


def answer(*headers: bytes, body: bytes = b"", line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([line, *headers, b"", body])


CHUNKS = b"5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\n\r\n"
GETS = {
    "a length": (GET, answer(b"Content-Length: 5", body=b"hello"), answer(b"Content-Length: 5", body=b"hello"), "keep+reuse"),
    "a length said twice alike": (
        GET,
        answer(b"Content-Length: 5", b"content-length: 5", body=b"hello"),
        answer(b"Content-Length: 5", body=b"hello"),
        "keep+reuse",
    ),
    "chunks": (
        GET,
        answer(b"Transfer-Encoding: chunked", body=CHUNKS),
        answer(b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"),
        "keep+reuse",
    ),
    "chunks and a length": (
        GET,
        answer(b"Content-Length: 3", b"Transfer-Encoding: Chunked", body=CHUNKS),
        answer(b"Transfer-Encoding: chunked", b"Connection: close", body=b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"),
        "close",
    ),
    "chunks for HTTP/1.0": (
        OLD,
        answer(b"Transfer-Encoding: chunked", body=CHUNKS),
        answer(b"Connection: close", body=b"hello"),
        "close",
    ),
    "nothing that says": (GET, answer(body=b"hello"), answer(b"Connection: close", body=b"hello"), "close"),
    "HEAD with a length": (HEAD, answer(b"Content-Length: 5"), answer(b"Content-Length: 5"), "keep+reuse"),
    "HEAD with chunks": (HEAD, answer(b"Transfer-Encoding: chunked"), answer(b"Transfer-Encoding: chunked"), "keep+reuse"),
    "HEAD with a body": (HEAD, answer(b"Content-Length: 5", body=b"hello"), answer(b"Content-Length: 5"), "keep"),
    "204": (
        GET,
        answer(b"Content-Length: 0", line=b"HTTP/1.1 204 No Content"),
        answer(line=b"HTTP/1.1 204 No Content"),
        "keep+reuse",
    ),
    "304": (
        GET,
        answer(b"Content-Length: 9", line=b"HTTP/1.1 304 Not Modified"),
        answer(b"Content-Length: 9", line=b"HTTP/1.1 304 Not Modified"),
        "keep+reuse",
    ),
    "no reason": (
        GET,
        answer(b"Content-Length: 0", line=b"HTTP/1.1 200"),
        answer(b"Content-Length: 0", line=b"HTTP/1.1 200 "),
        "keep+reuse",
    ),
    "the far side closes": (GET, answer(b"Content-Length: 0", b"Connection: close"), answer(b"Content-Length: 0"), "keep"),
    "the far side is old": (GET, answer(b"Content-Length: 0", line=b"HTTP/1.0 200 OK"), answer(b"Content-Length: 0"), "keep"),
    "the client closes": (CLOSING, answer(b"Content-Length: 0"), answer(b"Content-Length: 0", b"Connection: close"), "close"),
    "more than was asked for": (GET, answer(b"Content-Length: 0") * 2, answer(b"Content-Length: 0"), "keep"),
    "interim responses": (
        GET,
        answer(line=b"HTTP/1.1 100 Continue")
        + answer(b"Link: </a>", line=b"HTTP/1.1 103 Early Hints")
        + answer(b"Content-Length: 0"),
        answer(line=b"HTTP/1.1 100 Continue")
        + answer(b"Link: </a>", line=b"HTTP/1.1 103 Early Hints")
        + answer(b"Content-Length: 0"),
        "keep+reuse",
    ),
    "interim responses for HTTP/1.0": (
        OLD,
        answer(line=b"HTTP/1.1 100 Continue") + answer(b"Content-Length: 0"),
        answer(b"Content-Length: 0", b"Connection: close"),
        "close",
    ),
    "what is of this connection, and our marks": (
        GET,
        answer(
            b"Connection: X-Hop, keep-alive",
            b"X-Hop: 1",
            b"Keep-Alive: timeout=5",
            b"Proxy-Authenticate: Basic",
            b"Upgrade: h2",
            b'x-ringfence-DENIED: host="a"',
            b"X-Ringfence-Error: a",
            b"X: 1",
            b"Content-Length: 0",
        ),
        answer(b"X: 1", b"Content-Length: 0"),
        "keep+reuse",
    ),
    "a WebSocket": (
        WEBSOCKET,
        answer(b"connection: upgrade", b"upgrade: WebSocket", b"Sec-WebSocket-Accept: x", line=b"HTTP/1.1 101 Yes", body=b"\x81\0"),
        answer(
            b"Sec-WebSocket-Accept: x",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            line=b"HTTP/1.1 101 Switching Protocols",
            body=b"\x81\0",
        ),
        "tunnel",
    ),
    "a WebSocket refused": (
        WEBSOCKET,
        answer(b"Content-Length: 0", line=b"HTTP/1.1 426 No"),
        answer(b"Content-Length: 0", b"Connection: close", line=b"HTTP/1.1 426 No"),
        "close",
    ),
}


SEEN_LATE = ("HEAD with a body", "more than was asked for")


@pytest.mark.parametrize("what", GETS)
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_what_the_client_gets(what: str, step: int) -> None:
    request, sent, got, end = GETS[what]
    found = run(request, [sent[at : at + step] for at in range(0, len(sent), step)], ended=True)
    # Behind the last byte of a message the others are not waited for.
    assert found == (got, end.replace("keep", "keep+reuse") if step == 1 and what in SEEN_LATE else end)


BAD = {
    "lengths that differ": answer(b"Content-Length: 5", b"Content-Length: 6", body=b"hello"),
    "a list of lengths": answer(b"Content-Length: 5, 5", body=b"hello"),
    "length +5": answer(b"Content-Length: +5", body=b"hello"),
    "gzip, chunked": answer(b"Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "identity": answer(b"Transfer-Encoding: identity", body=b"hello"),
    "chunked twice": answer(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=CHUNKS),
    "an upgrade that nobody asked for": answer(b"Connection: upgrade", b"Upgrade: websocket", line=b"HTTP/1.1 101 Switching"),
    "HTTP/2": answer(line=b"HTTP/2 200 OK"),
    "HTTP/0.9": b"hello\r\n",
    "a status of two digits": answer(line=b"HTTP/1.1 20 OK"),
    "status 600": answer(line=b"HTTP/1.1 600 OK"),
    "bare LF": answer(b"Content-Length: 0").replace(b"\r\n", b"\n"),
    "folding": answer(b"X: a", b" b", b"Content-Length: 0"),
    "a blank before the colon": answer(b"Content-Length : 0"),
    "a NUL": answer(b"X: a\0", b"Content-Length: 0"),
    "too many headers": answer(*[b"X: a"] * 257),
    "a giant head": answer(b"X: " + b"a" * 128 * 1024),
    "33 interim responses": answer(line=b"HTTP/1.1 102 Processing") * 33,
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\n",
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_what_has_two_readings_is_not_passed_on(what: str, step: int) -> None:
    sent = BAD[what]
    got, end = run(GET, [sent[at : at + step] for at in range(0, len(sent), step)], ended=True)
    assert end == "bad"
    assert b"HTTP/1.1 502 Bad Gateway\r\nX-Ringfence-Error: " in got and b"hello" not in got


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        (answer(b"Content-Length: 5", body=b"hell"), answer(b"Content-Length: 5", body=b"hell")),
        (answer(b"Transfer-Encoding: chunked", body=b"5\r\nhell"), answer(b"Transfer-Encoding: chunked", body=b"5\r\nhell")),
        (answer(b"Transfer-Encoding: chunked", body=b"5\r\nhelloX"), answer(b"Transfer-Encoding: chunked", body=b"5\r\nhello")),
    ],
)
def test_a_body_that_breaks_off_ends_the_connection_without_a_word_more(sent: bytes, given: bytes) -> None:
    assert run(GET, [sent], ended=True) == (given, "bad")


def test_bytes_of_a_body_may_be_moved_by_others() -> None:
    responses = Responses(GET)
    responses.receive(answer(b"Content-Length: 100", body=b"12345"))
    assert isinstance(responses.next(), Response) and responses.plain == 0
    assert responses.next() == Body(b"12345") and responses.plain == 95
    responses.moved(95)
    assert responses.next() == Done(True, True)
    until_close = Responses(GET)
    until_close.receive(answer())
    assert isinstance(until_close.next(), Response) and until_close.plain is None
    assert until_close.next() is None
    until_close.end()
    assert until_close.next() == Done(False, False)


CASES = [*((request, sent) for request, sent, _, _ in GETS.values()), *((GET, each) for each in BAD.values() if len(each) < 2000)]


@given(st.sampled_from(CASES), st.booleans(), st.data())
@settings(max_examples=400, deadline=None)
def test_cuts_make_no_difference(case: tuple[Request, bytes], ended: bool, data: st.DataObject) -> None:
    request, sent = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    cut = run(request, [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)], ended=ended)
    assert same(cut, run(request, [sent], ended=ended))


def same(one: tuple[bytes, str], other: tuple[bytes, str]) -> bool:
    """What is behind the message decides only whether the far side's connection is used again, if it is there already."""
    return (one[0], one[1].removesuffix("+reuse")) == (other[0], other[1].removesuffix("+reuse"))


def test_twenty_thousand_broken_responses_break_nothing_and_no_mark_of_ours_comes_from_a_site() -> None:
    draw = random.Random(22)
    marks = (b"X-Ringfence-Denied: a\r\n", b"X-RINGFENCE-ERROR: a\r\n")
    pieces = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b":",
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        *marks,
    ]
    ends: dict[str, int] = {}
    for _ in range(FUZZED):
        request, seed = draw.choice(CASES if draw.random() < 0.3 else CASES[: len(GETS)])
        sent = bytearray(seed.replace(b"\r\nX", b"\r\n" + draw.choice(marks) + b"X") or b"x")
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 0, 1, 2))] = draw.choice(pieces) if draw.random() < 0.7 else draw.randbytes(1)
            sent = sent or bytearray(1)
        got, end = whole = run(request, [bytes(sent)], ended=True)
        cut = draw.randrange(len(sent))
        assert same(run(request, [bytes(sent[:cut]), bytes(sent[cut:])], ended=True), whole)
        head = got.partition(b"\r\n\r\n")[0].lower()
        assert b"\r\nx-ringfence-denied" not in head
        assert (b"\r\nx-ringfence-error" in head) <= (end == "bad")
        ends[end] = ends.get(end, 0) + 1
    assert min(ends.get(each, 0) for each in ("keep+reuse", "close", "bad", "tunnel")) > 20
