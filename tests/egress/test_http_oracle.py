"""What goes up is read by a parser that was not written here as the very requests that were decided on, no more and no fewer."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
from collections.abc import Iterator

import pytest

from egress.outside import read_all
from egress.test_http_requests import GET, GOOD, PIECES, run
from ringfence.egress.http_target import host_field

INPUTS = 1500
NODE = """
const http = require('http');
const site = http.createServer((q, r) => {
  let length = 0;
  q.on('data', (d) => { length += d.length; });
  q.on('end', () => {
    const text = JSON.stringify([q.method, q.url, q.headers.host, length]);
    r.writeHead(200, { 'Content-Length': Buffer.byteLength(text) }).end(text);
  });
});
site.listen(0, '127.0.0.1', () => console.log(JSON.stringify([site.address().port, http.METHODS])));
"""


@pytest.fixture
def node() -> Iterator[tuple[int, list[str]]]:
    with subprocess.Popen(["node", "-e", NODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield tuple(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def read_by(port: int, up: bytes) -> list[list[object]]:
    """The requests that a server saw, and a last entry for what it refused."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(up)
        client.shutdown(socket.SHUT_WR)
        got, found = read_all(client), []
    while got:
        head, _, got = got.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if head.startswith(b"HTTP/1.1 200") and length:
            found.append(json.loads(got[: int(length[1])]))
            got = got[int(length[1]) :]
        elif not head.startswith(b"HTTP/1.1 100"):
            found.append(["refused"])
    return found


@pytest.mark.live("node")
def test_node_reads_the_very_requests_that_were_decided_on(node: tuple[int, list[str]]) -> None:
    port, methods = node
    draw, compared = random.Random(80), 0
    while compared < INPUTS:
        sent = bytearray(draw.choice(GOOD) + draw.choice((b"", GET)))
        for _ in range(draw.randint(0, 2)):
            at = draw.randrange(len(sent))
            sent[at : at + draw.choice((0, 0, 1, 2))] = draw.choice(PIECES) if draw.random() < 0.5 else draw.randbytes(1)
        up, refused, seen, _ = run([bytes(sent)], ended=True)
        # What it does not take at all is no second reading: methods that it does not know, bytes above ASCII in a path.
        if (
            not seen
            or not up.isascii()
            or any(each.scheme == "connect" or each.upgrade or each.method not in methods for each in seen)
        ):
            continue
        decided = [[each.method, each.head().split(b" ")[1].decode(), host_field(each.target).decode()] for each in seen]
        sizes = [each.size for each in seen]
        found = read_by(port, up)
        if refused and found != decided:  # the last one was refused in its body, and may have gone up in part
            found = [each for each in found if each != ["refused"]]
            decided, sizes = decided[: len(found)], sizes[: len(found)]
            assert len(found) >= len(seen) - 1, (up, found)
        assert [each[:3] for each in found] == decided, (up, found)
        assert all(size is None or each[3] == size for each, size in zip(found, sizes, strict=True)), (up, found)
        compared += 1
