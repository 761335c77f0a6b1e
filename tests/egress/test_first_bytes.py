"""What a connection carries has to be what it was let out for, whichever way it came: server names, Host, methods and paths.

The same connections through each entrance (N10, N11), a hello for another name (N12), a Host of another site (N13).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from egress.outside import Inside, allow, echo, exactly, inside, named, read_all, response, server, until
from ringfence.policy.network import HostRule

SITE, OTHER = "files.example.org", "denied.example.org"
HOSTS = f"127.0.0.1 {SITE} {OTHER}\n"
TLS, HTTP = ("tls",), ("http",)


def hello(name: str | None) -> bytes:
    """The first bytes of a real TLS client that asks for a name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def transparent(box: Inside, port: int) -> socket.socket:
    return box.connect(0, port)


def connect(box: Inside, port: int) -> socket.socket:
    client = box.to_proxy()
    client.sendall(f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
    assert client.recv(4096).startswith(b"HTTP/1.1 200")
    return client


def relayed_connect(box: Inside, port: int) -> socket.socket:
    """The same with other words: a different order, an agent, credentials, in small pieces (N10)."""
    client = box.to_proxy()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    words = f"CONNECT {SITE}:{port} HTTP/1.1\r\nUser-Agent: relay\r\nProxy-Authorization: Basic eDp5\r\nHost: {SITE}\r\n\r\n"
    for at in range(0, len(words), 7):
        client.sendall(words[at : at + 7].encode())
    assert client.recv(4096).startswith(b"HTTP/1.1 200")
    return client


def socks_name(box: Inside, port: int) -> socket.socket:
    client = box.to_proxy()
    client.sendall(b"\5\1\0\5\1\0\3" + bytes([len(SITE)]) + SITE.encode() + struct.pack(">H", port))
    assert exactly(client, 12)[3] == 0
    return client


ENTRANCES = [transparent, connect, relayed_connect, socks_name]


@pytest.fixture(params=ENTRANCES, ids=lambda each: each.__name__)
def entrance(request: pytest.FixtureRequest) -> Callable[[Inside, int], socket.socket]:
    found: Callable[[Inside, int], socket.socket] = request.param
    return found


def test_a_hello_for_the_name_or_for_none_goes_out_whole_and_one_for_another_does_not(
    entrance: Callable[[Inside, int], socket.socket],
) -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=TLS), ports=[port]), [(0, port)], HOSTS))
        said = {name: hello(name) for name in (SITE, None, OTHER)}
        for name in (SITE, None):
            with entrance(box, port) as client:
                for at in range(0, len(said[name]), 100):  # over many segments
                    client.sendall(said[name][at : at + 100])
                assert exactly(client, len(said[name])) == said[name]
        assert seen == [said[SITE], said[None]]
        with entrance(box, port) as client:
            client.sendall(said[OTHER])
            assert read_all(client)[:2] == b"\x15\3"  # an alert
        assert b"".join(seen[2:]) == b""
        refused = [each for each in box.records() if each["op"] == "decision" and not each["allowed"]]
        assert len(refused) == 1 and refused[0]["host"] == SITE and OTHER in refused[0]["why"]


def test_what_is_no_tls_where_tls_is_allowed_does_not_go_out(entrance: Callable[[Inside, int], socket.socket]) -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=TLS), ports=[port]), [(0, port)], HOSTS))
        for said in (b"\0\1\2\3 something else", b"SSH-2.0-x\r\n", f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode()):
            with entrance(box, port) as client:
                client.sendall(said)
                assert b"\0\1\2\3" not in read_all(client)
        assert b"".join(seen) == b""


def test_the_same_bytes_go_out_on_an_explicit_port(entrance: Callable[[Inside, int], socket.socket]) -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        for said in (b"\0\1\2\3 something else", hello(OTHER)):
            with entrance(box, port) as client:
                client.sendall(said)
                assert exactly(client, len(said)) == said


def answer(connection: socket.socket) -> None:
    """A site that answers each request with its own head."""
    held = b""
    while data := connection.recv(65536):
        held += data
        while b"\r\n\r\n" in held:
            head, held = held.split(b"\r\n\r\n", 1)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))


def test_a_host_of_another_site_never_reaches_the_one_that_was_allowed(entrance: Callable[[Inside, int], socket.socket]) -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(answer))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=HTTP), ports=[port]), [(0, port)], HOSTS))
        right = f"GET /a HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode()
        with entrance(box, port) as client:
            client.sendall(right)
            assert response(client).startswith(b"HTTP/1.1 200 OK")
            client.sendall(right.replace(SITE.encode(), OTHER.encode()))  # the second request of a connection, too
            assert read_all(client).startswith(b"HTTP/1.1 400")
        for hosts in (f"Host: {OTHER}", f"Host: {SITE}:{port}\r\nHost: {OTHER}", f"Host: {SITE}, {OTHER}"):
            with entrance(box, port) as client:
                client.sendall(f"GET /b HTTP/1.1\r\n{hosts}\r\n\r\n".encode())
                assert read_all(client).startswith(b"HTTP/1.1 400")
        assert len([each for each in seen if each]) == 1
        assert OTHER.encode() not in b"".join(seen) and b"/b" not in b"".join(seen)


def test_methods_and_paths_are_decided_on_for_each_request(entrance: Callable[[Inside, int], socket.socket]) -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(answer))
        rule = HostRule("search", host=SITE, ports=(port,), methods=("GET",), paths=("/v1/search/**",))
        box = stack.enter_context(inside(allow(rule, ports=[port]), [(0, port)], HOSTS))
        for asked, told in (("GET /v1/search/a", b"200"), ("POST /v1/search/a", b"403"), ("GET /v1/other", b"403")):
            with entrance(box, port) as client:
                client.sendall(f"{asked} HTTP/1.1\r\nHost: {SITE}:{port}\r\nContent-Length: 0\r\n\r\n".encode())
                assert response(client)[9:12] == told
        assert b"".join(seen).count(b"HTTP/1.1") == 1


def test_a_request_to_the_proxy_is_decided_on_by_itself() -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(answer))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=HTTP), ports=[port]), hosts=HOSTS))
        with box.to_proxy() as client:
            for path in ("/one", "/two"):
                client.sendall(f"GET http://{SITE}:{port}{path} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
                assert path.encode() in response(client)
            client.sendall(f"GET http://{OTHER}:{port}/three HTTP/1.1\r\nHost: {OTHER}:{port}\r\n\r\n".encode())
            refused = read_all(client)
        assert refused.startswith(b"HTTP/1.1 403") and OTHER.encode() in refused
        assert len(seen) == 1 and b"/three" not in seen[0]
        assert box.decisions() == [(1, SITE, port, "http"), (1, SITE, port, "http"), (0, OTHER, port, "http")]


def test_an_address_is_let_out_by_an_address_rule_and_a_name_by_its_own() -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(ports=[port]), hosts=HOSTS))
        for host, told in (
            ("127.0.0.1", b"200"),
            ("127.1", b"200"),
            ("[::ffff:127.0.0.1]", b"200"),
            (SITE, b"403"),
            ("10.0.0.1", b"403"),
        ):
            with box.to_proxy() as client:
                client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                assert client.recv(4096)[9:12] == told, host
        for kind, packed, told in (
            (1, socket.inet_aton("127.0.0.1"), 0),
            (1, socket.inet_aton("10.0.0.1"), 2),
            (4, bytes(15) + b"\1", 2),
        ):
            with box.to_proxy() as client:
                client.sendall(b"\5\1\0\5\1\0" + bytes([kind]) + packed + struct.pack(">H", port))
                assert exactly(client, 12)[3] == told
        until(lambda: len(seen) == 4)


def test_a_name_that_leads_to_a_private_address_is_refused_where_no_rule_names_the_address() -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo))
        policy = allow(named(SITE, port), ports=[port + 1 if port < 65535 else 1])
        box = stack.enter_context(inside(policy, [(0, port)], HOSTS))
        assert box.resets(0, port)
        told = box.wait_for(op="decision")
        assert (told["allowed"], told["rule"]) == (0, "network.private_addresses") and seen == []
