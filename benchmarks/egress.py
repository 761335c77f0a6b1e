"""The way out: connections, streams and memory through the egress server, beside a direct connection and socat where it is at hand.

All of it is on loopback, with a range of names there, so that the table is of the server alone; what a box adds is its own
namespace, which the kernel serves. The far side and the clients are processes of their own, as they are in use.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.measure import Row, side_by_side
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.process import egress

RANGE, NAMED, OWN = "127.198.0.0/16", "127.198.0.16", "127.198.0.1"
NAME = "bench.example.org"
GIB = 1 << 30
BOXES = 200

FAR_SIDE = """
import os, socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(listener.getsockname()[1], flush=True)
block = memoryview(bytes(1 << 20))
def serve(connection):
    with connection:
        asked = connection.recv(16)
        if asked[:1] == b"g":
            for _ in range(1024):
                connection.sendall(block)
        elif asked:
            connection.sendall(asked)
threading.Thread(target=sys.stdin.read, daemon=True)
while True:
    connection, _ = listener.accept()
    if os.environ.get("STREAM"):
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
    else:
        serve(connection)
"""


def _far_side(stream: bool) -> tuple[subprocess.Popen[bytes], int]:
    environment = {"STREAM": "1"} if stream else {}
    process = subprocess.Popen([sys.executable, "-c", FAR_SIDE], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@contextlib.contextmanager
def _served(stream: bool = False) -> Iterator[tuple[int, tuple[str, int], tuple[str, int]]]:
    """A far side and a box's listeners: the far side's port, the proxy, and socat in front of the same where it is at hand."""
    process, port = _far_side(stream)
    others = [process]
    with contextlib.ExitStack() as stack:
        transparent = stack.enter_context(socket.create_server((NAMED, port), backlog=4096))
        proxy = stack.enter_context(socket.create_server((OWN, 0), backlog=4096))
        rules = (HostRule(NAME, host=NAME, ports=(port,)), HostRule("127.0.0.0/8", address="127.0.0.0/8", ports=(port,)))
        listeners = {"transparent.0": transparent.fileno(), "proxy": proxy.fileno()}
        made = egress.current().register(NetworkPolicy(allow=rules, range=RANGE), listeners, hosts=f"127.0.0.1 {NAME}")
        stack.callback(made.end)
        relay = ("", 0)
        if shutil.which("socat"):
            with socket.create_server((OWN, 0)) as free:
                relay = free.getsockname()
            listening = f"TCP-LISTEN:{relay[1]},bind={OWN},reuseaddr,fork,backlog=4096"
            others.append(subprocess.Popen(["socat", "-b", "262144", listening, f"TCP:127.0.0.1:{port}"]))
            _wait_for(relay)
        try:
            yield port, proxy.getsockname(), relay
        finally:
            for each in others:
                each.kill()
                each.wait()


def _wait_for(address: tuple[str, int]) -> None:
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(address).close()
            return


def _asks(address: tuple[str, int]) -> Callable[[], None]:
    def ask() -> None:
        with socket.create_connection(address) as client:
            client.sendall(b"a")
            assert client.recv(1) == b"a"

    return ask


def _tunnels(proxy: tuple[str, int], port: int) -> Callable[[], None]:
    head = f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode()

    def ask() -> None:
        with socket.create_connection(proxy) as client:
            client.sendall(head)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            client.sendall(b"a")
            assert client.recv(1) == b"a"

    return ask


def connections(rounds: int) -> list[Row]:
    """One connection, a byte there and back, and its end: direct, transparent, by CONNECT, and through socat."""
    with _served() as (port, proxy, relay):
        contenders = {"direct": _asks(("127.0.0.1", port)), "ours": _asks((NAMED, port)), "CONNECT": _tunnels(proxy, port)}
        if relay[1]:
            contenders["socat"] = _asks(relay)
        found = side_by_side(contenders, rounds)
    direct, beside = found["direct"], f"direct {found['direct']}, socat {found.get('socat', 'not at hand')}"
    rows = []
    for work, name, most in (("a connection, transparent", "ours", 1.0), ("a connection, CONNECT", "CONNECT", 1.5)):
        added = found[name].p50 - direct.p50
        rows.append(Row(work, f"{found[name]}, {added:.2f} ms added", beside, f"<= {most} ms added", added <= most))
    return rows


CLIENTS = """
import socket, sys, time
address, seconds = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3])
end, count = time.perf_counter() + seconds, 0
while time.perf_counter() < end:
    with socket.create_connection(address) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
    count += 1
print(count / seconds)
"""


def a_second(seconds: float) -> Row:
    """Connections a second from two clients at once, each with a byte there and back."""

    def rate(address: tuple[str, int]) -> float:
        command = [sys.executable, "-c", CLIENTS, address[0], str(address[1]), str(seconds)]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        return sum(float(client.communicate()[0]) for client in clients)

    with _served() as (port, _, relay):
        ours, direct = rate((NAMED, port)), rate(("127.0.0.1", port))
        beside = f", socat {rate(relay):.0f}" if relay[1] else ", socat not at hand"
    return Row("connections a second", f"{ours:.0f}", f"direct {direct:.0f}{beside}", ">= 1000", ours >= 1000)


READER = """
import socket, sys
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
if sys.argv[3]:
    client.sendall(sys.argv[3].encode().decode("unicode_escape").encode())
    assert client.recv(1000).startswith(b"HTTP/1.1 200")
client.sendall(b"g")
block, total = bytearray(1 << 20), 0
while got := client.recv_into(block):
    total += got
assert total == 1 << 30, total
"""


def stream() -> list[Row]:
    """1 GiB from the far side, and what the worker's memory did meanwhile."""
    with _served(stream=True) as (port, proxy, relay):

        def took(address: tuple[str, int], said: str = "") -> float:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", READER, address[0], str(address[1]), said], check=True)
            return time.perf_counter() - began

        said = f"CONNECT {NAME}:{port} HTTP/1.1\\r\\nHost: {NAME}:{port}\\r\\n\\r\\n"
        before = _held()
        times: dict[str, list[float]] = {}
        for _ in range(3):
            times.setdefault("direct", []).append(took(("127.0.0.1", port)))
            times.setdefault("transparent", []).append(took((NAMED, port)))
            times.setdefault("CONNECT", []).append(took(proxy, said))
            if relay[1]:
                times.setdefault("socat", []).append(took(relay))
        grown = (_held() - before) / 1024
    best = {name: 1024 / min(each) for name, each in times.items()}
    beside = f"direct {best['direct']:.0f} MiB/s, socat {best.get('socat', 0) or 'not at hand':.0f} MiB/s"
    return [
        Row(
            f"1 GiB, {name}",
            f"{best[name]:.0f} MiB/s, {best[name] / best['direct']:.2f} of direct, server +{grown:.1f} MiB",
            beside,
            ">= 0.4 of direct, memory flat",
            best[name] >= 0.4 * best["direct"] and grown < 4,
        )
        for name in ("transparent", "CONNECT")
    ]


def _held(kinds: tuple[str, ...] = ("RssAnon",)) -> int:
    """KiB of the supervisor and the worker."""
    pid = egress.current().pid
    total = 0
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for each in (pid, *map(int, children.read().split())):
            with open(f"/proc/{each}/status") as status:
                total += sum(int(line.split()[1]) for line in status if line.startswith(kinds))
    return total


def boxes() -> Row:
    """What the server holds for each of 200 boxes, kernel memory of their sockets not counted, and how many processes it is."""
    policy = NetworkPolicy(allow=tuple(HostRule(f"h{at}.example.org", host=f"h{at}.example.org") for at in range(10)), range=RANGE)
    with contextlib.ExitStack() as stack:
        stack.callback(egress.current().register(policy, {}).end)
        before = _held()
        for _ in range(BOXES):
            listeners = {
                name: stack.enter_context(socket.create_server((OWN, 0))) for name in ("proxy", "transparent.0", "dns_tcp")
            }
            listeners["dns_udp"] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            listeners["dns_udp"].bind((OWN, 0))
            stack.callback(egress.current().register(policy, {name: each.fileno() for name, each in listeners.items()}).end)
        each = (_held() - before) / BOXES
    return Row(
        f"{BOXES} boxes with egress", f"{each:.0f} KiB more for each, in the server", "", "<= 512 KiB, one server", each <= 512
    )
