"""A program in a box that wants the server for itself: connections without end, heads that are slow or never end, and the like.

What it gets is bounded and told, others are served meanwhile, and when its box is gone the server holds nothing of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from egress.internet import UNKNOWN, Internet, internet
from egress.outside import until, worker_pid
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("namespaces")

PYTHON = "/usr/bin/python3"
FILES = "files.example.org"
SECONDS = 20
MOST = 10_000
"""Connections that a box may have at once, however many descriptors the server may have (docs/network.md)."""


@pytest.fixture(scope="module")
def outside() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder, internet(Path(folder)) as made:
        yield made


@pytest.fixture(autouse=True)
def looks_there(outside: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_RESOLVERS", outside.names.place)


def reaching(outside: Internet, **more: object) -> SandboxConfig:
    return SandboxConfig(network_allow=[f"{FILES}:{outside.http}"], private_addresses=True, **more)  # type: ignore[arg-type]


def works(box: Sandbox, outside: Internet) -> bool:
    """Whether a page is fetched through the proxy, and past it."""
    get = f"curl -sSf -m {SECONDS} http://{FILES}:{outside.http}/"
    return box.execute_command(f"{get} && {get} --noproxy '*'").stdout == "a page" * 2


FLOOD = f"""
import socket, sys, time
proxy, held, answer = ("198.18.0.1", 808), [], ""
def told():
    with socket.create_connection(proxy, timeout={SECONDS}) as client:
        client.sendall(b"GET http://{FILES}/ HTTP/1.1\\r\\nHost: {FILES}\\r\\n\\r\\n")
        return client.recv(4096).split(b"\\r\\n")[0].decode()
try:
    while len(held) < {MOST + 500}:
        held.append(socket.create_connection(proxy, timeout={SECONDS}))
except OSError as error:
    print(repr(error), file=sys.stderr)
until = time.monotonic() + {SECONDS}
while time.monotonic() < until:  # those that were too many and are silent are left, and then there is room to tell the next
    try:
        answer = told()
    except OSError:
        continue
    if "503" in answer:
        break
print(len(held), answer, flush=True)
sys.stdin.read()
"""


def test_a_box_with_all_connections_it_may_have_is_told_so_and_leaves_another_box_its_own(outside: Internet) -> None:
    limits = SandboxLimits(open_files=MOST + 2000)
    with Sandbox(reaching(outside)) as other, Sandbox(reaching(outside, limits=limits)) as box:
        with box.spawn([PYTHON, "-c", FLOOD]) as flood:
            said = b""
            while not said.endswith(b"\n"):
                data = flood.stdout.read(100)
                assert data, flood.stderr.read(1000)
                said += data
            assert said.split(b" ", 1)[1].startswith(b"HTTP/1.1 503"), said
            assert works(other, outside)
        told = [*box.denials()]
        assert works(box, outside), "when its connections are gone there is room again"
        assert 0 < len(told) < 60
        assert "egress.connections" in {denial.rule for denial in told}


MIXED = f"""
import select, socket, sys, time
proxy, slow, endless = ("198.18.0.1", 808), [], []
def connect(said, half=False):
    client = socket.create_connection(proxy, timeout={SECONDS})
    client.sendall(said)
    if half:
        client.shutdown(socket.SHUT_WR)
    client.setblocking(False)
    return client
kept = []
for at in range(60):
    kept.append(connect(b""))
    slow.append(connect(b"GET http://{FILES}/"))
    endless.append(connect(b"GET http://{FILES}/ HTTP/1.1\\r\\nHost: {FILES}\\r\\nX: "))
    kept.append(connect((b"", b"CONN", b"\\5\\1", b"\\x16\\3\\1")[at % 4], half=True))
sent = 0
print("up", flush=True)
until = time.monotonic() + {SECONDS}
while time.monotonic() < until and (endless or not select.select([sys.stdin], [], [], 0)[0]):
    for group, data in ((slow, b"a"), (endless, b"a" * 4096)):
        for client in list(group):
            try:
                sent += client.send(data)
            except BlockingIOError:
                pass
            except OSError:
                group.remove(client)
                client.close()
    select.select([sys.stdin], [], [], 0.01)
print(len(endless), flush=True)
"""


def test_slow_endless_and_half_closed_heads_leave_the_same_box_its_way_out(outside: Internet) -> None:
    with Sandbox(reaching(outside)) as box:
        assert works(box, outside)
        with box.spawn([PYTHON, "-c", MIXED]) as attack:
            assert attack.stdout.read(3) == b"up\n"
            assert works(box, outside)
            attack.stdin.close()
            assert attack.stdout.read(10) == b"0\n", "every head without an end was ended"
        assert works(box, outside)
        told = [*box.denials()]
        assert {denial.evidence for denial in told} == {"observed"}
        assert len(told) < 60, "equal ones are one"


NAMES = f"""
import socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.connect(("198.18.0.1", 53))
    client.settimeout({SECONDS})
    for at in range(5000):
        labels = b"".join(bytes([len(part)]) + part.encode() for part in f"n{{at}}.{UNKNOWN}".split("."))
        client.send(struct.pack(">HHHHHH", at, 0x100, 1, 0, 0, 0) + labels + bytes([0, 0, 1, 0, 1]))
        answer = client.recv(512)
        assert answer[3] & 15 == 3, answer
"""


@pytest.mark.alone  # who reads in time reads all of it
def test_more_refusals_than_can_wait_are_counted_and_the_next_run_is_told_its_own(outside: Internet) -> None:
    with Sandbox(reaching(outside)) as box:
        asked = len(outside.names.asked)
        result = box.run([PYTHON, "-c", NAMES])
        assert result.ok, result.stderr
        assert len(outside.names.asked) == asked, "none of it left"
        told = len(result.denials)
        assert any("not all of it is told" in note for note in result.notes) if told < 5000 else told == 5000, (told, result.notes)
        refused = box.run(["curl", "-sS", f"http://{UNKNOWN}/"])
        assert [denial.target for denial in refused.denials] == [f"{UNKNOWN}:80"]
        assert not any("not all" in note for note in refused.notes)
        assert works(box, outside)


@pytest.mark.live("root")  # nobody else may look at what the worker holds
def test_the_end_of_a_box_leaves_nothing_with_the_server(outside: Internet) -> None:
    with Sandbox(reaching(outside)) as first:
        assert works(first, outside)
        worker = worker_pid()

        def held() -> int:
            return len(os.listdir(f"/proc/{worker}/fd"))

        before = held()
        with ExitStack() as stack, Sandbox(reaching(outside)) as box:
            attack = stack.enter_context(box.spawn([PYTHON, "-c", MIXED]))  # it ends with its box
            assert attack.stdout.read(3) == b"up\n"
            until(lambda: held() > before + 60)  # those that say nothing are held for as long as it takes to say something
        until(lambda: held() <= before)
        assert worker_pid() == worker and works(first, outside)
