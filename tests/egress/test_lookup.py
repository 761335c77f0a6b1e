"""Names outside: a resolver that the test plays, hosts tables, answers of every kind; and a proxy of the host's in between."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.outside import Inside, allow, echo, exactly, inside, named, read_all, response, server
from ringfence.egress import dial, lookup, queries
from ringfence.policy.hosts import Address, Name
from ringfence.policy.network import NetworkPolicy
from ringfence.values import replace

SITE = "files.example.org"
NXDOMAIN, SERVFAIL, TRUNCATED, SILENT = 3, 2, -1, -2

Zone = Mapping[tuple[str, int], "list[str] | int"]
"""What a name has of a kind: addresses, another name, a code, or how it is not answered."""


def answered(query: bytes, zone: Zone, *, over_tcp: bool) -> bytes:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    name, kind = b".".join(labels).decode().lower(), struct.unpack_from(">H", query, at + 1)[0]
    found = zone.get((name, kind), [])
    if found == SILENT:
        return b""
    code, flags, records = (found if isinstance(found, int) and found > 0 else 0), 0x8180, []
    if found == TRUNCATED and not over_tcp:
        flags |= 0x200
    elif found == TRUNCATED:
        found = ["127.0.0.1"]
    for each in found if isinstance(found, list) else []:
        if each[-1].isdigit():
            data = socket.inet_pton(socket.AF_INET if kind == 1 else socket.AF_INET6, each)
            records.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(data)) + data)
    head = struct.pack(">6H", int.from_bytes(query[:2], "big"), flags | code, 1, 0 if flags & 0x200 else len(records), 0, 0)
    return head + query[12 : at + 5] + (b"" if flags & 0x200 else b"".join(records))


@contextmanager
def resolver(zone: Zone) -> Iterator[tuple[str, list[str]]]:
    """A DNS server on loopback, over UDP and TCP: how it is named, and the names that it was asked for."""
    asked: list[str] = []

    def talk(connection: socket.socket) -> None:
        size = int.from_bytes(exactly(connection, 2), "big")
        answer = answered(exactly(connection, size), zone, over_tcp=True)
        connection.sendall(struct.pack(">H", len(answer)) + answer)

    with ExitStack() as stack:
        port, _ = stack.enter_context(server(talk))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", port))

        def serve() -> None:
            while True:
                query, peer = datagrams.recvfrom(4096)
                if query == b"end":
                    return
                end = query.index(b"\0", 12)
                asked.append(query[13:end].decode("latin-1"))
                if answer := answered(query, zone, over_tcp=False):
                    datagrams.sendto(answer, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{port}", asked
        finally:
            datagrams.sendto(b"end", ("127.0.0.1", port))
            thread.join()


def tunnel(box: Inside, host: str, port: int) -> bytes:
    """The status of a CONNECT, and where it was opened the echo of what goes through."""
    with box.to_proxy() as client:
        client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        status = client.recv(4096)[9:12]
        if status == b"200":
            client.sendall(b"through")
            assert exactly(client, 7) == b"through"
        return status


def test_a_name_is_looked_up_once_at_dial_by_the_resolver_that_was_named_and_never_before() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        address, asked = stack.enter_context(resolver({(SITE, 1): ["127.0.0.1"]}))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], resolvers=[address]))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(box.dns)
            client.send(queries.query(SITE, queries.A, 1))
            client.recv(512)
            client.send(queries.query("x1.denied.example.org", queries.A, 1))
            client.recv(512)
        assert tunnel(box, "x2.denied.example.org", port) == b"403"
        assert asked == []
        assert tunnel(box, SITE, port) == b"200"
        assert len(asked) == 2  # of both kinds
        assert box.wait_for(op="decision", allowed=1)["address"] == "127.0.0.1"


def test_an_address_that_does_not_answer_is_followed_by_the_next_and_a_truncated_answer_by_tcp() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        zone: Zone = {("two.example.org", 1): ["127.0.0.9", "127.0.0.1"], ("long.example.org", 1): TRUNCATED}
        address, _ = stack.enter_context(resolver(zone))
        policy = allow(named("*.example.org", port), ports=[port])
        box = stack.enter_context(inside(policy, resolvers=["127.0.0.1:1", address]))
        assert tunnel(box, "two.example.org", port) == b"200"
        assert tunnel(box, "long.example.org", port) == b"200"


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1"])
def test_an_allowed_name_that_leads_to_a_private_address_is_refused_on_the_address_that_is_dialled(private: str) -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo))
        address, _ = stack.enter_context(resolver({(SITE, 1): [private]}))
        box = stack.enter_context(inside(NetworkPolicy(allow=(named(SITE, port),)), resolvers=[address]))
        assert tunnel(box, SITE, port) == b"403"
        assert seen == [] and private in box.wait_for(op="decision")["why"]
        if private == "127.0.0.1":  # the control: where private addresses are named, that very address is dialled
            box.registration.set_rules(replace(box.policy, private_addresses=True))
            assert tunnel(box, SITE, port) == b"200"


def test_of_an_answer_with_public_and_private_addresses_no_private_one_is_dialled() -> None:
    with ExitStack() as stack:
        port, seen = stack.enter_context(server(echo, "127.0.0.2"))
        address, _ = stack.enter_context(resolver({(SITE, 1): ["127.0.0.2", "127.0.0.1"]}))
        only = replace(allow(named(SITE, port)).allow[-1], address="127.0.0.1/32", said="127.0.0.1", ports=(port,))
        box = stack.enter_context(inside(NetworkPolicy(allow=(named(SITE, port), only)), resolvers=[address]))
        assert tunnel(box, SITE, port) == b"502"  # the one that may be dialled, where nothing listens
        assert seen == []


def test_a_name_without_an_address_or_without_an_answer_is_told_as_that() -> None:
    with ExitStack() as stack:
        address, _ = stack.enter_context(resolver({("none.example.org", 1): NXDOMAIN, ("broken.example.org", 1): SERVFAIL}))
        box = stack.enter_context(inside(allow(named("*.example.org", 9)), resolvers=[address]))
        for name in ("none.example.org", "broken.example.org", "empty.example.org"):
            with box.to_proxy() as client:
                client.sendall(f"CONNECT {name}:9 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                assert name in (said := read_all(client).decode()) or "resolver" in said
                assert said.startswith("HTTP/1.1 502")


def test_the_environment_says_who_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    table = f"{tmp_path}/hosts"
    with open(table, "w") as file:
        file.write("127.0.0.1 table.example.org # a comment\nnonsense\n")
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        address, asked = stack.enter_context(resolver({(SITE, 1): ["127.0.0.1"]}))
        monkeypatch.setenv("RINGFENCE_RESOLVERS", address)
        monkeypatch.setenv("RINGFENCE_HOSTS", table)
        policy = allow(named("*.example.org", port), ports=[port])
        box = stack.enter_context(inside(policy, hosts=None, resolvers=None))
        assert tunnel(box, SITE, port) == b"200"
        before = len(asked)
        assert tunnel(box, "table.example.org", port) == b"200"
        assert len(asked) == before


def forward(allowed: str, heads: list[bytes]) -> Callable[[socket.socket], None]:
    """A proxy of the host's: it lets only who knows a password through, to itself."""

    def talk(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        heads.append(head)
        if b"Basic " + base64.b64encode(allowed.encode()) not in head:
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        elif head.startswith(b"CONNECT"):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            echo(connection)
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhttp")

    return talk


def test_everything_goes_through_the_proxy_of_the_host_and_its_password_stays_there() -> None:
    heads: list[bytes] = []
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(forward("me:s3cret", heads)))
        rules = (named(SITE, 9999), named("web.example.org", 80, schemes=("http",)))
        policy = NetworkPolicy(allow=rules, upstream_proxy=f"http://me:s3cret@127.0.0.1:{port}")
        box = stack.enter_context(inside(policy))
        assert tunnel(box, SITE, 9999) == b"200"  # no resolver is asked: there is none
        assert tunnel(box, "denied.example.org", 9999) == b"403"
        with box.to_proxy() as client:
            client.sendall(b"GET http://web.example.org/a HTTP/1.1\r\nHost: web.example.org\r\n\r\n")
            assert response(client).endswith(b"http")
        wrong = replace(policy, upstream_proxy=f"http://me:other@127.0.0.1:{port}")
        refused = stack.enter_context(inside(wrong))
        assert tunnel(refused, SITE, 9999) == b"502"
        assert [head.split(b"\r\n")[0] for head in heads] == [
            b"CONNECT files.example.org:9999 HTTP/1.1",
            b"GET http://web.example.org/a HTTP/1.1",
            b"CONNECT files.example.org:9999 HTTP/1.1",
        ]
        assert "s3cret" not in str(box.records()) and "s3cret" not in repr(box.policy)


def test_what_no_proxy_names_is_dialled_without_it() -> None:
    entries = ("internal.example.com", ".corp.example.com", "10.0.0.0/8", "files.example.org:8080", "192.0.2.1")
    direct = [("internal.example.com", 1), ("a.internal.example.com", 1), ("x.corp.example.com", 1), ("files.example.org", 8080)]
    through = [("notinternal.example.com", 1), ("files.example.org", 443), ("example.com", 1)]
    assert all(dial.bypassed(entries, Name(host), port) for host, port in direct)
    assert not any(dial.bypassed(entries, Name(host), port) for host, port in through)
    assert dial.bypassed(entries, Address("10.1.2.3"), 1) and dial.bypassed(entries, Address("192.0.2.1"), 1)
    assert not dial.bypassed(entries, Address("192.0.2.2"), 1)
    assert dial.bypassed(("*",), Name("any.example.com"), 1) and not dial.bypassed((), Name("any.example.com"), 1)


def test_resolvers_and_tables_are_read_as_they_are_written() -> None:
    assert lookup.servers(["192.0.2.1", "192.0.2.2:5353", "[2001:db8::1]:54", "2001:db8::2", "nonsense"])[:3] == (
        ("192.0.2.1", 53),
        ("192.0.2.2", 5353),
        ("2001:db8::1", 54),
    )
    assert lookup.servers_of("search x\nnameserver 192.0.2.3\n") == (("192.0.2.3", 53),)
    assert lookup.servers_of("") == (("127.0.0.1", 53),)
    table = lookup.hosts_of("192.0.2.1 A.example # x\n", "192.0.2.2 a.example b.example\n::1 b.example\nx y\n")
    assert table == {"a.example": ("192.0.2.1", "192.0.2.2"), "b.example": ("192.0.2.2", "::1")}


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 40))
def test_no_answer_of_a_resolver_does_more_than_fail(noise: bytes, kept: int) -> None:
    """Random bytes, alone and behind the beginning of a right answer."""
    right = answered(queries.query(SITE, queries.A, 7), {(SITE, 1): ["192.0.2.1"]}, over_tcp=False)
    assert queries.read(right, SITE, queries.A, 7).addresses == ("192.0.2.1",)
    for sent in (noise, right[:kept] + noise):
        try:
            found = queries.read(sent, SITE, queries.A, 7)
        except queries.BadAnswerError:
            continue
        assert all(socket.inet_aton(address) for address in found.addresses)
