"""The network of a box that has a way out: what its first process makes before it gives up its rights.

Routes and rules come as messages to the kernel, made outside (confine/netlink.py); sockets are made as the plan lists them and
handed out. Of several ways the first that works here is taken, which is seen by using it: packets are sent, and arrive.
Nothing of it stays inside, and without its rights nothing in the box changes any of it.
"""

import _socket
import errno
import os
import select

from ringfence.guest import view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IPPROTO_IPV6, IPV6_V6ONLY, IPV6_FREEBIND = 41, 26, 78  # linux/in6.h
SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h
BACKLOG = 4096
PROBE_MS = 500
"""On a loopback a connection has arrived when connect() returns."""
TIMEOUT = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait"
TIME_WAIT = b"5"
"""Seconds that the kernel's table keeps a connection which has ended. It keeps 120 by itself, and 1,000 connections a second
would fill the table of a box (nf_conntrack_max)."""


def make(described: "dict[str, Any]") -> "tuple[list[bytes], list[int]]":
    """The name of the way that was taken, then those of what is handed out; and the descriptors."""
    _tell(0, described["routes"]).close()
    failed: OSError | None = None
    for way in described["ways"]:
        try:
            names, made = _by(way)
        except OSError as error:
            failed = error
            continue
        return [way["name"], *names], made
    raise view.ViewError("make the network of", b"the box", failed.errno or 0 if failed else 0)


def _by(way: "dict[str, Any]") -> "tuple[list[bytes], list[int]]":
    made: dict[bytes, _socket.socket] = {}
    try:
        for name, protocol, messages in way["messages"]:
            kernel = _tell(protocol, messages)
            if name:
                made[name] = kernel
            else:
                kernel.close()
        for name, family, kind, address, port, optional in way["sockets"]:
            try:
                made[name] = _listening(family, kind, address.decode(), port)
            except OSError:
                if not optional:
                    raise
        if way["probe"]:
            _probe(made, *way["probe"])
            _shorten_time_wait()
    except OSError:
        for socket in made.values():
            socket.close()
        for protocol, messages in way["undo"]:
            _tell(protocol, messages, check=False).close()
        raise
    return list(made), [socket.detach() for socket in made.values()]


def _tell(protocol: int, messages: bytes, *, check: bool = True) -> "_socket.socket":
    """Send messages to the kernel, which has answered when send returns. Raises OSError for the first that it refused."""
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, protocol)
    try:
        kernel.bind((0, 0))
        kernel.send(messages)
        for answer in _answers(kernel):
            number = -int.from_bytes(answer[16:20], "little", signed=True) if answer[4:6] == b"\x02\0" else 0
            if number and check:
                raise OSError(number, "netlink: " + os.strerror(number))
    except BaseException:
        kernel.close()
        raise
    return kernel


def _answers(kernel: "_socket.socket") -> "list[bytes]":
    answers: list[bytes] = []
    while True:
        try:
            packet = kernel.recv(1 << 16, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return answers
        while len(packet) >= 16:
            length = int.from_bytes(packet[:4], "little")
            answers.append(packet[:length])
            packet = packet[length + -length % 4 :]


def _listening(family: int, kind: int, address: str, port: int) -> "_socket.socket":
    socket = _socket.socket(family, kind)
    try:
        if family == _socket.AF_INET6:
            socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            socket.setsockopt(IPPROTO_IPV6, IPV6_FREEBIND, 1)  # a local route alone makes no address one to bind to
        socket.bind((address, port))
        if kind == _socket.SOCK_STREAM:
            socket.listen(BACKLOG)
    except BaseException:
        socket.close()
        raise
    return socket


def _probe(made: "dict[bytes, _socket.socket]", address: bytes, port: int, refused: int) -> None:
    """A connection must arrive with what it was made to; a packet that is refused must be told, where that can be had."""
    listener = made[b"transparent"]
    client = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        client.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, b"\1\0\0\0" + bytes(4))  # it leaves nothing in any table
        client.setblocking(False)
        client.connect_ex((address.decode(), port))
        poll = select.poll()
        poll.register(listener.fileno(), select.POLLIN)
        if not poll.poll(PROBE_MS):
            raise OSError(errno.ETIMEDOUT, "a connection was not redirected")
        accepted, _ = listener._accept()  # type: ignore[attr-defined]  # what socket.accept() of Python calls
        arrived = _socket.socket(fileno=accepted)
        asked = arrived.getsockopt(_socket.IPPROTO_IP, SO_ORIGINAL_DST, 16)
        arrived.close()
    finally:
        client.close()
    if asked[2:8] != port.to_bytes(2, "big") + _socket.inet_aton(address.decode()):
        raise OSError(errno.EPROTO, "a redirected connection does not tell what it was made to")
    if b"refusals" in made:
        _probe_refusal(made[b"refusals"], address, refused)


def _probe_refusal(refusals: "_socket.socket", address: bytes, port: int) -> None:
    packet = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        packet.sendto(b"", (address.decode(), port))
    except OSError:
        pass  # as it is to be
    finally:
        packet.close()
    if not _answers(refusals):
        raise OSError(errno.ENODATA, "a refused packet is not told")


def _shorten_time_wait() -> None:
    try:
        descriptor = os.open(TIMEOUT, os.O_WRONLY)
    except OSError:
        return  # where /proc/sys cannot be written, as in some containers: the kernel's own time
    try:
        os.write(descriptor, TIME_WAIT)
    except OSError:
        pass
    finally:
        os.close(descriptor)
