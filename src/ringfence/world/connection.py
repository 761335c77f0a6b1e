"""A connection to a server inside a box, from outside: a fork of the guest connects and carries the bytes over its pipes.

So no socket comes out of the box, and nothing of the host's network goes in.
"""

from __future__ import annotations

import errno
import math
import os
import time

from ringfence import errors
from ringfence.process.run import Run
from ringfence.process.wait import Readable, Waits
from ringfence.world.files import Reached, parse_refusal

CONNECT_SECONDS = 10.0
"""How long one address may take to answer; on a loopback it answers at once or never."""
MAX_REFUSAL = 8192
HOSTS = {"localhost": ("127.0.0.1", "::1")}


class Connection:
    """The outside ends of a relay: what both surfaces have of a connection."""

    def __init__(self, run: Run, port: int) -> None:
        self.run, self.port = run, port
        self.stdin = self.stdout = self.report = -1

    def end_of_input(self) -> None:
        """At the end of what came: raises ConnectError where the server broke off rather than ended."""
        try:
            broken = self.report >= 0 and os.read(self.report, 1) == b"!"
        except BlockingIOError:
            broken = False
        if broken:
            raise errors.ConnectError(f"the server on port {self.port} broke the connection off.")

    def close(self) -> Waits[None]:
        """End it at once, whatever is on the way."""
        try:
            yield from self.run.abort()
        finally:
            self.run.release()
            if self.report >= 0:
                os.close(self.report)
                self.report = -1

    def close_all(self) -> Waits[None]:
        """As close(), with the ends that nobody has taken over."""
        try:
            yield from self.close()
        finally:
            for end in (self.stdin, self.stdout):
                if end >= 0:
                    os.close(end)


def open_connection(world: Reached, port: object, host: object, wait: object) -> Waits[Connection]:
    """Connect, trying for `wait` seconds while nothing listens. Raises ConnectRefusedError, ConnectError, ArgumentError."""
    hosts, seconds = _checked(port, host, wait)
    world.must_be_open()
    connection = Connection(Run(world.box, world.policy.limits, None), port)  # type: ignore[arg-type]  # _checked
    connection.run.relays = True
    request: dict[str, object] = {"op": "files", "do": "connect", "hosts": list(hosts), "port": port}
    request |= {"wait": int(seconds * 1000), "patience": int(CONNECT_SECONDS * 1000)}
    until = time.monotonic() + seconds + len(hosts) * CONNECT_SECONDS + 1
    try:
        connection.stdin, connection.stdout, connection.report = connection.run.start(request, None, drained=False)
        os.set_blocking(connection.report, False)
        said = yield from _said(connection, until)
        if said != b"+":
            raise _refusal(said, port, host)
        return connection
    except BaseException:  # an Interrupted too: nothing is left of a connection that was not made
        yield from connection.close_all()
        raise


def _checked(port: object, host: object, wait: object) -> tuple[tuple[str, ...], float]:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise errors.ArgumentError(f"port must be a number from 1 to 65535, not {port!r}.")
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not math.isfinite(wait) or not 0 <= wait <= 86400:
        raise errors.ArgumentError(f"wait must be a number of seconds, at most a day, not {wait!r}.")
    if host in HOSTS:
        return HOSTS[str(host)], float(wait)
    import ipaddress  # only where an address is given by number: it is not light

    try:
        address = ipaddress.ip_address(host) if isinstance(host, str) else None
    except ValueError:
        address = None
    if address is None or not address.is_loopback or getattr(address, "scope_id", None):
        raise errors.ArgumentError(
            f"host must be a loopback address or 'localhost', not {host!r}.",
            hint="A server inside a box is reached on the box's own loopback; connect() leads nowhere else.",
        )
    return (str(address),), float(wait)


def _said(connection: Connection, until: float) -> Waits[bytes]:
    """What the relay says first: one byte when it is connected, else a refusal and the end."""
    said = b""
    while said != b"+" and len(said) < MAX_REFUSAL:
        if not (yield Readable(connection.report, until)):
            raise errors.ConnectError(f"the box did not connect to port {connection.port} in time.")
        piece = os.read(connection.report, 1 if not said else MAX_REFUSAL)
        if not piece:
            break
        said += piece
    return said


def _refusal(said: bytes, port: object, host: object) -> errors.ConnectError:
    _, number, _ = parse_refusal(said)
    if number == errno.ECONNREFUSED:
        return errors.ConnectRefusedError(f"nothing in the box listens on port {port} of {host}.")
    reason = os.strerror(number) if number else "the connection was given up"
    return errors.ConnectError(f"the box could not connect to port {port} of {host}: {reason}.", errno=number)
