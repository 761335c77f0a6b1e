"""Ports of a box for programs outside: each at a loopback address that is this box's alone, or at a socket with mode 0600.

What connects is carried by the relay of `connect`, so no socket comes out of the box. Every user of a machine can connect to its
loopback: whoever does is looked up, and only the caller's own connections, and root's, are carried.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import threading
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError, ConnectError, HostError, RingfenceError
from ringfence.policy.network import published
from ringfence.policy.patterns import within
from ringfence.process.wait import blocking
from ringfence.world.connection import Connection, open_connection

if TYPE_CHECKING:
    from ringfence.world.files import Reached

MOST = 256
"""Connections at a time; one more is closed."""
TRIES = 64
CHUNK = 1 << 16
SOCK_DIAG_BY_FAMILY, NETLINK_SOCK_DIAG = 20, 4  # linux/sock_diag.h, linux/netlink.h
UID_AT = 16 + 4 + 48 + 12  # nlmsghdr, then idiag_uid in struct inet_diag_msg (linux/inet_diag.h)


class Published:
    """The listeners of one box, until it is closed. places: where each port is, `127.x.y.z:PORT` or `unix:PATH`."""

    def __init__(self, world: Reached) -> None:
        self._world = world
        self.places: dict[int, str] = {}
        self._listeners: dict[int, tuple[socket.socket, int]] = {}
        self._paths: list[tuple[str, int]] = []
        self._clients: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._ended, self._end = os.pipe()
        try:
            self._listen()
        except BaseException:
            self.stop()
            self.join()
            raise
        self._serve(self._accept)

    def _listen(self) -> None:
        entries = list(dict.fromkeys(published(entry) for entry in self._world.policy.network.publish))
        ports = [port for path, port in entries if not path]
        if ports:
            address, made = _loopback(self._world.box.pid, ports)
            for port, listener in zip(ports, made, strict=True):
                self._listeners[listener.fileno()] = (listener, port)
                self.places[port] = f"{address}:{port}"
        for path, port in entries:
            if path:
                listener = self._at_path(path)
                self._listeners[listener.fileno()] = (listener, port)
                self.places.setdefault(port, f"unix:{path}")

    def _at_path(self, path: str) -> socket.socket:
        parent = os.path.realpath(os.path.dirname(path))
        if any(within(parent, folder.path) for folder in self._world.policy.shared):
            raise ConfigError(f"network.publish names {path}, which programs in the box could put another socket in the place of.")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(
                listener.fileno(), 0o600
            )  # what bind() makes has this mode, from its first moment (unix_bind, net/unix/af_unix.c)
            _take_away_left(path)
            listener.bind(path)
            self._paths.append((path, os.lstat(path).st_ino))
            listener.listen(64)
        except OSError as error:
            listener.close()
            hint = "Name a path where nothing is, in a folder that is there and that you may write."
            raise HostError(f"no socket can be made at {path}: {error.strerror}.", hint=hint, errno=error.errno or 0) from None
        return listener

    def _serve(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="ringfence-published", daemon=True)  # type: ignore[arg-type]
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        for descriptor in self._listeners:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._ended:
                    return
                listener, port = self._listeners[descriptor]
                try:
                    client, _ = listener.accept()
                except OSError:  # it is gone again, or no descriptor is left
                    continue
                if len(self._clients) >= MOST or not _may(client):
                    _break_off(client)
                    continue
                with self._guard:
                    self._clients.add(client)
                self._serve(self._carry, client, port)

    def _carry(self, client: socket.socket, port: int) -> None:
        try:
            inside = blocking(open_connection(self._world, port, "localhost", 0))
        except (ConnectError, RingfenceError, OSError):
            _break_off(client)
        else:
            up = threading.Thread(target=_send, args=(client, inside.stdin), name="ringfence-published", daemon=True)
            up.start()
            _receive(inside, client)
            up.join()
            try:
                blocking(inside.close())
            except (RingfenceError, OSError):
                pass  # the box has gone first
            client.close()
        finally:
            with self._guard:
                self._clients.discard(client)

    def stop(self) -> None:
        """Accept nothing more, and break what is open. Safe to call again."""
        if self._end < 0:
            return
        os.close(self._end)
        self._end = -1
        with self._guard:
            for client in self._clients:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended
        for path, inode in self._paths:
            try:
                if os.lstat(path).st_ino == inode:
                    os.unlink(path)
            except OSError:
                pass  # somebody has removed it

    def join(self) -> None:
        """Until nothing of it is left; after the box has ended, or it would wait for servers inside."""
        for thread in self._threads:
            thread.join(10)
        for listener, _ in self._listeners.values():
            listener.close()
        if self._ended >= 0:
            os.close(self._ended)
            self._ended = -1


def _take_away_left(path: str) -> None:
    """Remove a socket of this user's at path where nobody listens: a caller that was killed could not."""
    try:
        there = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(there.st_mode) or there.st_uid != os.geteuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(0)  # a listener whose queue is full answers EAGAIN, and is one
        try:
            asked.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            pass


def _loopback(pid: int, ports: list[int]) -> tuple[str, list[socket.socket]]:
    """An address of loopback on which all of ports are free, and listeners there. Not 127.0.x.y, which others use."""
    failed: OSError | None = None
    for number in range(TRIES):
        place = (pid * 2654435761 + number * 40503) & 0xFFFFFF  # spread, and the same for nobody else at the moment
        address = f"127.{1 + (place >> 16) % 254}.{place >> 8 & 255}.{1 + (place & 255) % 254}"
        made: list[socket.socket] = []
        try:
            for port in ports:
                made.append(socket.create_server((address, port)))
        except OSError as error:
            for listener in made:
                listener.close()
            failed = error
            continue
        return address, made
    assert failed is not None
    raise HostError(
        f"port {', '.join(map(str, ports))} can be published at no loopback address: {failed.strerror}.",
        hint="Something listens there on all addresses, or the port is below 1024: publish unix:PATH:PORT, or use another port.",
        errno=failed.errno or 0,
    )


def _may(client: socket.socket) -> bool:
    """Whether who connected is the caller or root. A Unix socket's mode has decided already."""
    return client.family == socket.AF_UNIX or owner(client.getpeername(), client.getsockname()) in (os.geteuid(), 0)


def owner(source: tuple[str, int], target: tuple[str, int]) -> int:
    """The user whose socket is connected from source to target on this machine (sock_diag(7)); -1 where there is none."""
    place = (
        struct.pack(">HH", source[1], target[1]) + socket.inet_aton(source[0]) + bytes(12) + socket.inet_aton(target[0]) + bytes(12)
    )
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + place + struct.pack("=I", 0) + b"\xff" * 8
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + asked)
            answer = kernel.recv(4096, socket.MSG_DONTWAIT)
    except OSError:
        return -1
    if len(answer) < UID_AT + 4 or struct.unpack_from("=H", answer, 4)[0] != SOCK_DIAG_BY_FAMILY:
        return -1
    return int(struct.unpack_from("=I", answer, UID_AT)[0])


def _break_off(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, as where nothing listens
    client.close()


def _send(client: socket.socket, inside: int) -> None:
    os.set_blocking(inside, True)
    try:
        while data := client.recv(CHUNK):
            while data:
                data = data[os.write(inside, data) :]
    except OSError:
        pass  # one side is gone
    finally:
        os.close(inside)


def _receive(inside: Connection, client: socket.socket) -> None:
    os.set_blocking(inside.stdout, True)
    try:
        while data := os.read(inside.stdout, CHUNK):
            client.sendall(data)
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # as above
    finally:
        os.close(inside.stdout)
