"""A connection to a server inside the box, carried over the pipes of a run: no socket leaves the box.

Standard input goes to the server, what it sends to standard output. Standard error says b"+" once it is connected, and b"!"
when the server has broken the connection off rather than ended it.
"""

import _socket
import errno
import os
import select
import signal
import time

from ringfence.guest.trees import Refusal, write_all

CHUNK = 1 << 16
PAUSE = 0.02
"""Seconds between two tries while nothing listens."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def connect(path: bytes, request: "dict[str, Any]") -> None:
    """Connect to the first of the request's hosts that answers, then carry bytes until both sides have ended."""
    until = time.monotonic() + request["wait"] / 1000
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    while True:
        number = 0
        for host in request["hosts"]:
            try:
                server = _connected(host.decode("ascii"), request["port"], request["patience"] / 1000)
            except OSError as error:
                number = number or error.errno or errno.ETIMEDOUT
                continue
            write_all(2, b"+")
            _carry(server)
            return
        if number != errno.ECONNREFUSED or time.monotonic() >= until:
            raise Refusal(b"connect", number)
        time.sleep(PAUSE)


def _connected(host: str, port: int, seconds: float) -> "_socket.socket":
    server = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        server.settimeout(seconds)
        server.connect((host, port))
    except BaseException:
        server.close()
        raise
    server.setblocking(False)
    return server


class _Way:
    """One direction: what was read and not yet written, and whether more may come."""

    __slots__ = ("ended", "held", "sink", "source")

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink, self.held, self.ended = source, sink, b"", False
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def wants(self) -> "tuple[int, int]":
        return (self.sink, select.POLLOUT) if self.held else (self.source, select.POLLIN)

    def move(self) -> bool:
        """Read or write once. Ends this direction, and says so, at the end of its source or when nobody takes what it carries."""
        try:
            if self.held:
                self.held = self.held[os.write(self.sink, self.held) :]
            else:
                self.held = os.read(self.source, CHUNK)
                self.ended = not self.held
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.ECONNRESET:
                write_all(2, b"!")
            self.held, self.ended = b"", True
        return self.ended


def _carry(server: "_socket.socket") -> None:
    into, out = _Way(0, server.fileno()), _Way(server.fileno(), 1)
    while not (into.ended and out.ended):
        poll = select.poll()
        events: dict[int, int] = {}
        for way in (into, out):
            if not way.ended:
                descriptor, event = way.wants()
                events[descriptor] = events.get(descriptor, 0) | event
        for descriptor, event in events.items():
            poll.register(descriptor, event)
        ready = dict(poll.poll())
        for way, end in ((into, _end_of_input), (out, _end_of_output)):
            descriptor, event = way.wants()
            if not way.ended and ready.get(descriptor, 0) & (event | select.POLLERR | select.POLLHUP) and way.move():
                end(server)


def _end_of_input(server: "_socket.socket") -> None:
    _leave(0)  # the outside learns that nobody reads, where the server has gone first
    try:
        server.shutdown(_socket.SHUT_WR)
    except OSError:
        pass


def _end_of_output(server: "_socket.socket") -> None:
    _leave(1)  # the outside reads the end


def _leave(standard: int) -> None:
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, standard)
    os.close(null)
