"""The resolver of a box: transcripts, odd queries, what is never asked outside, and two clients that were not written here."""

from __future__ import annotations

import json
import random
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress import dns
from ringfence.egress.refusals import BadBytesError

ADDRESSES = {"files.example.org": bytes((198, 18, 0, 16)), "api.example.com": bytes((198, 18, 0, 17))}
FUZZED = 20_000


def resolve(name: str) -> bytes | None:
    return ADDRESSES.get(name.lower())


def reverse(address: bytes) -> str | None:
    return next((name for name, known in ADDRESSES.items() if known == address), None)


def wire(name: str) -> bytes:
    return b"".join(bytes([len(each)]) + each for each in name.encode().split(b".") if each) + b"\0"


def query(name: bytes, kind: int = 1, *, flags: int = 0x0100, counts: tuple[int, ...] = (1, 0, 0, 0), more: bytes = b"") -> bytes:
    return struct.pack(">6H", 0x1234, flags, *counts) + name + struct.pack(">2H", kind, 1) + more


OPT = struct.pack(">BHHIH", 0, 41, 4096, 0, 0)
NAME = wire("files.example.org")


def read(response: bytes) -> tuple[int, bytes, bytes]:
    """The code, the question, what follows it."""
    assert response[:2] == b"\x12\x34" and response[2] & 0x80
    end = 12
    if response[4:6] == b"\0\1":
        while response[end]:
            end += 1 + response[end]
        end += 5
    return response[3] & 15, response[12:end], response[end:]


def test_a_known_name_has_its_address_and_the_question_comes_back_byte_for_byte() -> None:
    name = wire("FiLeS.eXample.ORG")
    code, question, answer = read(dns.answer(query(name), resolve))
    assert code == 0
    assert question == name + b"\0\1\0\1"
    assert answer == b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", dns.TTL, 4) + ADDRESSES["files.example.org"]


@pytest.mark.parametrize("kind", [28, 65, 64, 5, 15, 16, 33, 255, 2, 6, 12])
def test_everything_but_an_address_of_a_known_name_is_empty_and_no_error(kind: int) -> None:
    assert read(dns.answer(query(NAME, kind), resolve)) == (0, NAME + struct.pack(">2H", kind, 1), b"")
    assert read(dns.answer(query(wire("no.example.org"), kind), resolve))[0] == 3  # the control: a name that is not there


def test_a_name_that_no_rule_names_does_not_exist_and_is_asked_about_once() -> None:
    asked: list[str] = []
    code, _, answer = read(dns.answer(query(wire("data.example.net")), lambda name: asked.append(name)))
    assert (code, answer, asked) == (3, b"", ["data.example.net"])


def test_edns_is_answered_with_edns_and_an_unknown_version_with_its_own_code() -> None:
    whole = dns.answer(query(NAME, counts=(1, 0, 0, 1), more=OPT), resolve)
    assert read(whole)[2].endswith(struct.pack(">BHHIH", 0, 41, 1232, 0, 0)) and whole[10:12] == b"\0\1"
    later = struct.pack(">BHHIH", 0, 41, 4096, 1 << 16, 0)
    code, _, answer = read(dns.answer(query(NAME, counts=(1, 0, 0, 1), more=later), resolve))
    assert (code, answer) == (0, struct.pack(">BHHIH", 0, 41, 1232, 1 << 24, 0))  # BADVERS is 16: its upper bits are in OPT
    padded = struct.pack(">BHHIH", 0, 41, 4096, 0, 104) + b"\0\x0c\0\x64" + bytes(100)
    assert read(dns.answer(query(NAME, counts=(1, 0, 0, 1), more=padded), resolve))[0] == 0


REFUSED_QUERIES = {
    "no question": (struct.pack(">6H", 0x1234, 0x0100, 0, 0, 0, 0), 1),
    "two questions": (query(NAME, counts=(2, 0, 0, 0), more=NAME + b"\0\1\0\1"), 1),
    "an answer inside": (query(NAME, counts=(1, 1, 0, 0), more=b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\1\2\3\4"), 1),
    "a pointer to itself": (query(b"\xc0\x0c"), 1),
    "a pointer inside the name": (query(b"\4data\xc0\x0c"), 1),
    "a label of 64 bytes": (query(b"\x40" + b"a" * 64 + b"\0"), 1),
    "a name of 256 bytes": (query((b"\x3f" + b"a" * 63) * 3 + b"\x3e" + b"a" * 62 + b"\0"), 1),
    "a name that does not end": (query(b"")[:12] + b"\5abcd", 1),
    "no class": (query(NAME)[:-2], 1),
    "bytes behind the question": (query(NAME, more=b"x"), 1),
    "two OPT records": (query(NAME, counts=(1, 0, 0, 2), more=OPT + OPT), 1),
    "an OPT record of a name": (query(NAME, counts=(1, 0, 0, 1), more=b"\1a" + OPT), 1),
    "an OPT record that is cut": (query(NAME, counts=(1, 0, 0, 1), more=OPT[:-1] + b"\5"), 1),
    "three additional records": (query(NAME, counts=(1, 0, 0, 3), more=OPT), 1),
    "truncated": (query(NAME, flags=0x0300), 1),
    "an update": (query(NAME, flags=0x2800), 4),
    "a notify": (query(NAME, flags=0x2000), 4),
    "class CHAOS": (query(NAME)[:-2] + b"\0\3", 5),
    "class ANY": (query(NAME)[:-2] + b"\0\xff", 5),
    "too long": (query(NAME, counts=(1, 0, 0, 1), more=struct.pack(">BHHIH", 0, 41, 0, 0, 5000) + bytes(5000)), 1),
}


@pytest.mark.parametrize("what", REFUSED_QUERIES)
def test_a_query_with_no_single_reading_gets_a_code_and_is_never_looked_up(what: str) -> None:
    sent, code = REFUSED_QUERIES[what]
    response = dns.answer(sent, lambda _name: pytest.fail("it was looked up"))
    assert read(response)[0] == code
    assert dns.answer(query(NAME), resolve) != response  # the control


def test_the_longest_name_is_still_one() -> None:
    longest = (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"a" * 61 + b"\0"
    assert len(longest) == 255
    assert read(dns.answer(query(longest), lambda name: b"\1\2\3\4" if len(name) == 253 else None))[0] == 0


@pytest.mark.parametrize("sent", [b"", b"\0" * 11, query(NAME, flags=0x8180), dns.answer(query(NAME), resolve)])
def test_what_is_no_query_gets_nothing(sent: bytes) -> None:
    assert dns.answer(sent, resolve) == b""


def test_names_that_are_not_the_outside_s_are_never_looked_up() -> None:
    def fail(name: str) -> bytes | None:
        pytest.fail(f"{name} was looked up")

    assert read(dns.answer(query(wire("localhost")), fail))[2].endswith(b"\x7f\0\0\1")
    assert read(dns.answer(query(wire("a.LOCALHOST")), fail))[2].endswith(b"\x7f\0\0\1")
    assert read(dns.answer(query(wire("localhost"), 28), fail))[::2] == (0, b"")
    assert read(dns.answer(query(b"\0", 2), fail))[::2] == (0, b"")
    assert read(dns.answer(query(wire("data.1.1.1.in-addr.arpa"), 12), fail))[0] == 3
    assert read(dns.answer(query(wire("_dns.resolver.arpa"), 64), fail))[0] == 3
    assert read(dns.answer(query(wire("use-application-dns.net")), fail))[0] == 3


def test_an_address_of_the_range_has_its_name_back() -> None:
    found = read(dns.answer(query(wire("16.0.18.198.in-addr.arpa"), 12), resolve, reverse))
    assert found[0] == 0 and found[2].endswith(wire("files.example.org"))
    for other in ("99.0.18.198.in-addr.arpa", "0.18.198.in-addr.arpa", "16.0.18.999.in-addr.arpa", "x.0.18.198.in-addr.arpa"):
        assert read(dns.answer(query(wire(other), 12), resolve, reverse))[0] == 3


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_no_two_names_have_one_text(labels: list[bytes]) -> None:
    text = dns.shown(labels)
    back = [
        b"".join(
            bytes([int(each[1:4])]) + each[4:].encode() if at else each.encode() for at, each in enumerate(_split_escapes(label))
        )
        for label in text.split(".")
    ]
    assert back == labels
    assert text.isascii() and text.isprintable()


def _split_escapes(label: str) -> list[str]:
    first, *others = label.split("\\")
    return [first, *("\\" + each for each in others)]


def test_a_nul_or_a_dot_in_a_label_is_visible_in_the_text() -> None:
    assert dns.shown([b"denied", b"example\0", b"org"]) == "denied.example\\000.org"
    assert dns.shown([b"files.example.org"]) == "files\\046example\\046org"


@given(st.lists(st.binary(min_size=12, max_size=80), max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_tcp_queries_are_the_same_however_they_are_cut(queries: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(dns.framed(each) for each in queries)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    framing, found = dns.Framing(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += framing.feed(stream[start:end])
    assert found == queries


@pytest.mark.parametrize("size", [0, 1, 11, dns.MAX_QUERY + 1, 65535])
def test_a_tcp_message_out_of_bounds_ends_the_connection_after_the_queries_before_it(size: int) -> None:
    feed = dns.Framing().feed(dns.framed(query(NAME)) + size.to_bytes(2, "big"))
    assert next(feed) == query(NAME)
    with pytest.raises(BadBytesError):
        next(feed)


def test_twenty_thousand_broken_queries_break_nothing_and_no_answer_is_longer_than_600_bytes() -> None:
    draw = random.Random(18)
    seeds = [sent for sent, _ in REFUSED_QUERIES.values()] + [query(NAME, counts=(1, 0, 0, 1), more=OPT), query(NAME)]
    for _ in range(FUZZED):
        sent = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 1, 1, 2))] = draw.randbytes(draw.choice((0, 1, 1, 2)))
            sent = sent or bytearray(1)
        asked: list[str] = []
        response = dns.answer(bytes(sent), lambda name, asked=asked: asked.append(name) or resolve(name), reverse)  # type: ignore[misc]
        assert len(response) <= 600 and len(asked) <= 1
        if len(response) > 12 and response[4:6] == b"\0\1":
            assert bytes(sent[12:]).startswith(read(b"\x12\x34" + response[2:])[1])


# -- clients that were not written here


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """A resolver on a loopback port, UDP and TCP, and the names that it was asked for."""
    asked: list[str] = []

    def known(name: str) -> bytes | None:
        asked.append(name)
        return resolve(name)

    with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", 0))  # first: of its numbers more are taken than of those of datagrams
        tcp.listen()
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))

        def serve_udp() -> None:
            while (got := udp.recvfrom(65535))[0] != b"end":
                udp.sendto(dns.answer(got[0], known, reverse), got[1])

        def serve_tcp() -> None:
            while True:
                with tcp.accept()[0] as connection:
                    framing = dns.Framing()
                    while data := connection.recv(65535):
                        if data == b"end":
                            return
                        for each in framing.feed(data):
                            connection.sendall(dns.framed(dns.answer(each, known, reverse)))

        threads = [threading.Thread(target=serve_udp), threading.Thread(target=serve_tcp)]
        for each in threads:
            each.start()
        yield port, asked
        with socket.socket(type=socket.SOCK_DGRAM) as last:
            last.sendto(b"end", ("127.0.0.1", port))
        with socket.create_connection(("127.0.0.1", port)) as last_tcp:
            last_tcp.sendall(b"end")
            for each in threads:
                each.join(10)


NODE = """
const { Resolver } = require('dns').promises;
const r = new Resolver({ timeout: 5000, tries: 1 });
r.setServers(['127.0.0.1:' + process.argv[1]]);
const ask = (call) => call.then((v) => v, (e) => e.code);
(async () => console.log(JSON.stringify([
  await ask(r.resolve4('files.example.org')), await ask(r.resolve6('files.example.org')),
  await ask(r.resolve4('denied.example.net')), await ask(r.reverse('198.18.0.16')), await ask(r.resolveTxt('api.example.com')),
])))();
"""
GO = """
package main
import ("context"; "encoding/json"; "errors"; "fmt"; "net"; "os")
func main() {
  out := []any{}
  for _, network := range []string{"udp", "tcp"} {
    network := network
    r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
      return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+os.Args[1]) }}
    addresses, err := r.LookupHost(context.Background(), "files.example.org.")
    if err != nil { out = append(out, err.Error()) } else { out = append(out, addresses) }
    _, err = r.LookupHost(context.Background(), "denied.example.net.")
    var dnsError *net.DNSError
    out = append(out, errors.As(err, &dnsError) && dnsError.IsNotFound)
  }
  text, _ := json.Marshal(out)
  fmt.Println(string(text))
}
"""


@pytest.mark.live("node")
def test_node_s_resolver_reads_every_answer(server: tuple[int, list[str]]) -> None:
    port, asked = server
    done = subprocess.run(["node", "-e", NODE, str(port)], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [["198.18.0.16"], "ENODATA", "ENOTFOUND", ["files.example.org"], "ENODATA"]
    assert set(asked) == {"files.example.org", "denied.example.net", "api.example.com"}


@pytest.mark.live("go")
def test_go_s_resolver_reads_every_answer_over_udp_and_tcp(server: tuple[int, list[str]], tmp_path: Path) -> None:
    source = tmp_path / "ask.go"
    source.write_text(GO)
    build = {"GOCACHE": f"{tmp_path}/cache", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/go/bin", "GO111MODULE": "off"}
    done = subprocess.run(["go", "run", str(source), str(server[0])], capture_output=True, text=True, env=build, timeout=110)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["198.18.0.16"], True] * 2
