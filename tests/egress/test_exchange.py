"""Plain HTTP as clients use it, through the proxy: bodies of every framing, 100-continue, WebSockets, broken sites."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from egress.outside import allow, exactly, inside, named, read_all, response, server

SITE = "files.example.org"
HOSTS = f"127.0.0.1 {SITE}\n"
Talk = Callable[[socket.socket], None]


def head_of(connection: socket.socket) -> bytes:
    held = b""
    while b"\r\n\r\n" not in held and (data := connection.recv(1)):
        held += data
    return held


def asked(
    talk: Talk, said: Callable[[str], bytes], more: Callable[[socket.socket], None] = lambda client: None
) -> tuple[bytes, bytes]:
    """What the client got and what the site saw. said: the request, given the authority of the site."""
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(talk))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=("http",)), ports=[port]), hosts=HOSTS))
        client = stack.enter_context(box.to_proxy())
        client.sendall(said(f"{SITE}:{port}"))
        more(client)
        got = read_all(client)
        return got, b"".join(seen)


def get(site: str, more: str = "Connection: close\r\n") -> bytes:
    return f"GET http://{site}/a?b HTTP/1.1\r\nHost: {site}\r\n{more}\r\n".encode()


def test_a_long_body_of_a_length_arrives_whole_and_the_connection_serves_the_next_request() -> None:
    size = 8 << 20

    def site(connection: socket.socket) -> None:
        while head_of(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))

    with ExitStack() as stack:
        port, seen = stack.enter_context(server(site))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=("http",)), ports=[port]), hosts=HOSTS))
        client = stack.enter_context(box.to_proxy())
        for _ in range(2):
            client.sendall(get(f"{SITE}:{port}", ""))
            assert len(response(client).partition(b"\r\n\r\n")[2]) == size
        assert len(seen) == 1 and seen[0].startswith(b"GET /a?b HTTP/1.1\r\n")


def test_a_body_that_ends_with_the_connection_arrives_whole() -> None:
    def site(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000)

    got, _ = asked(site, get)
    assert got.partition(b"\r\n\r\n")[2] == b"x" * 1_000_000


def test_chunks_and_trailers_go_both_ways() -> None:
    def site(connection: socket.socket) -> None:
        head_of(connection)
        held = b""
        while not held.endswith(b"\r\n\r\n"):
            held += connection.recv(100)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
        )

    def said(name: str) -> bytes:
        head = f"POST http://{name}/ HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        return head.encode() + b"4;x=y\r\nwxyz\r\n0\r\nX-Up: 2\r\n\r\n"

    got, seen = asked(site, said)
    assert got.endswith(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
    assert seen.endswith(b"4\r\nwxyz\r\n0\r\nX-Up: 2\r\n\r\n")


def test_a_client_that_waits_for_100_continue_gets_it_from_the_site() -> None:
    def site(connection: socket.socket) -> None:
        assert b"100-continue" in head_of(connection)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + exactly(connection, 5))

    def said(name: str) -> bytes:
        head = (
            f"PUT http://{name}/ HTTP/1.1\r\nHost: {name}\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        return head.encode()

    def more(client: socket.socket) -> None:
        assert head_of(client).startswith(b"HTTP/1.1 100")
        client.sendall(b"hello")

    got, _ = asked(site, said, more)
    assert got.startswith(b"HTTP/1.1 200") and got.endswith(b"hello")


def test_a_websocket_is_a_stream_both_ways_once_the_site_agrees() -> None:
    def site(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")
        connection.sendall(exactly(connection, 4))

    def said(name: str) -> bytes:
        return get(name, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n")

    def more(client: socket.socket) -> None:
        assert head_of(client).startswith(b"HTTP/1.1 101")
        assert exactly(client, 4) == b"\x81\x02hi"
        client.sendall(b"\x82\x02ok")
        client.shutdown(socket.SHUT_WR)

    got, _ = asked(site, said, more)
    assert got == b"\x82\x02ok"


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"])
def test_a_site_that_answers_no_http_is_a_502(answer: bytes) -> None:
    def site(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(answer)

    got, _ = asked(site, get)
    assert got.startswith(b"HTTP/1.1 502")


@pytest.mark.parametrize("closes", ["at once", "at the next request"])
def test_a_site_that_closed_a_kept_connection_is_dialled_again_and_the_client_kept(closes: str) -> None:
    def site(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if closes == "at the next request":
            connection.recv(1)

    with ExitStack() as stack:
        port, seen = stack.enter_context(server(site))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=("http",)), ports=[port]), hosts=HOSTS))
        client = stack.enter_context(box.to_proxy())
        for _ in range(4):
            client.sendall(get(f"{SITE}:{port}", ""))
            assert response(client).endswith(b"ok")
        assert len(seen) == 4


def test_smuggled_requests_are_refused_and_nothing_of_them_reaches_the_site() -> None:
    def site(connection: socket.socket) -> None:
        while head_of(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    for fields in (
        "Content-Length: 5\r\nContent-Length: 50",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Content-Length: +5",
        "X: a\r\n b",
        "X : a",
        "X: a\nY: b",
    ):

        def said(name: str, fields: str = fields) -> bytes:
            return f"POST http://{name}/ HTTP/1.1\r\nHost: {name}\r\n{fields}\r\n\r\nhello".encode()

        got, seen = asked(site, said)
        assert got.startswith(b"HTTP/1.1 400") and seen == b"", fields
