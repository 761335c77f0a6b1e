"""The live server under bytes broken at random: what leaves was decided on, byte for byte, and nothing ends the worker."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from egress.outside import Inside, allow, inside, named, read_all, server, until, worker_pid
from ringfence.egress import queries
from ringfence.policy.network import HostRule

SITE, OTHER = "files.example.org", "denied.example.org"
HOSTS = f"127.0.0.1 {SITE} {OTHER}\n"
FUZZED = 400
"""Inputs for each entrance; the parsers alone have 20,000 each."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def site(connection: socket.socket) -> None:
    """A far side that takes requests as a lenient one would, and answers each."""
    held = b""
    while True:
        while b"\r\n\r\n" not in held:
            if not (data := connection.recv(65536)):
                return
            held += data
        head, _, held = held.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if length is None and b"\r\ntransfer-encoding: chunked" in head.lower():
            while not held.endswith(b"0\r\n\r\n"):
                if not (data := connection.recv(65536)):
                    return
                held += data
            held = b""
        while length is not None and len(held) < int(length[1]):
            if not (data := connection.recv(65536)):
                return
            held += data
        held = held[int(length[1]) :] if length is not None else held
        connection.sendall(OK)


@pytest.fixture(scope="module")
def far() -> Iterator[tuple[Inside, int, list[bytes]]]:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(site))
        rules = [named(SITE, port, schemes=("http",)), HostRule("raw", host="raw.example.org", ports=(port,))]
        box = stack.enter_context(inside(allow(*rules, ports=[port]), [(0, port)], HOSTS + "127.0.0.1 raw.example.org\n"))
        yield box, port, seen


def requests(port: int, where: str) -> list[bytes]:
    host = f"{SITE}:{port}".encode()
    url = b"http://" + host if where == "proxy" else b""
    get = b"GET %b/a HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host)
    return [
        get,
        get + get,
        get.replace(b"1.1\r", b"1.0\r"),
        b"POST %b/b HTTP/1.1\r\nHost: %b\r\nContent-Length: 5\r\n\r\nhello" % (url, host) + get,
        b"POST %b/c HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\n\r\n" % (url, host) + get,
        b"PUT %b/d HTTP/1.1\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nHost: %b\r\n" % (url, host)
        + b"Proxy-Authorization: Basic eA==\r\nContent-Length: 0\r\n\r\n",
        get.replace(b"\r\n\r\n", b"\r\nHost: %b:%d\r\n\r\n" % (OTHER.encode(), port)),
        get.replace(host, b"%b:%d" % (OTHER.encode(), port)),
    ]


PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"@",
        b"#",
        b"\\",
        b"%00",
        b";",
        b"//",
        b"HTTP/1.1",
        OTHER.encode(),
        b"\r\n\r\n",
    ),
    *(
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"GET /smuggled HTTP/1.1\r\nHost: denied.example.org\r\n\r\n",
    ),
)


def broken(draw: random.Random, sent: bytes) -> bytes:
    made = bytearray(sent)
    for _ in range(draw.randint(0, 3)):
        at = draw.randrange(len(made))
        made[at : at + draw.choice((0, 0, 1, 2))] = draw.choice(PIECES) if draw.random() < 0.7 else draw.randbytes(1)
        made = made or bytearray(b"x")
    return bytes(made)


def told(client: socket.socket, sent: bytes, draw: random.Random) -> bytes:
    """All that a client gets that sends these bytes in two pieces and then ends."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    cut = draw.randrange(len(sent) + 1)
    try:
        client.sendall(sent[:cut])
        client.sendall(sent[cut:])
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it was refused in the middle
    return read_all(client)


def heads(left: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Every line in what left that any reader may take for the first of a request, with the Hosts behind it."""
    found: list[tuple[bytes, list[bytes]]] = []
    for line in re.split(rb"[\r\n]+", left):
        if re.search(rb" HTTP/\d", line):
            found.append((line, []))
        elif found and re.match(rb"(?i)[ \t]*host[ \t]*:", line):
            found[-1][1].append(line.partition(b":")[2].strip().lower())
    return found


@pytest.mark.parametrize("where", ["proxy", "transparent"])
def test_what_leaves_by_http_was_decided_on_request_by_request(far: tuple[Inside, int, list[bytes]], where: str) -> None:
    box, port, seen = far
    draw, worker, answered, refused = random.Random(6), worker_pid(), 0, 0
    start, before = len(seen), len(box.decisions())
    for turn in range(FUZZED):
        choices, at = requests(port, where), len(seen)
        sent = choices[turn] if turn < len(choices) else broken(draw, draw.choice(choices))
        with box.to_proxy() if where == "proxy" else box.connect(0, port) as client:
            got = told(client, sent, draw)
        if turn < 2:  # the control
            assert got == OK * (turn + 1)
            assert f"GET /a HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode() * (turn + 1) in seen[at:]
        box.records()  # or it would be full
        answered += got.count(OK)
        refused += b"\r\nX-Ringfence-" in got
    allowed = [each for each in box.decisions()[before:] if each[0]]
    assert {each[1:3] for each in allowed} == {(SITE, port)}
    assert 0 < len(seen) - start <= len(allowed)  # no dial without a decision
    assert answered <= len(allowed)
    for each in seen[start:]:
        assert b"\nproxy-authorization" not in each.lower() and b"http://" not in each.lower()
        for line, hosts in heads(each):
            if b"GET /smuggled" not in line:  # which is in bodies of the length that was said
                assert hosts == [f"{SITE}:{port}".encode()], each
    assert answered > FUZZED / 8 and refused > FUZZED / 8
    assert worker_pid() == worker


SMUGGLED = {
    "two lengths": (b"Content-Length: 4\r\nContent-Length: 0", b"ab\r\n"),
    "length and chunks": (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "chunks that are not exactly that": (b"Transfer-Encoding: xchunked", b"0\r\n\r\n"),
    "two encodings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
    "a folded header": (b"X: a\r\n Content-Length: 9", b""),
    "a blank before the colon": (b"Content-Length : 9", b""),
    "a bare LF": (b"X: a\nContent-Length: 9", b""),
    "a bare CR": (b"X: a\rContent-Length: 9", b""),
    "a NUL": (b"X: a\0", b""),
    "two Hosts": (b"Host: denied.example.org", b""),
    "a chunk ended by LF": (b"Transfer-Encoding: chunked", b"1\na\n0\n\n"),
    "a length with a sign": (b"Content-Length: +4", b"ab\r\n"),
}


@pytest.mark.parametrize("what", SMUGGLED)
@pytest.mark.parametrize("where", ["proxy", "transparent"])
def test_no_second_request_rides_along(far: tuple[Inside, int, list[bytes]], where: str, what: str) -> None:
    box, port, seen = far
    at, url = len(seen), f"http://{SITE}:{port}" if where == "proxy" else ""
    headers, body = SMUGGLED[what]
    tail = b"GET /smuggled HTTP/1.1\r\nHost: denied.example.org\r\n\r\n"
    with box.to_proxy() if where == "proxy" else box.connect(0, port) as client:
        got = told(
            client,
            f"POST {url}/x HTTP/1.1\r\nHost: {SITE}:{port}\r\n".encode() + headers + b"\r\n\r\n" + body + tail,
            random.Random(1),
        )
    assert b"HTTP/1.1 400 Bad Request\r\nX-Ringfence-Error: " in got and OK not in got
    assert b"smuggled" not in b"".join(seen[at:]) and b"".join(seen[at:]).count(b"HTTP/1.1") <= 1
    at = len(seen)
    with box.to_proxy() if where == "proxy" else box.connect(0, port) as client:  # the control
        right = f"POST {url}/x HTTP/1.1\r\nHost: {SITE}:{port}\r\nContent-Length: 4\r\n\r\nab\r\n".encode()
        assert told(client, right, random.Random(1)) == OK
    # The head of a request that was refused in its body may be noted only now.
    assert f"POST /x HTTP/1.1\r\nHost: {SITE}:{port}\r\nContent-Length: 4\r\n\r\nab\r\n".encode() in seen[at:]
    assert b"smuggled" not in b"".join(seen[at:])


def test_broken_tunnels_reach_nothing_that_was_not_decided_on(far: tuple[Inside, int, list[bytes]]) -> None:
    box, port, seen = far
    draw, worker, through = random.Random(7), worker_pid(), 0
    raw = b"raw.example.org"
    socks = b"\5\1\0\5\1\0\3" + bytes([len(raw)]) + raw + port.to_bytes(2, "big")
    connect = b"CONNECT %b:%d HTTP/1.1\r\nHost: %b:%d\r\n\r\n" % (raw, port, raw, port)
    start, before, payloads = len(seen), len(box.decisions()), set()
    for turn in range(FUZZED):
        opening, payload = draw.choice((socks, connect)), b"PING %d HTTP/1.1\r\n\r\n" % turn
        with box.to_proxy() as client:
            got = told(client, (opening if turn < 4 else broken(draw, opening)) + payload, draw)
        box.records()
        payloads.add(payload)
        through += OK in got
        assert turn >= 4 or got.endswith(OK)  # the control
    allowed = [each for each in box.decisions()[before:] if each[0]]
    assert {each[1:3] for each in allowed} == {(raw.decode(), port)}
    assert 0 < len(seen) - start <= len(allowed)
    for each in seen[start:]:
        found = re.search(rb"PING \d+ HTTP/1.1\r\n\r\n\Z", each)
        assert not each or (found and found[0] in payloads)
        assert b"CONNECT" not in each
    assert through > FUZZED / 20
    assert worker_pid() == worker


def test_broken_queries_get_no_name_that_is_not_allowed_and_the_resolver_goes_on(far: tuple[Inside, int, list[bytes]]) -> None:
    box, _, _ = far
    draw, worker, before = random.Random(8), worker_pid(), len(box.decisions())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect(box.dns)
        for turn in range(FUZZED):
            client.send(broken(draw, queries.query(draw.choice((SITE, OTHER)), draw.choice((1, 28, 65)), turn)))
            client.send(queries.query(SITE, queries.A, 60000 + turn % 5000))
            while int.from_bytes((got := client.recv(4096))[:2], "big") != 60000 + turn % 5000:
                assert len(got) <= 600
            assert queries.read(got, SITE, queries.A, 60000 + turn % 5000).addresses
    until(lambda: len(box.decisions()) > before)
    assert not [each for each in box.decisions()[before:] if each[0]]
    assert worker_pid() == worker
