"""The hello of a TLS client: built by hand, cut everywhere, broken at random, and sent by clients that were not written here."""

from __future__ import annotations

import random
import shutil
import socket
import ssl
import struct
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress import tls
from ringfence.egress.refusals import BadBytesError
from ringfence.egress.tls import ClientHello, Hello

FUZZED = 20_000


def sized(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def name(*names: bytes, kind: int = 0) -> bytes:
    return struct.pack(">H", 0) + sized(2, sized(2, b"".join(bytes([kind]) + sized(2, each) for each in names)))


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">H", kind) + sized(2, data)


def hello(
    extensions: bytes | None, *, version: bytes = b"\3\3", session: bytes = b"", suites: bytes = b"\x13\1", more: bytes = b""
) -> bytes:
    body = version + bytes(32) + sized(1, session) + sized(2, suites) + b"\1\0"
    body += (b"" if extensions is None else sized(2, extensions)) + more
    return b"\1" + sized(3, body)


def records(message: bytes, size: int = 1 << 14) -> bytes:
    return b"".join(b"\x16\3\1" + sized(2, message[at : at + size]) for at in range(0, len(message), size))


ALPN = extension(16, sized(2, sized(1, b"h2") + sized(1, b"http/1.1")))
GREASE = extension(0xFE0D, b"\0\0\1\0\1\x2a" + sized(2, bytes(32)) + sized(2, bytes(208)))
PLAIN = records(hello(name(b"files.example.org") + ALPN))


def test_a_hello_says_its_server_its_protocols_and_that_nothing_is_hidden() -> None:
    client = ClientHello()
    assert client.feed(PLAIN[:-1]) is None
    assert client.feed(PLAIN[-1:]) == Hello("files.example.org", False, (b"h2", b"http/1.1"))
    assert client.received == PLAIN


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (hello(None), Hello(None, False)),
        (hello(b""), Hello(None, False)),
        (hello(name(b"A.example.ORG.")), Hello("A.example.ORG.", False)),
        (hello(name(b"a_b.example.org"), version=b"\3\1"), Hello("a_b.example.org", False)),
        (hello(GREASE + name(b"files.example.org")), Hello("files.example.org", True)),
        (hello(extension(0xFFCE, b"x" * 300)), Hello(None, True)),
    ],
)
def test_what_may_be_absent_may_be_absent(message: bytes, expected: Hello) -> None:
    assert ClientHello().feed(records(message)) == expected


BROKEN = {
    "two names": (records(hello(name(b"files.example.org", b"denied.example.net"))), tls.ILLEGAL_PARAMETER),
    "two name extensions": (records(hello(name(b"a.example.org") + name(b"b.example.org"))), tls.ILLEGAL_PARAMETER),
    "a name of another type": (records(hello(name(b"a.example.org", kind=1))), tls.ILLEGAL_PARAMETER),
    "an empty list": (records(hello(extension(0, b"\0\0"))), tls.DECODE_ERROR),
    "an empty extension": (records(hello(extension(0, b""))), tls.DECODE_ERROR),
    "an empty name": (records(hello(name(b""))), tls.ILLEGAL_PARAMETER),
    "a NUL": (records(hello(name(b"denied.example.net\0.example.org"))), tls.ILLEGAL_PARAMETER),
    "a blank": (records(hello(name(b"files.example.org "))), tls.ILLEGAL_PARAMETER),
    "a slash": (records(hello(name(b"files.example.org/"))), tls.ILLEGAL_PARAMETER),
    "a star": (records(hello(name(b"*.example.org"))), tls.ILLEGAL_PARAMETER),
    "raw UTF-8": (records(hello(name("bücher.example".encode()))), tls.ILLEGAL_PARAMETER),
    "a name of 256 bytes": (records(hello(name(b"a" * 256))), tls.ILLEGAL_PARAMETER),
    "bytes behind the list": (records(hello(extension(0, sized(2, b"\0" + sized(2, b"a.example")) + b"x"))), tls.DECODE_ERROR),
    "bytes behind the extensions": (records(hello(name(b"a.example"), more=b"\0")), tls.DECODE_ERROR),
    "an extension that is cut": (records(hello(b"\0\0\0\x20ab")), tls.DECODE_ERROR),
    "129 extensions": (records(hello(b"".join(extension(100 + at, b"") for at in range(129)))), tls.ILLEGAL_PARAMETER),
    "33 protocols": (records(hello(extension(16, sized(2, b"\1a" * 33)))), tls.DECODE_ERROR),
    "a protocol without a name": (records(hello(extension(16, sized(2, b"\0")))), tls.DECODE_ERROR),
    "a session id of 33 bytes": (records(hello(None, session=bytes(33))), tls.DECODE_ERROR),
    "an odd list of suites": (records(hello(None, suites=b"\x13")), tls.DECODE_ERROR),
    "no suites": (records(hello(None, suites=b"")), tls.DECODE_ERROR),
    "version 2": (records(hello(None, version=b"\2\0")), tls.PROTOCOL_VERSION),
    "a server's hello": (records(b"\2" + hello(None)[1:]), tls.UNEXPECTED_MESSAGE),
    "a message behind it": (records(hello(None) + b"\1"), tls.UNEXPECTED_MESSAGE),
    "an alert between": (records(hello(None), 10)[:15] + b"\x15\3\3\0\2\1\0", tls.UNEXPECTED_MESSAGE),
    "an empty record": (b"\x16\3\1\0\0", tls.UNEXPECTED_MESSAGE),
    "a record of 16385 bytes": (b"\x16\3\1\x40\1", tls.RECORD_OVERFLOW),
    "record version 2": (b"\x16\2\0\0\x20", tls.PROTOCOL_VERSION),
    "an SSLv2 hello": (b"\x80\x2e\1\0\2\0\x15\0\0\0\x10" + bytes(37), tls.PROTOCOL_VERSION),
    "an SSLv2 hello of TLS": (b"\x80\x2e\1\3\1\0\x15\0\0\0\x10" + bytes(37), tls.PROTOCOL_VERSION),
    "HTTP": (b"GET / HTTP/1.1\r\n", tls.UNEXPECTED_MESSAGE),
    "a length of 16 MiB": (records(b"\1\xff\xff\xff" + bytes(100)), tls.RECORD_OVERFLOW),
    "64 KiB in records of one byte": (records(hello(extension(21, bytes(20_000))), 1), tls.RECORD_OVERFLOW),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_a_hello_with_no_single_reading_is_refused_with_an_alert(what: str, step: int) -> None:
    sent, description = BROKEN[what]
    assert ClientHello().feed(PLAIN) is not None  # the control
    client = ClientHello()
    with pytest.raises(BadBytesError) as refused:
        feed(client, sent, step)
    assert refused.value.answer == b"\x15\3\3\0\2\2" + bytes([description])
    assert len(client.received) <= tls.MAX_HELLO or step > 1


def test_a_hello_of_many_extensions_and_keys_within_the_bound_is_read() -> None:
    big = records(hello(name(b"files.example.org") + extension(51, bytes(60_000))))
    assert len(big) < tls.MAX_HELLO
    assert ClientHello().feed(big) == Hello("files.example.org", False)


def feed(client: ClientHello, sent: bytes, step: int) -> None:
    for at in range(0, len(sent), step):
        assert client.feed(sent[at : at + step]) is None


def outcome(pieces: list[bytes]) -> object:
    client = ClientHello()
    try:
        for each in pieces:
            if (found := client.feed(each)) is not None:
                return found
    except BadBytesError as error:
        return error.answer, error.why
    return None


@given(
    st.sampled_from([PLAIN, records(hello(name(b"files.example.org") + GREASE), 7), *(each for each, _ in BROKEN.values())]),
    st.data(),
)
@settings(max_examples=400, deadline=None)
def test_cuts_make_no_difference(sent: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    assert outcome([sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]) == outcome([sent])


@given(st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_records_of_any_size_carry_the_same_hello(size: int) -> None:
    assert outcome([records(hello(name(b"files.example.org") + ALPN), size)]) == outcome([PLAIN])


def test_twenty_thousand_broken_hellos_break_nothing_and_name_nothing_that_is_not_in_them() -> None:
    draw = random.Random(12)
    seeds = [
        *[PLAIN] * 30,
        records(hello(GREASE + name(b"files.example.org") + ALPN), 40),
        *(each for each, _ in BROKEN.values() if len(each) < 600),
    ]
    accepted = 0
    for _ in range(FUZZED):
        sent = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 1, 1, 1))] = draw.randbytes(draw.choice((0, 1, 1, 1)))
            sent = sent or bytearray(1)
        whole = outcome([bytes(sent)])
        cut = draw.randrange(len(sent))
        assert outcome([bytes(sent[:cut]), bytes(sent[cut:])]) == whole
        if isinstance(whole, Hello):
            accepted += 1
            message = b"".join(_fragments(bytes(sent)))
            assert whole.server_name is None or whole.server_name.encode() in message
    assert accepted > 1000


def _fragments(sent: bytes) -> list[bytes]:
    found, at = [], 0
    while at + 5 <= len(sent):
        size = int.from_bytes(sent[at + 3 : at + 5], "big")
        found.append(sent[at + 5 : at + 5 + size])
        at += 5 + size
    return found


# -- clients that were not written here


def python_hello(server: str | None, *, lowest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.minimum_version = False, ssl.CERT_NONE, lowest
    context.set_alpn_protocols(["http/1.1"])
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=server).do_handshake()
    return outgoing.read()


def test_python_s_hello_is_read() -> None:
    assert ClientHello().feed(python_hello("files.example.org")) == Hello("files.example.org", False, (b"http/1.1",))
    assert ClientHello().feed(python_hello(None)) == Hello(None, False, (b"http/1.1",))
    assert ClientHello().feed(python_hello("bücher.example")) == Hello("xn--bcher-kva.example", False, (b"http/1.1",))


CLIENTS = {
    "openssl": "openssl s_client -connect 127.0.0.1:{port} -servername files.example.org -alpn h2,http/1.1",
    "openssl without a name": "openssl s_client -connect 127.0.0.1:{port} -noservername",
    "curl": "curl -sS --connect-to ::127.0.0.1:{port} https://files.example.org/",
    "wget": "wget -t1 -O- --no-check-certificate https://localhost:{port}/",
    "node": "node {folder}/hello.js {port}",
    "java": "java {folder}/Hello.java {port}",
    "go": "go run {folder}/hello.go {port}",
}  # fmt: skip
SOURCES = {
    "Hello.java": """
import javax.net.ssl.*;
class Hello { public static void main(String[] a) throws Exception {
  SSLSocket s = (SSLSocket) SSLSocketFactory.getDefault().createSocket("127.0.0.1", Integer.parseInt(a[0]));
  SSLParameters p = s.getSSLParameters();
  p.setServerNames(java.util.List.of(new SNIHostName("files.example.org"))); s.setSSLParameters(p); s.startHandshake(); } }
""",
    "hello.js": """
const to = { host: '127.0.0.1', port: process.argv[2], servername: 'files.example.org' };
require('tls').connect(to).on('error', (e) => { console.error(e.message); process.exit(1); });
""",
    "hello.go": """
package main
import ("crypto/tls"; "fmt"; "os")
func main() {
  _, err := tls.Dial("tcp", "127.0.0.1:"+os.Args[1], &tls.Config{ServerName: "files.example.org"})
  fmt.Println(err)
  os.Exit(1)
}
""",
}
SAYS_DENIED = {
    "openssl": ("access denied",),
    "openssl without a name": ("access denied",),
    "curl": ("access denied",),
    "wget": ("access denied", "Access was denied"),
    "node": ("access denied",),
    "java": ("access_denied",),
    "go": ("access denied",),
}


@pytest.mark.live("tls-clients")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_s_hello_is_read_in_pieces_and_the_alert_is_readable_to_it(client: str, tmp_path: object) -> None:
    for file, text in SOURCES.items():
        with open(f"{tmp_path}/{file}", "w") as out:
            out.write(text)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(100)
        argv = CLIENTS[client].format(port=listener.getsockname()[1], folder=tmp_path).split()
        environment = {"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": str(tmp_path), "LC_ALL": "C", "GO111MODULE": "off"}
        assert shutil.which(argv[0], path=environment["PATH"]), f"{argv[0]} is not installed: see .ci/run"
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        ) as process:
            with listener.accept()[0] as connection:
                connection.settimeout(30)
                reader, found = ClientHello(), None
                while found is None:
                    found = reader.feed(connection.recv(97))
                connection.sendall(tls.alert(tls.ACCESS_DENIED))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            said = process.communicate(timeout=30)[0].decode()
    expected = None if "without" in client else "localhost" if client == "wget" else "files.example.org"
    assert (found.server_name, found.ech) == (expected, False)
    assert process.returncode != 0
    assert any(each in said for each in SAYS_DENIED[client]), said


def test_dribbled_hellos_cost_by_the_byte() -> None:
    """Counted in steps of the interpreter, not in time: twice the bytes are about twice the work."""

    def steps(size: int) -> int:
        sent = records(hello(extension(21, bytes(size))))
        client, count = ClientHello(), 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        for at in range(len(sent)):
            client.feed(sent[at : at + 1])
        sys.settrace(None)
        return count

    small, large = steps(2000), steps(4000)
    assert large < 2.2 * small
