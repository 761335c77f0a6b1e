"""The server end to end: what a client in a box gets, what the far side sees, and what is told, through every entrance."""

from __future__ import annotations

import socket
import struct

import pytest

from egress.outside import allow, echo, inside, name_address, named, read_all, server
from ringfence.egress import queries

FILES = "files.example.org"
HOSTS = f"127.0.0.1 {FILES} other.example.org\n"


def test_a_connection_to_the_address_of_an_allowed_name_reaches_it_byte_for_byte_and_is_on_record() -> None:
    with server(echo) as (port, seen), inside(allow(named(FILES, port), ports=[port]), [(0, port)], HOSTS) as box:
        with box.connect(0, port) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
            told = box.wait_for(op="decision")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
        assert seen == [b"hello"]
        assert (told["allowed"], told["host"], told["port"], told["via"]) == (1, FILES, port, "transparent")
        assert told["address"] == "127.0.0.1" and told["rule"] == f"network.allow: {FILES}:{port}"


def test_a_server_that_speaks_first_is_heard_at_once_on_an_explicit_port() -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 ready\r\n")

    with server(greet) as (port, _), inside(allow(named(FILES, port), ports=[port]), [(0, port)], HOSTS) as box:
        with box.connect(0, port) as client:
            assert read_all(client) == b"220 ready\r\n"


def test_a_port_that_no_rule_names_is_reset_and_told() -> None:
    with server(echo) as (port, seen), inside(allow(named(FILES, 1), ports=[port]), [(0, port)], HOSTS) as box:
        assert box.resets(0, port)
        assert box.wait_for(op="decision")["allowed"] == 0
        assert seen == []


def test_the_resolver_gives_each_allowed_name_one_address_and_refuses_the_rest_on_record() -> None:
    with inside(allow(named(FILES, 1), named("*.pkg.example.net"))) as box:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.connect(box.dns)

            def ask(name: str, kind: int) -> queries.Found:
                client.send(queries.query(name, kind, 7))
                return queries.read(client.recv(4096), name, kind, 7)

            assert ask(FILES, queries.A).addresses == (name_address(0),)
            assert ask(FILES, queries.AAAA) == queries.Found((), 0, False)
            assert ask("a.pkg.example.net", queries.A).addresses == (name_address(1),)
            assert ask("b.pkg.example.net", queries.A).addresses == (name_address(2),)
            assert ask("a.pkg.example.net", queries.A).addresses == (name_address(1),)
            for kind in (queries.A, queries.AAAA):
                assert ask("x1.denied.example.com", kind).code == queries.NXDOMAIN
        assert box.decisions() == [(0, "x1.denied.example.com", 0, "dns")]


def test_the_resolver_answers_over_tcp_as_it_does_over_udp() -> None:
    with inside(allow(named(FILES, 1))) as box, socket.create_connection(box.dns_tcp, timeout=5) as client:
        message = queries.query(FILES, queries.A, 9)
        client.sendall(struct.pack(">H", len(message)) + message)
        assert queries.read(client.recv(4096)[2:], FILES, queries.A, 9).addresses == (name_address(0),)


@pytest.mark.parametrize("spoken", ["connect", "socks"])
def test_a_tunnel_leads_to_what_is_allowed_and_nowhere_else(spoken: str) -> None:
    def opened(client: socket.socket, host: str, port: int) -> bytes:
        if spoken == "connect":
            client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            return client.recv(4096)[9:12]
        client.sendall(b"\5\1\0" + b"\5\1\0\3" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
        assert client.recv(2) == b"\5\0"
        return client.recv(10)[1:2]

    yes, no = (b"200", b"403") if spoken == "connect" else (b"\0", b"\2")
    with server(echo) as (port, seen), inside(allow(named(FILES, port), ports=[port]), hosts=HOSTS) as box:
        with box.to_proxy() as client:
            assert opened(client, "other.example.org", port) == no
        with box.to_proxy() as client:
            assert opened(client, FILES, port + 1) == no
        assert seen == []
        with box.to_proxy() as client:
            assert opened(client, FILES, port) == yes
            client.sendall(b"through")
            assert client.recv(100) == b"through"
        assert seen == [b"through"]
        expected = [(0, "other.example.org", port), (0, FILES, port + 1), (1, FILES, port)]
        assert box.decisions() == [(*each, spoken) for each in expected]
