"""Odd hosts at every entrance of the server: what is dialled is what was decided on, and what is no host is dialled never.

Each refusal stands beside the same act with a plain host, which reaches the far side.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

import pytest

from egress.outside import Inside, allow, echo, inside, named, read_all, server
from egress.spellings import ADDRESSES, NAMED, REFUSED
from ringfence.policy.hosts import Address, normalise
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.values import replace

HOSTS = "".join(
    f"127.0.0.1 {name}\n" for name in {*NAMED.values(), "allowed.test", "a.b.allowed.test", "denied.test"} - {"localhost"}
)
ATYP_NAME, ATYP_4, ATYP_6 = b"\3", b"\1", b"\4"


def by_socks(box: Inside, kind: bytes, host: bytes, port: int) -> int:
    """The reply of the server to a request, 0 where it connected and what was sent came back."""
    with box.to_proxy() as client:
        client.sendall(
            b"\5\1\0" + b"\5\1\0" + kind + (bytes([len(host)]) if kind == ATYP_NAME else b"") + host + struct.pack(">H", port)
        )
        assert client.recv(2) == b"\5\0"
        reply = client.recv(10)
        if reply[1:2] == b"\0":
            client.sendall(b"x")
            assert client.recv(1) == b"x"
        return reply[1]


def by_http(box: Inside, head: bytes) -> int:
    """The status of the answer to a head, 0 for none."""
    with box.to_proxy() as client:
        client.sendall(head)
        client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def by_connect(box: Inside, authority: bytes) -> int:
    return by_http(box, b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n")


def anything(port: int) -> NetworkPolicy:
    """Every name, and all of loopback, at one port."""
    return allow(named("*", port), ports=[port])


def test_the_address_that_a_spelling_means_is_the_one_that_is_connected_to() -> None:
    with server(echo) as (port, seen), inside(anything(port), hosts=HOSTS) as box:
        reached = 0
        for text, plain in ADDRESSES.items():
            encoded = text.encode()
            before = len(seen)
            reply = by_socks(box, ATYP_NAME, encoded, port)
            told = box.wait_for(op="decision", host=plain)
            box.told.clear()
            loopback = ipaddress.ip_address(plain) in ipaddress.ip_network("127.0.0.0/8")
            assert told["allowed"] == loopback, text
            if plain == "127.0.0.1":
                assert (reply, told["address"], len(seen)) == (0, plain, before + 1), text
                reached += 1
            else:
                assert reply == 5 if loopback else reply == 2, text  # nobody listens there; not allowed
                assert len(seen) == before
        assert reached > 40


def test_the_name_that_a_spelling_means_is_the_one_that_is_looked_up() -> None:
    with server(echo) as (port, seen), inside(anything(port), hosts=HOSTS) as box:
        for text, plain in NAMED.items():
            before = len(seen)
            if not text.isprintable():
                assert by_socks(box, ATYP_NAME, text.encode(), port) == 1, ascii(text)  # no client sends it
                assert len(seen) == before
            elif plain != "localhost":
                assert by_socks(box, ATYP_NAME, text.encode(), port) == 0, text
                assert box.wait_for(op="decision", host=plain)["address"] == "127.0.0.1"
                assert len(seen) == before + 1
            box.records()
            box.told.clear()


def test_what_is_no_host_is_never_looked_up_or_dialled() -> None:
    with server(echo) as (port, seen), inside(anything(port), hosts=HOSTS) as box:
        tried = 0
        for text in REFUSED:
            encoded = text.encode("utf-8", "surrogatepass")
            if len(encoded) < 256:
                assert by_socks(box, ATYP_NAME, encoded, port) not in (0, 4, 5), ascii(text)  # 4, 5: it was dialled
                tried += 1
            if not {*"\r\n"} & {*text} and not text.endswith((":80", ":")):
                assert by_connect(box, encoded + b":%d" % port) in (400, 403, 414, 431), ascii(text)
        assert seen == [] and tried > 150
        assert not [each for each in box.records() if each.get("allowed")]
        assert by_socks(box, ATYP_NAME, b"allowed.test", port) == 0
        assert len(seen) == 1


@pytest.mark.parametrize(
    "address", ["::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "fe80::5efe:7f00:1"]
)
def test_sixteen_bytes_that_carry_an_ipv4_address_are_decided_on_as_that_address(address: str) -> None:
    packed = ipaddress.IPv6Address(address).packed
    with server(echo) as (port, seen):
        with inside(NetworkPolicy(default="allow"), hosts=HOSTS) as box:
            assert by_socks(box, ATYP_6, packed, port) == 2
            assert by_connect(box, f"[{address}]:{port}".encode()) == 403
            assert {each["rule"] for each in box.records() if each["op"] == "decision"} == {"network.private_addresses"}
        assert seen == []
        with inside(anything(port), hosts=HOSTS) as box:  # named: the mapped one is loopback itself
            plain = normalise(address)
            assert (by_socks(box, ATYP_6, packed, port) == 0) == (plain == Address("127.0.0.1"))
            assert by_socks(box, ATYP_4, socket.inet_aton("127.0.0.1"), port) == 0


def test_an_allowed_name_that_leads_to_an_address_that_is_not_public_is_refused_on_the_address_that_is_dialled() -> None:
    with server(echo) as (port, seen):
        for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
            table = f"{address} rebind.allowed.test\n"
            for policy in (NetworkPolicy(allow=(named("rebind.allowed.test", port),)), NetworkPolicy(default="allow")):
                with inside(policy, hosts=table) as box:
                    assert by_socks(box, ATYP_NAME, b"rebind.allowed.test", port) == 2
                    assert by_connect(box, b"rebind.allowed.test:%d" % port) == 403
                    assert {each["rule"] for each in box.records() if each["op"] == "decision"} == {"network.private_addresses"}
        assert seen == []
        with inside(allow(named("rebind.allowed.test", port), ports=[port]), hosts="127.0.0.1 rebind.allowed.test\n") as box:
            assert by_socks(box, ATYP_NAME, b"rebind.allowed.test", port) == 0
        open_to_all = NetworkPolicy(allow=(named("rebind.allowed.test", port),), private_addresses=True)
        with inside(open_to_all, hosts="127.0.0.1 rebind.allowed.test\n") as box:
            assert by_socks(box, ATYP_NAME, b"rebind.allowed.test", port) == 0
        assert len(seen) == 2


def test_wildcards_and_ports_hold_at_the_proxy() -> None:
    with server(echo) as (port, seen):
        policy = allow(named("*.allowed.test", port), named("exact.test", port), ports=[port, port + 1])
        table = HOSTS + "127.0.0.1 evilallowed.test allowed.test.evil.test xexact.test www.exact.test exact.test\n"
        with inside(policy, hosts=table) as box:
            answers = {
                host: by_connect(box, f"{host}:{port}".encode())
                for host in ("evilallowed.test", "allowed.test.evil.test", "a.b.allowed.test", "allowed.test", "xexact.test",
                             "www.exact.test", "exact.test")
            }  # fmt: skip
            assert {host for host, status in answers.items() if status == 200} == {"a.b.allowed.test", "exact.test"}
            assert set(answers.values()) == {200, 403}
            assert by_connect(box, f"a.b.allowed.test:{port + 1}".encode()) == 403
            assert by_connect(box, b"a.b.allowed.test:22") == 403
        assert len(seen) == 2


def test_a_url_whose_authority_reads_in_two_ways_is_refused_and_neither_host_is_reached() -> None:
    def respond(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with server(respond) as (port, seen), inside(allow(named("allowed.test", port), ports=[port]), hosts=HOSTS) as box:

        def status(url: str) -> int:
            return by_http(box, f"GET {url} HTTP/1.1\r\nHost: allowed.test:{port}\r\n\r\n".encode())

        for url in (
            "http://allowed.test@denied.test:{}/", "http://denied.test:{}#@allowed.test:{}/", "http://denied.test:{}\\@allowed.test:{}/",
            "http://allowed.test:80@denied.test:{}/", "http://allowed.test%2f@denied.test:{}/", "http://allowed.test:{}@denied.test:{}/",
            "http://allowed.test\t:{}/", "http://allowed.test\0:{}/", "http://denied.test\0.allowed.test:{}/", "http://a@b@allowed.test:{}/",
            "http://user@allowed.test:{}/", "http:///allowed.test:{}/", "http:\\\\allowed.test:{}/", "http://[allowed.test]:{}/",
            "http://allowed.test:{}:{}/", "http://allowed.test:0x50/", "http://denied.test:{}/", "http://allowed.test?@denied.test:{}/",
        ):  # fmt: skip
            assert status(url.replace("{}", str(port))) in (400, 403), url
        assert seen == []
        assert status(f"http://allowed.test:{port}/") == 200
        assert status(f"http://ALLOWED.test.:{port}/") in (200, 400)  # the Host beside it is spelled otherwise
        assert len(seen) in (1, 2)


def test_nothing_allowed_is_nothing_at_every_entrance() -> None:
    with server(echo) as (port, seen):
        closed = NetworkPolicy(deny=(HostRule("x.test", host="x.test"),))
        with inside(closed, hosts=HOSTS) as box:
            assert by_socks(box, ATYP_NAME, b"allowed.test", port) == 2
            assert by_socks(box, ATYP_4, socket.inet_aton("127.0.0.1"), port) == 2
            assert by_connect(box, b"allowed.test:%d" % port) == 403
            assert by_http(box, b"GET http://allowed.test:%d/ HTTP/1.1\r\nHost: allowed.test:%d\r\n\r\n" % (port, port)) == 403
        assert seen == []
        with inside(replace(closed, allow=anything(port).allow), hosts=HOSTS) as box:
            assert by_socks(box, ATYP_NAME, b"allowed.test", port) == 0
