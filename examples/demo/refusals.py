"""Three things that a box refuses, each tried in a box and, as its control, with the same program and no boundary.

Whether one was done is seen from outside: the secret in the output, the file on the disk, the connection at the
listener. What the program itself says is shown beside it, and shows that it really tried.
"""

from __future__ import annotations

import fcntl
import secrets
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringfence import Sandbox, SandboxConfig

TRY = """
import errno, socket, sys
try:
    {act}
except OSError as error:
    print("refused:", errno.errorcode[error.errno])
"""
READ = TRY.format(act="print(open(sys.argv[1]).read())")
WRITE = TRY.format(act="print('written', open(sys.argv[1], 'w').write(sys.argv[2]))")
CONNECT = TRY.format(act="s = socket.socket(int(sys.argv[1])); s.connect(eval(sys.argv[2])); s.send(sys.argv[3].encode())")

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
IFREQ = struct.Struct("16sH22x")  # struct ifreq with its flags


@dataclass(frozen=True)
class Attempt:
    """One act: whether it was done, seen from outside, and what the program said."""

    act: str
    done: bool
    said: str


async def attempts(workspace: Path, home: Path, tier: str) -> list[Attempt]:
    """The three acts under one tier. `home` is a folder in the caller's home that no box is given."""
    token = secrets.token_hex(16)
    secret, outside = home / "secret", home / f"written-under-{tier}"
    secret.write_text(token, encoding="utf-8")
    async with Sandbox(SandboxConfig(workspace=workspace, tier=tier, python=sys.executable)) as box:

        async def say(program: str, *arguments: str) -> str:
            result = await box.run([sys.executable, "-c", program, *arguments])
            lines = (result.stdout + result.stderr).strip().splitlines()
            return lines[-1] if lines else f"nothing ({result.outcome})"

        read = await say(READ, str(secret))
        wrote = await say(WRITE, str(outside), token)
        with listener(token) as server:
            family, address = server.family.value, server.getsockname()
            connected = await say(CONNECT, str(family), repr(address), token)
            was_connected = was_sent(server, token)
    return [
        Attempt("read a secret in the home folder", token in read, read),
        Attempt("write a file outside the workspace", outside.exists(), wrote),
        Attempt("connect to a server outside", was_connected, connected),
    ]


@contextmanager
def listener(token: str) -> Iterator[socket.socket]:
    """A server on loopback; where that cannot be had, one at an abstract address of the network namespace (unix(7))."""
    if bring_up_loopback():
        server = socket.create_server(("127.0.0.1", 0))
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(b"\0ringfence-demo-" + token.encode())
        server.listen()
    with server:
        server.settimeout(0.5)
        yield server


def was_sent(server: socket.socket, token: str) -> bool:
    """Whether a connection with the token is waiting. The program has ended, so there is nothing to wait for."""
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return False
    with connection:
        return connection.recv(len(token)) == token.encode()


def bring_up_loopback() -> bool:
    """Whether loopback is up. In a new network namespace (`unshare -n`) it is down, and only its owner may change that."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFFLAGS, IFREQ.pack(b"lo", 0))
        flags = IFREQ.unpack(answer)[1]
        if flags & IFF_UP:
            return True
        try:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, IFREQ.pack(b"lo", flags | IFF_UP))
        except PermissionError:
            return False
    return True
