"""A server inside a box is reached from outside as a stream, whichever call started it; nothing else is."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import ringfence
from ringfence import errors
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")

# Writes its port to the file "port" once it listens, then does one thing with each connection, for ever.
SERVER = """
import os, socket, struct, sys, threading
server = socket.socket({family})
server.bind(({host!r}, 0)); server.listen()
with open("port.new", "w") as file: file.write(str(server.getsockname()[1]))
os.rename("port.new", "port")
def serve(one):
    {serve}
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
ECHO = "\n    while data := one.recv(65536): one.sendall(data)\n    one.close()"
COUNT = "\n    n = 0\n    while data := one.recv(65536): n += len(data)\n    one.sendall(b'%d' % n); one.close()"
RESET = "\n    one.recv(1); one.sendall(b'part')\n    one.recv(1)\n" + (
    "    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); one.close()"
)
DEAF = "\n    one.shutdown(socket.SHUT_RD); one.close()"


def code_of(serve: str, host: str = "127.0.0.1", family: str = "socket.AF_INET") -> str:
    return SERVER.format(serve=serve, host=host, family=family)


def start(box: Sandbox, serve: str, **how: str) -> int:
    """Start a server in the background of one call; its port."""
    box.files.write("server.py", code_of(serve, **how))
    if box.files.exists("port"):
        box.files.remove("port")
    box.execute_command("python3 server.py & until [ -e port ]; do sleep 0.01; done", timeout=60).raise_for_status()
    return int(box.files.read("port"))


@pytest.fixture
def any_box(tier: str, workspace: Path) -> Iterator[Sandbox]:
    with Sandbox(SandboxConfig(tier=tier, workspace=workspace)) as made:
        yield made


def read_all(stream: Any) -> bytes:
    got = b""
    while piece := stream.read():
        got += piece
    return got


def answer(box: Sandbox, port: int, **how: Any) -> bytes:
    with box.connect(port, **how) as stream:
        stream.write(b"GET / HTTP/1.0\r\n\r\n")
        return read_all(stream)


def test_a_server_that_an_earlier_call_left_behind_is_reached_for_as_long_as_the_box_lives(workspace: Path) -> None:
    (workspace / "index.html").write_text("from inside")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        box.execute_command("python3 -m http.server 8000 --bind 127.0.0.1 & exit 0").raise_for_status()
        assert answer(box, 8000, wait=30).endswith(b"from inside")
        # Each request is a line on a stream that nobody holds any more; a server whose pipe was closed would die of it.
        for _ in range(20):
            assert b" 200 OK" in answer(box, 8000)
            assert box.run(["true"]).ok
        assert answer(box, 8000, host="localhost").endswith(b"from inside")
        inside = "import urllib.request as u; print(u.urlopen('http://localhost:8000/').read(), u.urlopen('http://127.0.0.1:8000/').status)"
        assert box.execute(inside).raise_for_status().stdout == "b'from inside' 200\n"
        assert box.execute("import socket; s = socket.socket(); s.bind(('', 0)); s.listen()").ok


def test_a_server_that_was_spawned_is_reached_and_ends_with_its_handle(any_box: Sandbox, workspace: Path) -> None:
    any_box.files.write("server.py", code_of(ECHO))
    with any_box.spawn(["python3", "server.py"]) as process:
        while not any_box.files.exists("port"):
            assert process.returncode is None
        port = int(any_box.files.read("port"))
        with any_box.connect(port) as stream:
            stream.write(b"hello")
            assert stream.read() == b"hello"
            stream.send_eof()
            assert stream.read() == b"" == stream.read()
    with pytest.raises(errors.ConnectRefusedError) as caught:
        any_box.connect(port)
    assert isinstance(caught.value, ConnectionRefusedError) and str(port) in str(caught.value)


def test_a_process_that_ticks_lives_across_calls_and_is_ended_by_its_handle(box: Sandbox) -> None:
    with box.spawn(["sh", "-c", "while :; do echo tick; sleep 0.02; done"]) as process:
        for _ in range(3):
            assert box.run(["sleep", "0.05"]).ok and process.returncode is None
            assert process.stdout.read(5) == b"tick\n"
        process.kill()
        assert process.wait().signal == 9


def test_what_is_sent_arrives_in_both_directions_and_both_ends_are_told_apart(any_box: Sandbox) -> None:
    size = 12 << 20
    port = start(any_box, ECHO)
    block = bytes(range(256)) * 4096
    with any_box.connect(port) as stream:

        def send() -> None:
            for _ in range(size // len(block)):
                stream.write(block)
            stream.send_eof()

        sender = threading.Thread(target=send)
        sender.start()
        got, total = hashlib.sha256(), 0
        while piece := stream.read():
            got.update(piece)
            total += len(piece)
        sender.join()
    assert total == size and got.digest() == hashlib.sha256(block * (size // len(block))).digest()
    port = start(any_box, COUNT)
    with any_box.connect(port) as stream:
        stream.write(b"x" * 100_000)
        stream.send_eof()
        assert stream.read() == b"100000"


def test_a_connection_that_is_broken_off_is_no_end(any_box: Sandbox) -> None:
    port = start(any_box, RESET)
    with any_box.connect(port) as stream:
        stream.write(b"a")
        assert stream.read() == b"part"
        stream.write(b"b")
        with pytest.raises(errors.ConnectError) as caught:
            read_all(stream)
        assert isinstance(caught.value, ConnectionError)


def test_a_server_that_reads_no_more_is_an_error_of_the_writer(any_box: Sandbox) -> None:
    port = start(any_box, DEAF)
    with any_box.connect(port) as stream, pytest.raises(errors.ConnectError):
        stream.write(b"x" * (64 << 20))


def test_nothing_but_the_box_s_own_loopback_is_reached(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            with pytest.raises(errors.ConnectRefusedError):
                box.connect(port)
            for host in ("192.0.2.1", "example.com", "0.0.0.0", "", None, "::ffff:192.0.2.1", "127.0.0.1\0", "fe80::1%lo"):
                with pytest.raises(errors.ArgumentError):
                    box.connect(port, host)  # type: ignore[arg-type]
            for number in (0, -1, 65536, True, "80", 80.0):
                with pytest.raises(errors.ArgumentError):
                    box.connect(number)  # type: ignore[arg-type]
            for wait in (-1, float("nan"), float("inf"), "1", True):
                with pytest.raises(errors.ArgumentError):
                    box.connect(port, wait=wait)  # type: ignore[arg-type]
        # The control: without a boundary the host's loopback is the box's.
        with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box, box.connect(port):
            outside.accept()[0].close()


def test_an_address_of_the_other_family_is_reached_and_localhost_is_both(box: Sandbox) -> None:
    port = start(box, ECHO, host="::1", family="socket.AF_INET6")
    for host in ("::1", "localhost"):
        with box.connect(port, host) as stream:
            stream.write(b"six")
            assert stream.read() == b"six"
    with pytest.raises(errors.ConnectRefusedError):
        box.connect(port)


def test_waiting_for_a_server_ends_when_it_listens_or_when_the_time_is_over(box: Sandbox) -> None:
    box.files.write("server.py", code_of(ECHO).replace("bind(('127.0.0.1', 0))", "bind(('127.0.0.1', 8123))"))
    box.execute_command("(sleep 0.3; exec python3 server.py) & exit 0").raise_for_status()
    with pytest.raises(errors.ConnectRefusedError):
        box.connect(8123)
    with box.connect(8123, wait=60) as stream:
        stream.write(b"late")
        assert stream.read() == b"late"
    began = time.monotonic()
    with pytest.raises(errors.ConnectRefusedError):
        box.connect(8124, wait=0.3)
    assert 0.3 <= time.monotonic() - began < 20


def test_the_relay_of_a_connection_cannot_be_looked_into_from_inside(box: Sandbox) -> None:
    port = start(box, ECHO)
    look = (
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    if int(pid) in (os.getpid(), os.getppid()): continue\n"
        "    for name in ('fd', 'mem', 'maps'):\n        try:\n"
        "            os.listdir(f'/proc/{pid}/fd') if name == 'fd' else open(f'/proc/{pid}/{name}', 'rb').close()\n"
        "            print(open(f'/proc/{pid}/cmdline').read().split('\\0')[:2], name)\n"
        "        except PermissionError: pass"
    )
    with box.connect(port) as stream:
        seen = box.run(["python3", "-c", look]).raise_for_status().stdout
        stream.write(b"x")
        assert stream.read() == b"x"
    lines = [line for line in seen.splitlines() if "server.py" not in line]
    assert "server.py" in seen and lines == []  # the server, the control, is a program like the one that looks


def test_closing_a_connection_ends_nothing_but_itself(box: Sandbox) -> None:
    port = start(box, ECHO)
    stream = box.connect(port)
    # A daemon in a session of its own, begun while the connection is open: an orphan of the box, and nobody's but its run's.
    box.execute_command("setsid sleep 4321 & exit 0").raise_for_status()
    box.files.list()
    stream.close()
    stream.close()
    assert box.run(["pgrep", "-fc", "^sleep 4321"]).stdout == "1\n"
    with box.connect(port) as again:
        again.write(b"still")
        assert again.read() == b"still"


def test_a_connection_outlives_the_limits_of_runs_and_ends_with_its_box(workspace: Path) -> None:
    limits = ringfence.SandboxLimits(wall_seconds=1)
    with Sandbox(SandboxConfig(workspace=workspace, limits=limits)) as box:
        box.files.write("server.py", code_of(ECHO))
        box.execute_command("setsid python3 server.py >&- 2>&- & until [ -e port ]; do sleep 0.01; done", timeout=1)
        with box.connect(int(box.files.read("port")), wait=10) as stream:
            time.sleep(1.5)
            stream.write(b"x")
            assert stream.read() == b"x"
            box.cleanup()
            assert stream.read() == b""
            with pytest.raises(errors.ConnectError):
                stream.write(b"x" * (1 << 20))


async def test_the_awaiting_face_is_a_byte_stream(workspace: Path) -> None:
    async with ringfence.Sandbox(SandboxConfig(workspace=workspace)) as box:
        await box.files.write("server.py", code_of(ECHO))
        await box.execute_command("python3 server.py & until [ -e port ]; do sleep 0.01; done")
        port = int(await box.files.read("port"))
        async with await box.connect(port) as stream:
            assert isinstance(stream, anyio.abc.ByteStream) and isinstance(stream, ringfence.Connection)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.send, b"x" * (1 << 20))
                got = 0
                while got < 1 << 20:
                    got += len(await stream.receive())
            with anyio.move_on_after(0.05) as scope:
                await stream.receive()
            assert scope.cancelled_caught
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            with pytest.raises(anyio.ClosedResourceError):
                await stream.send(b"x")
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()
        with pytest.raises(errors.ConnectRefusedError):
            await box.connect(1)
        with anyio.move_on_after(0.1) as scope:
            await box.connect(1, wait=60)
        assert scope.cancelled_caught and await box.ps() != []
        await box.files.write("server.py", code_of(RESET))
        await box.files.remove("port")
        await box.execute_command("python3 server.py & until [ -e port ]; do sleep 0.01; done")
        async with await box.connect(int(await box.files.read("port"))) as stream:
            await stream.send(b"a")
            assert await stream.receive() == b"part"
            await stream.send(b"b")
            with pytest.raises(anyio.BrokenResourceError):
                await stream.receive()
