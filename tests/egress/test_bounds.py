"""What the server holds is bounded, whatever a box sends or does not send: connections, heads, time, memory, what others have."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from contextlib import ExitStack

import pytest

from egress.outside import Inside, allow, echo, inside, named, read_all, response, server, until, worker_pid
from ringfence.egress import limits

SITE = "files.example.org"
HOSTS = f"127.0.0.1 {SITE}\n"


def held_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def test_a_box_has_never_more_connections_than_it_leaves_to_others() -> None:
    room = limits.Room(20000)
    counts = [0, 0, 0]
    while any(room.has(count) for count in counts):
        for at, count in enumerate(counts):
            if room.has(count):
                counts[at] += 1
                room.connections += 1
    left = room.most - room.connections
    assert max(counts) - min(counts) <= 1 and left >= max(counts) - 1
    alone = limits.Room(20000)
    while alone.has(alone.connections):
        alone.connections += 1
    assert alone.connections >= 4500
    vast = limits.Room(1 << 20)
    assert vast.has(9_999) and not vast.has(10_000)


def test_the_one_too_many_gets_a_clear_answer_and_a_record_and_another_box_is_served() -> None:
    """As many connections as one box may have, which listen and say nothing, and then some more."""
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        policy = allow(named(SITE, port), ports=[port])
        greedy = stack.enter_context(inside(policy, [(0, port)], HOSTS))
        held = descriptors_here()
        most = min(12000, held - 400)
        clients: list[socket.socket] = []
        stack.callback(lambda: [each.close() for each in clients])
        while len(clients) < most and not any(each["op"] == "decision" for each in greedy.records()[-1:]):
            with contextlib.suppress(ConnectionError):  # so many are being told that there are too many
                for _ in range(10):
                    clients.append(greedy.to_proxy())
        told = next(each for each in greedy.records() if each["op"] == "decision")
        assert (told["allowed"], told["rule"]) == (0, "egress.connections")
        for said, answer in ((b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 503"), (b"\5\1\0", b"\5\0\5\1\0\1")):
            until(lambda: said_to(greedy, said).startswith(answer))  # noqa: B023  # so many are told so at once
        assert greedy.resets(0, port)
        other = stack.enter_context(inside(policy, hosts=HOSTS))
        with other.to_proxy() as client:
            client.sendall(f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")


def said_to(box: Inside, said: bytes) -> bytes:
    try:
        with box.to_proxy() as client:
            client.sendall(said)
            return read_all(client)
    except ConnectionError:
        return b"<reset>"


def descriptors_here() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def test_memory_is_the_same_after_many_connections() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(answer))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))

        def some(count: int) -> int:
            for _ in range(count):
                with box.connect(0, port) as client:
                    client.sendall(b"a")
                    assert client.recv(1) == b"a"
                box.records().clear()
            return held_kib(worker_pid())

        def descriptors() -> int:
            return len(os.listdir(f"/proc/{worker_pid()}/fd")) if os.geteuid() == 0 else 0  # nobody else may look

        before, pid, opened = some(500), worker_pid(), descriptors()
        assert some(1500) - before < 512
        until(lambda: descriptors() <= opened + 2)
        assert worker_pid() == pid


def answer(connection: socket.socket) -> None:
    connection.sendall(connection.recv(1))


@pytest.mark.parametrize("said", [b"GET http://x/ HTTP/1.1\r\nX: ", b"CONNECT x:443 HTTP/1.1\r\n", b"\x16\3\1\x40\0\1\0\xff\xff"])
def test_a_head_that_never_ends_is_refused_at_a_bound(said: bytes) -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port, schemes=("tls",)), ports=[port]), [(0, port)], HOSTS))
        client = stack.enter_context(box.to_proxy() if said[:1] != b"\x16" else box.connect(0, port))
        sent = 0
        try:
            client.sendall(said)
            while sent < 64 << 20:
                client.sendall(b"a" * 8192)
                sent += 8192
        except OSError:
            pass
        assert sent < 64 << 20
        assert held_kib(worker_pid()) < 64 * 1024


def test_a_client_that_says_nothing_or_little_by_little_is_left_in_a_bounded_time() -> None:
    """The bound is for a whole head: a byte now and then does not move it."""
    with ExitStack() as stack:
        port, _ = stack.enter_context(server(echo))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS, hello_seconds=0.5))
        client = stack.enter_context(box.to_proxy())
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(0.05)
        words = iter(b"GET http://files.example.org/" + b"a" * 1000)
        held = b""
        for _ in range(80):
            try:
                client.sendall(bytes([next(words)]))
                if not (data := client.recv(4096)):
                    break
                held += data
            except TimeoutError:
                continue
            except OSError:
                break
        assert held.startswith(b"HTTP/1.1 408")


def test_a_half_closed_connection_goes_on_the_other_way() -> None:
    def late(connection: socket.socket) -> None:
        held = b""
        while data := connection.recv(65536):
            held += data
        connection.sendall(b"got %d" % len(held))

    def early(connection: socket.socket) -> None:
        connection.sendall(b"bye")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with ExitStack() as stack:
        (first, _), (second, seen) = stack.enter_context(server(late)), stack.enter_context(server(early))
        policy = allow(named(SITE, first, second), ports=[first, second])
        box = stack.enter_context(inside(policy, [(0, first), (0, second)], HOSTS))
        with box.connect(0, first) as client:
            client.sendall(b"x" * 100_000)
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"got 100000"
        with box.connect(0, second) as client:
            assert read_all(client) == b"bye"
            client.sendall(b"still here")
            until(lambda: seen == [b"still here"])


def test_a_far_side_that_resets_resets_the_client() -> None:
    def broken(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with ExitStack() as stack:
        port, _ = stack.enter_context(server(broken))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        with box.connect(0, port) as client:
            client.sendall(b"a")
            assert read_all(client) == b"<reset>"


def test_a_long_stream_arrives_whole_while_its_reader_is_slow_and_nothing_is_held() -> None:
    size = 664 << 20

    def pour(connection: socket.socket) -> None:
        block = bytes(range(256)) * 4096
        for _ in range(size // len(block)):
            connection.sendall(block)

    with ExitStack() as stack:
        port, _ = stack.enter_context(server(pour))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        before = held_kib(worker_pid())
        with box.connect(0, port) as client:
            total, expected = 0, 0
            while data := client.recv(1 << 20):
                assert data[0] == expected % 256
                expected += len(data)
                total += len(data)
        assert total == size
        assert held_kib(worker_pid()) - before < 2048


def test_records_that_nobody_reads_are_added_up_and_counted_and_block_nothing() -> None:
    with ExitStack() as stack:
        box = stack.enter_context(inside(allow(named(SITE, 1)), hosts=HOSTS))
        for at in range(3000):
            with box.to_proxy() as client:
                client.sendall(f"GET http://h{at % 1500}.example.org/ HTTP/1.1\r\nHost: h{at % 1500}.example.org\r\n\r\n".encode())
                assert response(client).startswith(b"HTTP/1.1 403")
        until(lambda: sum(each["count"] for each in box.records() if each["op"] in ("decision", "spent")) == 3000)


def test_a_client_that_goes_away_in_the_middle_of_a_stream_ends_nothing_but_its_own_connection() -> None:
    def pour(connection: socket.socket) -> None:
        block = bytes(1 << 20)
        while True:
            connection.sendall(block)

    with ExitStack() as stack:
        port, _ = stack.enter_context(server(pour))
        box = stack.enter_context(inside(allow(named(SITE, port), ports=[port]), [(0, port)], HOSTS))
        before = worker_pid()
        for linger in (b"\0" * 8, b"\1\0\0\0\0\0\0\0"):
            for _ in range(5):
                with box.connect(0, port) as client:
                    taken = 0
                    while taken < 8 << 20:  # by then it is the kernel that moves it
                        taken += len(client.recv(1 << 20))
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        with box.connect(0, port) as client:
            assert client.recv(1) == b"\0"
        assert worker_pid() == before and not [each for each in box.records() if each["op"] == "restarted"]
