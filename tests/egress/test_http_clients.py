"""What real clients do over plain HTTP through the live server: bodies of every framing, upgrades, refusals to be read.

The origin is node's parser, which was not written here; it says what reached it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from egress.outside import Inside, allow, exactly, inside, named, read_all, response

pytestmark = pytest.mark.live("node", "curl")
SITE, OTHER = "files.example.org", "denied.example.org"
HOSTS = f"127.0.0.1 {SITE} {OTHER}\n"

ORIGIN = """
const http = require('http'), crypto = require('crypto');
const site = http.createServer((q, r) => {
  const parts = [];
  q.on('data', (d) => parts.push(d));
  q.on('end', () => {
    if (q.url === '/forbidden')
      return r.writeHead(403, { 'X-Ringfence-Denied': 'host="forged"', 'Content-Length': 4 }).end('mine');
    if (q.url === '/204') return r.writeHead(204).end();
    if (q.url === '/304') return r.writeHead(304, { ETag: '"a"' }).end();
    if (q.url === '/trailers') {
      r.writeHead(200, { Trailer: 'X-Sum' });
      r.write('one ');
      r.addTrailers({ 'X-Sum': '1' });
      return r.end('two');
    }
    const body = Buffer.concat(parts);
    const seen = { method: q.method, url: q.url, version: q.httpVersion, headers: q.headers, trailers: q.trailers,
                   length: body.length, sha: crypto.createHash('sha256').update(body).digest('hex') };
    r.end(JSON.stringify(seen) + '\\n');
  });
});
site.on('checkContinue', (q, r) => { r.writeContinue(); site.emit('request', q, r); });
site.on('upgrade', (q, socket, early) => {
  const hash = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11');
  const head = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade'];
  socket.write([...head, 'Sec-WebSocket-Accept: ' + hash.digest('base64'), '', ''].join('\\r\\n'));
  socket.write(early);
  socket.pipe(socket);
});
site.listen(0, '127.0.0.1', () => console.log(site.address().port));
"""


@pytest.fixture(scope="module")
def far() -> Iterator[tuple[Inside, int]]:
    with ExitStack() as stack:
        origin = stack.enter_context(subprocess.Popen(["node", "-e", ORIGIN], stdout=subprocess.PIPE, text=True))
        stack.callback(origin.kill)
        assert origin.stdout is not None
        port = int(origin.stdout.readline())
        yield stack.enter_context(inside(allow(named(SITE, port, schemes=("http",)), ports=[port]), [(0, port)], HOSTS)), port


@pytest.fixture(params=["proxy", "transparent", "tunnel", "socks"])
def entrance(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def curl(far: tuple[Inside, int], entrance: str, *arguments: str, sent: bytes = b"", host: str = SITE) -> str:
    """What curl prints, that goes through an entrance. In an argument, URL is that of the site."""
    box, port = far
    proxy = f"{box.proxy[0]}:{box.proxy[1]}"
    way = {
        "proxy": ["--proxy", f"http://{proxy}"],
        "tunnel": ["--proxy", f"http://{proxy}", "--proxytunnel", "--suppress-connect-headers"],
        "socks": ["--proxy", f"socks5h://{proxy}"],
        "transparent": ["--resolve", f"{SITE}:{port}:127.198.0.16"],
    }[entrance]
    argv = ["curl", "-sS", "-m", "30", *way, *(each.replace("URL", f"http://{host}:{port}") for each in arguments)]
    done = subprocess.run(argv, input=sent, capture_output=True, env={"PATH": "/usr/bin:/bin"}, timeout=60)
    return (done.stdout + done.stderr).decode()


def test_a_get_arrives_as_the_program_would_have_sent_it_by_itself(far: tuple[Inside, int], entrance: str) -> None:
    seen = json.loads(curl(far, entrance, "-A", "x", "-U", "user:secret", "URL/a?b=c"))
    assert (seen["method"], seen["url"], seen["version"], seen["length"]) == ("GET", "/a?b=c", "1.1", 0)
    assert seen["headers"] == {"host": f"{SITE}:{far[1]}", "user-agent": "x", "accept": "*/*"}


def test_a_connection_is_kept_for_the_next_request(far: tuple[Inside, int], entrance: str) -> None:
    said = curl(far, entrance, "-v", "URL/one", "URL/two")
    assert [each in said for each in ('"url":"/one"', '"url":"/two"')] == [True, True]
    assert "Re-using existing" in said


def test_bodies_arrive_whole_whatever_says_their_length(far: tuple[Inside, int], entrance: str, tmp_path: Path) -> None:
    body = os.urandom(3_000_000)
    (tmp_path / "body").write_bytes(body)
    expected = (len(body), hashlib.sha256(body).hexdigest())
    for arguments in (
        ["--data-binary", f"@{tmp_path}/body"],  # a length, and Expect: 100-continue
        ["-T", "-"],  # chunks
        ["-0", "--data-binary", f"@{tmp_path}/body"],  # HTTP/1.0
    ):
        seen = json.loads(curl(far, entrance, *arguments, "URL/up", sent=body if "-" in arguments else b""))
        assert (seen["length"], seen["sha"]) == expected, arguments
        assert seen["version"] == ("1.0" if "-0" in arguments else "1.1")


def test_answers_without_a_body_and_with_trailers_end_where_they_end(far: tuple[Inside, int], entrance: str) -> None:
    assert "200 OK" in curl(far, entrance, "-I", "URL/a")
    assert "204 No Content" in curl(far, entrance, "-i", "URL/204")
    assert "304 Not Modified" in curl(far, entrance, "-i", "URL/304")
    assert curl(far, entrance, "-I", "URL/a", "URL/204", "URL/304").count("HTTP/1.1 ") == 3  # on one connection
    trailers = curl(far, entrance, "-i", "--raw", "URL/trailers")
    assert "transfer-encoding: chunked" in trailers.lower() and trailers.endswith("0\r\nX-Sum: 1\r\n\r\n")


def test_a_refusal_of_ours_is_told_from_one_of_the_site(far: tuple[Inside, int]) -> None:
    of_site = curl(far, "proxy", "-i", "URL/forbidden")
    assert of_site.startswith("HTTP/1.1 403") and of_site.endswith("mine") and "ringfence" not in of_site.lower()
    ours = curl(far, "proxy", "-i", "URL/forbidden", host=OTHER)
    assert ours.startswith("HTTP/1.1 403") and f'X-Ringfence-Denied: host="{OTHER}"; port="{far[1]}"' in ours
    assert f"ringfence does not let this box reach {OTHER}:{far[1]}." in ours and "Rule: " in ours
    tunnel = curl(far, "tunnel", "-v", "URL/", host=OTHER)
    assert "403" in tunnel and "X-Ringfence-Denied" in tunnel
    decided = [each for each in far[0].decisions() if each[1] == OTHER]
    assert decided and not any(each[0] for each in decided)


def test_a_websocket_is_opened_and_carries_bytes_both_ways(far: tuple[Inside, int]) -> None:
    box, port = far
    key = base64.b64encode(os.urandom(16)).decode()
    for transparent in (True, False):
        url = "" if transparent else f"http://{SITE}:{port}"
        ask = f"GET {url}/chat HTTP/1.1\r\nHost: {SITE}:{port}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
        with box.connect(0, port) if transparent else box.to_proxy() as client:
            client.sendall(f"{ask}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\nearly".encode())
            accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
            head = response(client)
            assert head.startswith(b"HTTP/1.1 101") and f"Sec-WebSocket-Accept: {accept}".encode() in head
            late = exactly(client, 5 - len(head.partition(b"\r\n\r\n")[2]))
            assert (head.partition(b"\r\n\r\n")[2] + late) == b"early"
            client.sendall(b"\x81\x05hello")
            assert exactly(client, 7) == b"\x81\x05hello"


def test_what_is_no_http_1_is_told_so(far: tuple[Inside, int]) -> None:
    assert "HTTP/2.0, where HTTP/1.1 and 1.0 are served" in _raw(far, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert "no HTTP request" in _raw(far, b"\x16\3\1\0\xf4\1\0")
    assert "the scheme 'https': ask for https with CONNECT" in _raw(
        far, f"GET https://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode()
    )


def _raw(far: tuple[Inside, int], sent: bytes) -> str:
    with far[0].to_proxy() as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return read_all(client).decode()
