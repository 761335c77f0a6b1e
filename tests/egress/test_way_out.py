"""From a program in a box to a far side, through the server: what was asked for is dialled, and nobody else gets in."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from egress.inside import TRY
from egress.internet import Internet, internet
from ringfence.confine import network
from ringfence.process import egress
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

HERE, THERE = "2001:db8::7", "2001:db8::8"
FILES, OTHER = "files.example.org", "other.example.org"
OTHER_USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
LISTENING = "0A"  # TCP_LISTEN (net/tcp_states.h), as /proc/net/tcp has it


@pytest.fixture(scope="module")
def outside() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder, internet(Path(folder)) as made:
        yield made


class Proxy(threading.Thread):
    """Plays the proxy that a host goes out by: notes where to, and says so to the client in the place of a far side."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            client, _ = self._listening.accept()
            with client:
                client.settimeout(10)
                held = b""
                while b"\r\n\r\n" not in held and (data := client.recv(4096)):
                    held += data
                if not held:
                    return
                self.asked.append(held.split(b"\r\n")[0].decode())
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + self.asked[-1].encode())

    def end(self) -> None:
        socket.create_connection(self._listening.getsockname()).close()
        self.join()
        self._listening.close()


@pytest.fixture
def upstream() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.end()


@pytest.mark.parametrize("way", [network.REDIRECT, network.LISTENERS])
def test_an_address_of_either_family_is_dialled_as_a_program_asked_for_it(
    upstream: Proxy, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What a redirect leaves of it is SO_ORIGINAL_DST, of IPv6 too; without one it is what the listener is bound to."""
    monkeypatch.setattr(network, "WAYS", (way,))
    rules = [{"address": f"{HERE}/128", "ports": [8443]}, {"address": "192.0.2.0/24", "ports": [22]}]
    config = SandboxConfig(network_allow=rules, private_addresses=True, upstream_proxy=upstream.url)
    asks = [("192.0.2.7", 22), (HERE, 8443), (HERE, 8444), (THERE, 8443), ("192.0.2.7", 23), ("198.51.100.7", 22)]
    with Sandbox(config) as box:
        result = box.execute(f"{TRY}for each in {asks}: print(tried(*each))")
    first, second, *refused = result.stdout.splitlines()
    assert [first, second] == upstream.asked == ["CONNECT 192.0.2.7:22 HTTP/1.1", f"CONNECT [{HERE}]:8443 HTTP/1.1"]
    assert all(each.isdecimal() for each in refused), "an errno, at once"
    if way == network.REDIRECT:
        assert {each.target for each in result.denials} == {
            f"[{HERE}]:8444", f"[{THERE}]:8443", "192.0.2.7:23", "198.51.100.7:22"
        }  # fmt: skip


def test_where_all_is_allowed_a_refused_address_of_ipv6_is_told_as_it_was_asked_for(upstream: Proxy) -> None:
    config = SandboxConfig(allow_network=True, network_deny=[HERE], private_addresses=True, upstream_proxy=upstream.url)
    with Sandbox(config) as box:
        result = box.execute(f"{TRY}print(tried({HERE!r}, 6667)); print(tried({THERE!r}, 6667)); print(tried('::1', 6667))")
    denied, allowed, own = result.stdout.splitlines()
    assert denied in ("104", "") and own == "111"  # a reset, or an end; nothing listens on the box's own loopback
    assert [allowed] == upstream.asked == [f"CONNECT [{THERE}]:6667 HTTP/1.1"]
    assert [(each.target, each.rule) for each in result.denials] == [(f"[{HERE}]:6667", f"network.deny: {HERE}")]


def listeners(of: str) -> set[str]:
    """Sockets of a network that wait for connections: TCP, and those of the host by an abstract name."""
    found = set()
    for table in ("tcp", "tcp6"):
        lines = [line.split() for line in Path(f"/proc/{of}/net/{table}").read_text().splitlines()[1:]]
        found |= {f"{table} {line[1]}" for line in lines if line[3] == LISTENING}
    names = re.findall(r" (@\S+)$", Path(f"/proc/{of}/net/unix").read_text(), re.MULTILINE)
    return found | set(names)


ASK_PROXY = """
import socket, sys
with socket.create_connection(("198.18.0.1", 808), timeout=10) as proxy:
    proxy.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
    print(proxy.recv(4096).decode().split("\\r\\n")[0])
"""


@pytest.mark.alone  # of the whole host it is said who listens
@pytest.mark.parametrize("way", [network.REDIRECT, network.LISTENERS])
def test_no_other_box_goes_out_by_the_listeners_of_one(outside: Internet, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """N25: at the same address each box finds its own, by which its own rules hold; outside of them there is nothing to find."""
    monkeypatch.setattr(network, "WAYS", (way,))
    monkeypatch.setenv("RINGFENCE_RESOLVERS", outside.names.place)
    place = f"{FILES}:{outside.http}"
    ask = ["/usr/bin/python3", "-c", ASK_PROXY, place]
    past = ["curl", "-sS", "-m", "5", "--noproxy", "*", "--connect-to", f"{FILES}::198.18.0.16:", f"http://{place}/"]
    before = listeners("self")
    with ExitStack() as stack:
        allowed, other = (
            stack.enter_context(Sandbox(SandboxConfig(network_allow=[each], private_addresses=True)))
            for each in (place, f"{OTHER}:{outside.http}")
        )
        closed = stack.enter_context(Sandbox())
        assert allowed.run(ask).stdout.strip() == "HTTP/1.1 200 Connection established"
        assert allowed.run(past).stdout == "a page"
        seen, looked_up = len(outside.seen), len(outside.names.asked)
        refused = other.run(ask)
        assert refused.stdout.startswith("HTTP/1.1 403")
        assert [(each.target, each.evidence) for each in refused.denials] == [(place, "observed")]
        assert not closed.run(ask).ok and not closed.run(past).ok
        assert len(outside.seen) == seen
        other.run(past)
        assert set(outside.names.asked[looked_up:]) == {OTHER}, "the same address is that of another name there"
        worlds = [box._open() for box in (allowed, other)]
        for world in worlds:
            assert "tcp 010012C6:0328" in listeners(str(world.box.pid)), "where it is looked for there is one"
        assert listeners("self") - before == set(), "and none of it on the host"


@pytest.mark.live("root")
def test_no_other_user_gets_at_the_listeners_of_a_box() -> None:
    """N25: neither through its namespace, nor through the processes that have its sockets. The control: its user may look."""
    with Sandbox(SandboxConfig(network_allow=[FILES])) as box:
        guest, server = box._open().box.pid, egress.current().pid
        inside = ["nsenter", f"--net=/proc/{guest}/ns/net", "cat", "/proc/net/tcp"]
        mine = subprocess.run(inside, capture_output=True, text=True, check=False)
        assert "010012C6:0328" in mine.stdout, mine.stderr
        theirs = subprocess.run([*OTHER_USER, *inside], capture_output=True, text=True, check=False)
        assert theirs.returncode != 0 and "Permission denied" in theirs.stderr
        for pid in (os.getpid(), guest, server):
            look = ["ls", f"/proc/{pid}/fd"]
            assert subprocess.run(look, capture_output=True, check=False).returncode == 0
            done = subprocess.run([*OTHER_USER, *look], capture_output=True, text=True, check=False)
            assert done.returncode != 0 and "Permission denied" in done.stderr
