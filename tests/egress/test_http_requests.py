"""Requests as transcripts: what goes up, what is refused, and that nothing goes up that has two readings."""

from __future__ import annotations

import random
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress.http_head import MAX_HEAD
from ringfence.egress.http_proxy import Body, Done, Request, Requests
from ringfence.egress.http_target import host_field
from ringfence.egress.refusals import BadBytesError
from ringfence.policy.hosts import Address, Name

FUZZED = 20_000
SITE = (Name("files.example.org"), 80)


def run(
    pieces: list[bytes], fixed: tuple[Name | Address, int] | None = None, *, ended: bool = False
) -> tuple[bytes, str, list[Request], bool]:
    """All that would go up, the status of a refusal or "", the requests, and whether the connection is still good.

    Every request is let out, and every response is taken to be given at once.
    """
    requests, up, seen, kept = Requests(fixed), b"", [], True
    try:
        for at, each in enumerate([*pieces, None] if ended else pieces):
            if each is None:
                requests.end()
            else:
                requests.receive(each)
            while (event := requests.next()) is not None:
                match event:
                    case Request(scheme="connect"):
                        seen.append(event)
                        rest = requests.rest() + b"".join(pieces[at + 1 :])
                        return up + b"[%b:%d]" % (event.host.text.encode(), event.port) + rest, "", seen, False
                    case Request():
                        seen.append(event)
                        up += event.head()
                    case Body(data):
                        assert data
                        up += data
                    case Done(keep):
                        if not keep:
                            rest = requests.rest() + b"".join(pieces[at + 1 :]) if seen[-1].upgrade else b""
                            return up + rest, "", seen, False
                        requests.again()
    except BadBytesError as error:
        first, mark, *_ = error.answer.split(b"\r\n")
        return up, first[9:12].decode() if mark.startswith(b"X-Ringfence-Error: ") else "not ours", seen, False
    return up, "", seen, kept


def request(line: bytes, *headers: bytes, body: bytes = b"", host: bytes | None = b"files.example.org") -> bytes:
    return b"\r\n".join([line, *([b"Host: " + host] if host is not None else []), *headers, b"", body])


GET = request(b"GET http://files.example.org/a?b HTTP/1.1", b"Accept: */*")
GET_UP = b"GET /a?b HTTP/1.1\r\nHost: files.example.org\r\nAccept: */*\r\n\r\n"
CHUNKED = request(
    b"POST http://files.example.org/up HTTP/1.1",
    b"Transfer-Encoding: chunked",
    body=b"5;name=value\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nContent-Length: 3\r\n\r\n",
)
CHUNKED_UP = (
    b"POST /up HTTP/1.1\r\nHost: files.example.org\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\na\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n"
)

GOES_UP = {
    "absolute form": (GET, GET_UP),
    "no path": (request(b"GET http://files.example.org HTTP/1.1"), b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n"),
    "only a query": (
        request(b"GET http://files.example.org?q=1 HTTP/1.1"),
        b"GET /?q=1 HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
    ),
    "a port": (
        request(b"GET http://files.example.org:8080/ HTTP/1.1", host=b"files.example.org:8080"),
        b"GET / HTTP/1.1\r\nHost: files.example.org:8080\r\n\r\n",
    ),
    "the default port": (
        request(b"GET http://files.example.org:80/ HTTP/1.1"),
        b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
    ),
    "another case": (
        request(b"GET HTTP://Files.EXAMPLE.org./ HTTP/1.1", host=b"FILES.example.org"),
        b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
    ),
    "IPv6": (
        request(b"GET http://[2001:DB8::0:1]:81/ HTTP/1.1", host=b"[2001:db8::1]:81"),
        b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:81\r\n\r\n",
    ),
    "an address in hexadecimal is the address": (
        request(b"GET http://0x7f.1/ HTTP/1.1", host=b"127.0.0.1"),
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ),
    "HTTP/1.0 without a Host": (
        request(b"GET http://files.example.org/ HTTP/1.0", host=None),
        b"GET / HTTP/1.0\r\nHost: files.example.org\r\n\r\n",
    ),
    "an empty line first": (b"\r\n" + GET, GET_UP),
    "what is for the proxy": (
        request(
            b"GET http://files.example.org/a?b HTTP/1.1",
            b"Proxy-Authorization: Basic c2VjcmV0",
            b"proxy-connection: keep-alive",
            b"Connection: keep-alive, X-Hop",
            b"Keep-Alive: timeout=5",
            b"X-Hop: 1",
            b"Accept: */*",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABkAAQ",
            b"TE: gzip",
        ),
        GET_UP,
    ),
    "naming what frames the message in Connection": (
        request(b"POST http://files.example.org/ HTTP/1.1", b"Connection: content-length, host", b"Content-Length: 2", body=b"ab"),
        b"POST / HTTP/1.1\r\nHost: files.example.org\r\nContent-Length: 2\r\n\r\nab",
    ),
    "an empty body": (
        request(b"POST http://files.example.org/ HTTP/1.1", b"Content-Length: 0"),
        b"POST / HTTP/1.1\r\nHost: files.example.org\r\nContent-Length: 0\r\n\r\n",
    ),
    "chunks": (CHUNKED, CHUNKED_UP),
    "100-continue": (
        request(b"PUT http://files.example.org/ HTTP/1.1", b"Expect: 100-Continue", b"Content-Length: 1", body=b"x"),
        b"PUT / HTTP/1.1\r\nHost: files.example.org\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
    ),
    "trailers wanted": (
        request(b"GET http://files.example.org/ HTTP/1.1", b"TE: trailers", b"Connection: TE"),
        b"GET / HTTP/1.1\r\nHost: files.example.org\r\nConnection: TE\r\nTE: trailers\r\n\r\n",
    ),
    "a WebSocket and what is sent behind": (
        request(
            b"GET http://files.example.org/ws HTTP/1.1", b"Connection: keep-alive, Upgrade", b"Upgrade: websocket", body=b"\x81\0"
        ),
        b"GET /ws HTTP/1.1\r\nHost: files.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\0",
    ),
    "a connection kept": (GET + CHUNKED + GET, GET_UP + CHUNKED_UP + GET_UP),
    "nothing behind the last": (
        request(b"GET http://files.example.org/ HTTP/1.1", b"Connection: close") + GET,
        b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
    ),
    "OPTIONS of the site": (
        request(b"OPTIONS http://files.example.org HTTP/1.1"),
        b"OPTIONS * HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
    ),
    "bytes above ASCII in path and values": (
        request(b"GET http://files.example.org/b\xc3\xbc HTTP/1.1", b"X: \xe9\t "),
        b"GET /b\xc3\xbc HTTP/1.1\r\nHost: files.example.org\r\nX: \xe9\r\n\r\n",
    ),
    "CONNECT and what is sent behind": (
        request(b"CONNECT files.example.org:443 HTTP/1.1", host=b"files.example.org:443", body=b"\x16\3"),
        b"[files.example.org:443]\x16\3",
    ),
    "CONNECT to IPv6": (request(b"CONNECT [::ffff:1.2.3.4]:443 HTTP/1.0", host=None), b"[1.2.3.4:443]"),
    "CONNECT, Host without a port": (request(b"CONNECT files.example.org:443 HTTP/1.1"), b"[files.example.org:443]"),
}


@pytest.mark.parametrize("what", GOES_UP)
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_what_goes_up(what: str, step: int) -> None:
    sent, up = GOES_UP[what]
    assert run([sent[at : at + step] for at in range(0, len(sent), step)])[:2] == (up, "")


def post(*headers: bytes, body: bytes = b"hello") -> bytes:
    return request(b"POST http://files.example.org/ HTTP/1.1", *headers, body=body)


def chunks(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body=body)


REFUSED = {
    # N14, and its kind: how long is it
    "two lengths": post(b"Content-Length: 5", b"Content-Length: 50"),
    "the same length twice": post(b"Content-Length: 5", b"Content-Length: 5"),
    "a list of lengths": post(b"Content-Length: 5, 5"),
    "length and chunks": post(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunks and length": post(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "xchunked": post(b"Transfer-Encoding: xchunked"),
    "identity": post(b"Transfer-Encoding: identity"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked"),
    "chunked, identity": post(b"Transfer-Encoding: chunked, identity"),
    "chunked twice": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "chunked and nothing": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding:"),
    "chunked with a parameter": post(b"Transfer-Encoding: chunked;q=1"),
    "chunked with a vertical tab": post(b"Transfer-Encoding: \x0bchunked"),
    "chunks in HTTP/1.0": request(b"POST http://files.example.org/ HTTP/1.0", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "length +5": post(b"Content-Length: +5"),
    "length -5": post(b"Content-Length: -5"),
    "length 0x5": post(b"Content-Length: 0x5"),
    "length 5_0": post(b"Content-Length: 5_0"),
    "no length": post(b"Content-Length:"),
    "a length in other digits": post("Content-Length: \u0665".encode()),
    "a length of 19 digits": post(b"Content-Length: 9999999999999999999"),
    "a length for CGI": post(b"Content_Length: 5"),
    "an encoding for CGI": post(b"Transfer_Encoding: chunked"),
    # lines
    "bare LF": GET.replace(b"\r\n", b"\n"),
    "one bare LF": GET.replace(b"org\r\nAccept", b"org\nAccept"),
    "bare CR": GET.replace(b"org\r\nAccept", b"org\rAccept"),
    "CR CR LF": GET.replace(b"org\r\nAccept", b"org\r\r\nAccept"),
    "folding": post(b"X: a", b" b", b"Content-Length: 0"),
    "folding by a tab": post(b"X: a", b"\tContent-Length: 5"),
    "folding of the first header": request(b"GET http://files.example.org/ HTTP/1.1\r\n Host: files.example.org", host=None),
    "a blank before the colon": post(b"Content-Length : 5"),
    "a tab before the colon": post(b"Transfer-Encoding\t: chunked"),
    "a header without a colon": post(b"Content-Length 5"),
    "a header without a name": post(b": 5"),
    "a NUL in a value": post(b"X: a\0b"),
    "a NUL in a name": post(b"X\0: a"),
    "a control character": post(b"X: a\x08b"),
    "a delete character": post(b"X: a\x7fb"),
    "a name in parentheses": post(b"(X): a"),
    "a name above ASCII": post(b"\xc3\xbc: a"),
    "two blanks in the first line": GET.replace(b"GET http", b"GET  http"),
    "a blank at the end of the first line": GET.replace(b"1.1\r", b"1.1 \r"),
    "a blank at its beginning": b" " + GET,
    "a tab in the first line": GET.replace(b"GET ", b"GET\t"),
    "two empty lines first": b"\r\n\r\n" + GET,
    # chunks
    "a size with 0x": chunks(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a size with a sign": chunks(b"+5\r\nhello\r\n0\r\n\r\n"),
    "a size with a blank before": chunks(b" 5\r\nhello\r\n0\r\n\r\n"),
    "a size with a blank behind": chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
    "no size": chunks(b"\r\nhello\r\n0\r\n\r\n"),
    "a size of 16 digits": chunks(b"ffffffffffffffff\r\n"),
    "a size ended by LF": chunks(b"5\nhello\r\n0\r\n\r\n"),
    "an extension ended by LF": chunks(b"5;x\nhello\r\n0\r\n\r\n"),
    "an extension with CR": chunks(b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
    "an extension with NUL": chunks(b"5;a\0\r\nhello\r\n0\r\n\r\n"),
    "a chunk ended by LF": chunks(b"5\r\nhello\n0\r\n\r\n"),
    "a chunk that is longer": chunks(b"5\r\nhello!\r\n0\r\n\r\n"),
    "a chunk that is shorter": chunks(b"6\r\nhello\r\n0\r\n\r\n"),
    "trailers ended by LF": chunks(b"0\r\n\n"),
    "a folded trailer": chunks(b"0\r\nX: a\r\n b\r\n\r\n"),
    "a trailer without a colon": chunks(b"0\r\nGET / HTTP/1.1\r\n\r\n"),
    "an endless extension": chunks(b"5;" + b"a" * 300),
    "too much in extensions": chunks(b"".join(b"1;%b\r\na\r\n" % (b"a" * 200) for _ in range(90))),
    "too many trailers": chunks(b"0\r\n" + b"X: a\r\n" * 33 + b"\r\n"),
    # N13: the Host
    "another Host": request(b"GET http://files.example.org/ HTTP/1.1", host=b"denied.example.net"),
    "two Hosts": request(b"GET http://files.example.org/ HTTP/1.1", b"Host: denied.example.net"),
    "the same Host twice": request(b"GET http://files.example.org/ HTTP/1.1", b"Host: files.example.org"),
    "a list of Hosts": request(b"GET http://files.example.org/ HTTP/1.1", host=b"files.example.org, denied.example.net"),
    "a NUL in Host": request(b"GET http://files.example.org/ HTTP/1.1", host=b"files.example.org\0"),
    "another port in Host": request(b"GET http://files.example.org/ HTTP/1.1", host=b"files.example.org:8080"),
    "no Host": request(b"GET http://files.example.org/ HTTP/1.1", host=None),
    "an empty Host": request(b"GET http://files.example.org/ HTTP/1.1", host=b""),
    "a path in Host": request(b"GET http://files.example.org/ HTTP/1.1", host=b"files.example.org/"),
    "CONNECT, another Host": request(b"CONNECT files.example.org:443 HTTP/1.1", host=b"denied.example.net:443"),
    "CONNECT, another port in Host": request(b"CONNECT files.example.org:443 HTTP/1.1", host=b"files.example.org:80"),
    # targets
    "a path at the proxy": request(b"GET / HTTP/1.1"),
    "https by GET": request(b"GET https://files.example.org/ HTTP/1.1"),
    "ftp": request(b"GET ftp://files.example.org/ HTTP/1.1"),
    "no host": request(b"GET http:/// HTTP/1.1"),
    "no slashes": request(b"GET http:files.example.org HTTP/1.1"),
    "a blank in the path": request(b"GET http://files.example.org/a b HTTP/1.1"),
    "a control character in the path": request(b"GET http://files.example.org/a\x01 HTTP/1.1"),
    "CONNECT without a port": request(b"CONNECT files.example.org HTTP/1.1"),
    "CONNECT with port 0": request(b"CONNECT files.example.org:0 HTTP/1.1"),
    "CONNECT with port 65536": request(b"CONNECT files.example.org:65536 HTTP/1.1"),
    "CONNECT with port 0443": request(b"CONNECT files.example.org:0443 HTTP/1.1"),
    "CONNECT to a URL": request(b"CONNECT http://files.example.org:443 HTTP/1.1"),
    "CONNECT to a path": request(b"CONNECT files.example.org:443/ HTTP/1.1"),
    "CONNECT with a NUL": request(b"CONNECT denied.test\0.allowed.test:443 HTTP/1.1", host=None),
    "CONNECT with a body": request(b"CONNECT files.example.org:443 HTTP/1.1", b"Content-Length: 5", body=b"hello"),
    "TRACE with a body": request(b"TRACE http://files.example.org/ HTTP/1.1", b"Content-Length: 5", body=b"hello"),
    # versions and what is no HTTP
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": GET.replace(b"HTTP/1.1", b"HTTP/1.2"),
    "HTTP/0.9": b"GET http://files.example.org/\r\n",
    "http in small letters": GET.replace(b"HTTP/1.1", b"http/1.1"),
    "a TLS hello": b"\x16\3\1\0\xf4\1\0",
    "a method of 33 letters": b"A" * 33 + GET[3:],
    "an expectation there is not": post(b"Expect: 200-ok", b"Content-Length: 5"),
    # bounds
    "a giant header": post(b"X: " + b"a" * MAX_HEAD),
    "a giant first line": b"GET http://files.example.org/" + b"a" * MAX_HEAD,
    "101 headers": post(*[b"X: a"] * 101),
    "an endless CONNECT": b"CONNECT " + b"a" * MAX_HEAD,
}  # fmt: skip
STATUS = {
    "https by GET": "501",
    "ftp": "501",
    "HTTP/2": "505",
    "HTTP/1.2": "505",
    "an expectation there is not": "417",
    **dict.fromkeys(("a giant header", "a giant first line", "101 headers", "an endless CONNECT", "too many trailers"), "431"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_what_has_two_readings_is_refused_and_so_is_all_behind_it(what: str, step: int) -> None:
    sent = REFUSED[what] + GET
    up, status, seen, _ = run([sent[at : at + step] for at in range(0, len(sent), step)])
    assert status == STATUS.get(what, "400")
    assert len(seen) <= 1 and b"GET /a?b" not in up
    assert not seen or (seen[0].host, seen[0].port) == (Name("files.example.org"), 80)


@pytest.mark.parametrize(
    "url",
    [
        "http://allowed.test@denied.test/", "http://denied.test#@allowed.test/", r"http://denied.test\@allowed.test/",
        "http://allowed.test:80@denied.test:80/", "http://allowed.test%2f@denied.test/", "http://a@b@denied.test/",
        "http://@denied.test/", "http://allowed.test:/", "http://allowed.test:80:80/", "http://allowed.test%00.denied.test/",
        "http://allowed%2etest/", r"http://allowed.test\.denied.test/", "http://allowed.test;denied.test/", "http://[::1%25lo]/",
        "http://[::1/", "http://::1/", "http://[allowed.test]/", "http://allowed..test/", "http://.allowed.test/", "http://-a.test/",
        "http://allowed.test:http/", "http://allowed.test:-80/", "http://allowed.test,denied.test/", "http:\\\\allowed.test/",
        "http://1.2.3.4.5/", "http://256.256.256.256/", "http://allowed.test#/", "http://b\u00fccher.example/", "http://$x/",
    ],
)  # fmt: skip
def test_an_authority_that_readers_take_differently_is_refused(url: str) -> None:
    for target in (url.encode(), ("CONNECT " + url.split("//")[-1].strip("/")).encode()):
        line = b"GET %b HTTP/1.0" % target if target[:4] == b"http" else b"%b:443 HTTP/1.0" % target
        assert run([request(line, host=None)])[:3] == (b"", "400", [])
    assert run([request(b"GET http://allowed.test/ HTTP/1.0", host=None)])[2][0].host == Name("allowed.test")  # the control


SITES = {
    "a path": (b"GET /a HTTP/1.1", b"Files.example.org", ""),
    "its URL": (b"GET http://files.example.org/a HTTP/1.1", b"files.example.org:80", ""),
    "no Host in HTTP/1.0": (b"GET /a HTTP/1.0", None, ""),
    "another Host": (b"GET /a HTTP/1.1", b"denied.example.net", "400"),
    "another Host in HTTP/1.0": (b"GET /a HTTP/1.0", b"denied.example.net", "400"),
    "the URL of another": (b"GET http://denied.example.net/a HTTP/1.1", b"files.example.org", "400"),
    "the URL of another, with its Host": (b"GET http://denied.example.net/a HTTP/1.1", b"denied.example.net", "400"),
    "another port": (b"GET /a HTTP/1.1", b"files.example.org:8080", "400"),
    "no Host": (b"GET /a HTTP/1.1", None, "400"),
    "CONNECT": (b"CONNECT denied.example.net:443 HTTP/1.1", b"files.example.org", "501"),
    "a path that is none": (b"GET a HTTP/1.1", b"files.example.org", "400"),
    "a star": (b"GET * HTTP/1.1", b"files.example.org", "400"),
}


@pytest.mark.parametrize("what", SITES)
def test_a_connection_to_a_site_carries_requests_to_that_site_alone(what: str) -> None:
    line, host, refused = SITES[what]
    up, status, seen, _ = run([request(line, host=host)], SITE)
    assert status == refused
    if not refused:
        version = line[-3:]
        assert up == b"GET /a HTTP/%b\r\nHost: files.example.org\r\n\r\n" % version
        assert (seen[0].host, seen[0].port, seen[0].path) == (*SITE, "/a")
    else:
        assert up == b""


def test_a_pipelined_request_is_neither_read_nor_decided_before_the_answer_to_the_first() -> None:
    requests = Requests()
    requests.receive(GET + REFUSED["two lengths"])
    assert isinstance(requests.next(), Request)
    assert requests.next() == Done(True)
    assert not requests.wants and requests.next() is None
    requests.again()
    with pytest.raises(BadBytesError):
        requests.next()


def test_a_client_that_ends_inside_a_request_is_told_and_one_that_ends_behind_it_is_answered() -> None:
    assert run([GET], ended=True)[:2] == (GET_UP, "")
    assert run([GET[:-4]], ended=True)[:2] == (b"", "400")
    assert run([GET + b"GE"], ended=True)[:2] == (GET_UP, "400")
    assert run([CHUNKED[:-3]], ended=True)[1] == "400"
    assert run([post(b"Content-Length: 6")], ended=True)[1] == "400"
    assert run([], ended=True)[:2] == (b"", "")


def test_bytes_of_a_body_may_be_moved_by_others() -> None:
    requests = Requests()
    requests.receive(post(b"Content-Length: 100", body=b"12345"))
    assert isinstance(requests.next(), Request) and requests.plain == 0  # five bytes are here already
    assert requests.next() == Body(b"12345")
    assert requests.plain == 95
    requests.moved(90)
    requests.receive(b"67890" + GET)
    assert [requests.next(), requests.next()] == [Body(b"67890"), Done(True)]
    with pytest.raises(ValueError, match="no tunnel"):
        requests.rest()


def test_the_head_for_another_proxy_is_in_absolute_form() -> None:
    requests = Requests()
    requests.receive(GET)
    asked = requests.next()
    assert isinstance(asked, Request)
    assert asked.head(absolute=True, added=[(b"Proxy-Authorization", b"Basic eA==")]) == (
        b"GET http://files.example.org/a?b HTTP/1.1\r\nHost: files.example.org\r\nAccept: */*\r\n"
        b"Proxy-Authorization: Basic eA==\r\n\r\n"
    )


GOOD = [sent for sent, _ in GOES_UP.values()]
CORPUS = [*GOOD, *(sent for sent in REFUSED.values() if len(sent) < 2000)]


@given(st.sampled_from(CORPUS), st.sampled_from(CORPUS), st.booleans(), st.data())
@settings(max_examples=400, deadline=None)
def test_cuts_make_no_difference(first: bytes, second: bytes, ended: bool, data: st.DataObject) -> None:
    sent = first + second
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    whole, cut = (
        run([sent], ended=ended),
        run([sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)], ended=ended),
    )
    assert cut == whole


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.lists(st.text("ab;=\t ", max_size=5), min_size=5, max_size=5))
@settings(max_examples=200, deadline=None)
def test_chunks_of_any_bytes_go_up_with_their_bytes_and_no_extension(parts: list[bytes], names: list[str]) -> None:
    body = b"".join(b"%X;%b\r\n%b\r\n" % (len(each), name.encode(), each) for each, name in zip(parts, names, strict=False))
    up, status, seen, _ = run([chunks(body + b"0\r\n\r\n")])
    assert (status, len(seen)) == ("", 1)
    assert up.partition(b"\r\n\r\n")[2] == b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in parts) + b"0\r\n\r\n"


def read_up(up: bytes, *, length_first: bool) -> list[tuple[bytes, list[bytes]]]:
    """The requests in what went up, as a far side might read them that is lenient in one way or another: line and Hosts."""
    found = []
    while up:
        head, found_end, rest = up.partition(b"\r\n\r\n")
        if not found_end:
            break
        line, *headers = re.split(rb"[\r\n]+[ \t]*", head)  # every line end is one
        pairs = [
            (name.strip().lower().replace(b"_", b"-"), value.strip())
            for name, _, value in (each.partition(b":") for each in headers)
        ]
        found.append((line, [value for name, value in pairs if name == b"host"]))
        length = [int(value) for name, value in pairs if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" and b"chunked" in value for name, value in pairs)
        up = read_chunks(rest) if chunked and not (length and length_first) else rest[length[0] if length else 0 :]
        if b"websocket" in head:
            break
    return found


def read_chunks(rest: bytes) -> bytes:
    line = b"\r\n"
    while line in rest:
        size, _, rest = rest.partition(line)
        if not int(size, 16):
            return rest.partition(line * 2)[2] if not rest.startswith(line) else rest[len(line) :]
        rest = rest[int(size, 16) + len(line) :]
    return b""


PIECES = [
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"@", b"#", b"\\", b"%00", b";", b"//", b"HTTP/1.1", b"denied.example.net"),
    *(
        b"Host: denied.example.net\r\n",
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ),
]


def test_twenty_thousand_broken_requests_break_nothing_and_nothing_goes_up_that_was_not_decided_on() -> None:
    draw, let_out = random.Random(14), 0
    for _ in range(FUZZED):
        sent = bytearray(draw.choice(CORPUS if draw.random() < 0.3 else GOOD) + draw.choice((b"", GET)))
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 0, 1, 2))] = draw.choice(PIECES) if draw.random() < 0.7 else draw.randbytes(1)
            sent = sent or bytearray(1)
        fixed = draw.choice((None, SITE))
        up, _, seen, _ = whole = run([bytes(sent)], fixed)
        cut = draw.randrange(len(sent))
        assert run([bytes(sent[:cut]), bytes(sent[cut:])], fixed) == whole
        decided = [(each.head().partition(b"\r\n")[0], [host_field(each.target)]) for each in seen if each.scheme == "http"]
        if not any(each.scheme == "connect" for each in seen):
            for length_first in (True, False):
                assert read_up(up, length_first=length_first) == decided
        assert fixed is None or all((each.host, each.port) == fixed for each in seen)
        let_out += len(seen)
    assert let_out > FUZZED / 8


def test_dribbled_requests_cost_by_the_byte() -> None:
    """Counted in steps of the interpreter, not in time: twice the bytes are about twice the work."""

    def steps(sent: bytes) -> int:
        requests, count = Requests(), 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        for at in range(len(sent)):
            requests.receive(sent[at : at + 1])
            while requests.next() is not None:
                pass
        sys.settrace(None)
        return count

    for make in (
        lambda size: b"GET http://files.example.org/" + b"a" * size,
        lambda size: request(b"GET http://files.example.org/ HTTP/1.1", b"X: " + b"a" * size),
        lambda size: chunks(b"1\r\na\r\n" * (size // 6)),
        lambda size: chunks(b"ffff\r\n" + b"a" * size),
    ):
        assert steps(make(8000)) < 2.3 * steps(make(4000))
