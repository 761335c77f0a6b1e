"""SOCKS5 as transcripts, what gets which refusal, and curl at the other end."""

from __future__ import annotations

import errno
import random
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress import socks
from ringfence.egress.refusals import BadBytesError
from ringfence.egress.socks import Connect, Negotiation, Reply

FUZZED = 20_000
GREETING = b"\5\1\0"
REQUEST = b"\5\1\0\3\x11files.example.org\1\xbb"


def outcome(pieces: list[bytes]) -> tuple[bytes, Connect | str | None, bytes]:
    """All that is sent, what came of it, and what is left for the far side."""
    negotiation, sent, found = Negotiation(), b"", None
    for at, each in enumerate(pieces):
        try:
            said = negotiation.feed(each)
        except BadBytesError as error:
            return sent + error.answer, error.why, b""
        sent += said.send
        if said.connect:
            return sent, said.connect, negotiation.rest + b"".join(pieces[at + 1 :])
    return sent, found, b""


def test_a_client_that_waits_for_each_answer() -> None:
    negotiation = Negotiation()
    assert negotiation.feed(GREETING) == Reply(b"\5\0")
    assert negotiation.feed(REQUEST) == Reply(b"", Connect("files.example.org", 443))
    assert socks.reply(socks.SUCCEEDED) == b"\5\0\0\1\0\0\0\0\0\0"
    with pytest.raises(ValueError, match="was read already"):
        negotiation.feed(b"x")


def test_a_client_that_sends_all_at_once_with_what_is_for_the_far_side() -> None:
    assert outcome([b"\5\2\2\0" + REQUEST + b"\x16\3\1"]) == (b"\5\0", Connect("files.example.org", 443), b"\x16\3\1")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (b"\1\xcb\0\x71\7", "203.0.113.7"),
        (b"\4" + bytes(15) + b"\1", "::1"),
        (b"\4" + bytes.fromhex("20010db8000000000000000000000001"), "2001:db8::1"),
        (b"\4" + bytes(10) + b"\xff\xff\x7f\0\0\1", "::ffff:127.0.0.1"),
        (b"\3\7FILES.x", "FILES.x"),
        (b"\3\x0e" + "bücher.example".encode()[:14], "bücher.exampl"),
        (b"\3\x0b0x7f.0.0.01", "0x7f.0.0.01"),
        (b"\3\xff" + b"a" * 255, "a" * 255),
    ],
)
def test_names_and_addresses_are_given_as_they_were_sent(address: bytes, host: str) -> None:
    assert outcome([GREETING, b"\5\1\0" + address + b"\0\x16"]) == (b"\5\0", Connect(host, 22), b"")


REFUSED = {
    "a NUL in the name": (b"\5\1\0\3\x19denied.test\0.allowed.test\1\xbb", b"\5\1"),
    "a line end in the name": (b"\5\1\0\3\x05a\r\nbc\1\xbb", b"\5\1"),
    "a blank in the name": (b"\5\1\0\3\x05a bcd\1\xbb", b"\5\1"),
    "a name that is not UTF-8": (b"\5\1\0\3\x05a\xffbcd\1\xbb", b"\5\1"),
    "a direction mark in the name": (b"\5\1\0\3\x05a" + "\u202e".encode() + b"c\1\xbb", b"\5\1"),
    "no name": (b"\5\1\0\3\0\1\xbb", b"\5\1"),
    "port 0": (b"\5\1\0\3\1a\0\0", b"\5\1"),
    "BIND": (b"\5\2\0\1\1\2\3\4\0\x50", b"\5\7"),
    "UDP ASSOCIATE": (b"\5\3\0\1\0\0\0\0\0\0", b"\5\7"),
    "a command there is not": (b"\5\4\0\1\1\2\3\4\0\x50", b"\5\7"),
    "an address type there is not": (b"\5\1\0\2\1\2\3\4\0\x50", b"\5\x08"),
    "a reserved byte": (b"\5\1\1\1\1\2\3\4\0\x50", b"\5\1"),
    "a request of version 4": (b"\4\1\0\x50\1\2\3\4\0", b"\5\1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_each_refusal_has_its_reply(what: str) -> None:
    sent, code = REFUSED[what]
    assert outcome([GREETING, REQUEST])[1] == Connect("files.example.org", 443)  # the control
    said, why, _ = outcome([GREETING, sent])
    assert said == b"\5\0" + code + b"\0\1\0\0\0\0\0\0"
    assert isinstance(why, str) and why.isprintable()


def test_greetings_that_are_not_served_get_what_their_protocol_has() -> None:
    assert outcome([b"\5\2\1\2"])[0] == b"\5\xff"
    assert outcome([b"\5\0"])[0] == b"\5\xff"
    assert outcome([b"\4\1\0\x50\1\2\3\4\0"])[0] == b"\0\x5b" + bytes(6)
    assert outcome([b"\4\1\0\x50\0\0\0\1\0files.example.org\0"])[0] == b"\0\x5b" + bytes(6)
    assert outcome([b"G"])[0] == b""


def test_what_a_dial_ended_with_has_a_reply() -> None:
    ended = {errno.ECONNREFUSED: 5, errno.ENETUNREACH: 3, errno.EHOSTUNREACH: 4, errno.ETIMEDOUT: 4, errno.EPERM: 1}
    assert {each: socks.code_of(each) for each in ended} == ended


@given(st.sampled_from([GREETING + REQUEST + b"more", *(GREETING + each for each, _ in REFUSED.values())]), st.data())
@settings(max_examples=300, deadline=None)
def test_cuts_make_no_difference(sent: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    assert outcome([sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]) == outcome([sent])


def test_twenty_thousand_broken_negotiations_break_nothing_and_hold_little() -> None:
    draw = random.Random(1)
    seeds = [GREETING + REQUEST, GREETING + b"\5\1\0\1\1\2\3\4\0\x50", *(GREETING + each for each, _ in REFUSED.values())]
    for _ in range(FUZZED):
        sent = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 1, 1))] = draw.randbytes(draw.choice((0, 1, 1)))
            sent = sent or bytearray(1)
        whole = outcome([bytes(sent)])
        assert outcome([bytes([each]) for each in sent]) == whole
        if isinstance(whole[1], Connect) and ":" not in whole[1].host and not whole[1].host.replace(".", "").isdigit():
            assert whole[1].host.encode() + whole[1].port.to_bytes(2, "big") in sent
    endless = Negotiation()
    endless.feed(GREETING)
    assert [endless.feed(each) for each in (b"\5\1\0\3\xff", b"a" * 256)] == [Reply(), Reply()]
    assert endless.feed(b"\1").connect


# -- a client that was not written here


def serve(listener: socket.socket, answer: Callable[[Connect], bytes], seen: list[Connect]) -> None:
    with listener.accept()[0] as connection:
        negotiation = Negotiation()
        while data := connection.recv(3):  # in small pieces
            try:
                said = negotiation.feed(data)
            except BadBytesError as error:
                connection.sendall(error.answer)
                break
            connection.sendall(said.send)
            if said.connect:
                seen.append(said.connect)
                connection.sendall(answer(said.connect))
                break
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


@pytest.mark.live("curl")
@pytest.mark.parametrize(
    ("proxy", "code", "seen", "says"),
    [
        ("socks5h", socks.SUCCEEDED, [Connect("files.example.org", 80)], "hello"),
        ("socks5", socks.SUCCEEDED, [Connect("127.0.0.9", 80)], "hello"),
        ("socks5h", socks.NOT_ALLOWED, [Connect("files.example.org", 80)], "(2)"),
        ("socks5h", socks.HOST_UNREACHABLE, [Connect("files.example.org", 80)], "(4)"),
        ("socks4", 0, [], "SOCKS4"),
        ("socks4a", 0, [], "SOCKS4"),
    ],
)
def test_curl_says_what_it_was_told(proxy: str, code: int, seen: list[Connect], says: str) -> None:
    def answer(_to: Connect) -> bytes:
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
        return socks.reply(code) + (body if code == socks.SUCCEEDED else b"")

    found: list[Connect] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener, answer, found))
        server.start()
        url = "http://files.example.org/" if proxy.endswith(("h", "a")) else "http://127.0.0.9/"
        argv = ["curl", "-sS", "-m", "20", "--proxy", f"{proxy}://127.0.0.1:{listener.getsockname()[1]}", url]
        done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, timeout=30)
        server.join(30)
    assert found == seen
    assert says in done.stdout + done.stderr
