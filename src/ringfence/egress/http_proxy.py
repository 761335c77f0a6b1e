"""The requests of one client connection, sans-io: at the proxy listener, or on a connection to a site that is known.

    requests = Requests()                      # or Requests((host, port)), the site that a transparent connection is to
    requests.receive(data)
    requests.next()                            # Request: decide, dial, send request.head() up; then Body to send up, then Done
    requests.again()                           # once its response has been given whole: the next may be read

One request is read at a time: what a client pipelined behind it waits, unread and undecided, and `wants` says that no more is to
be received meanwhile. Each request is decided on its own, and has a head that was written here from what was understood: the
Host of the target, one framing, no field that was for the proxy. A request that has two readings is refused, and nothing of it or
of what follows goes on. Sources: RFC 9110, 9112; 6455 (WebSocket).

A proxy would add Via; this one adds nothing, so that the far side sees what the program would have sent by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from ringfence.egress.http_body import Chunked, Framing, Sized
from ringfence.egress.http_head import (
    FRAMING,
    Fields,
    Lines,
    MalformedError,
    Stream,
    end_to_end,
    fields_of,
    tokens,
    values,
    written,
)
from ringfence.egress.http_target import Target, absolute_target, connect_target, host_field, origin_target, same_host
from ringfence.egress.refusals import bad_request
from ringfence.policy.hosts import Address, Name
from ringfence.values import frozen

CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
"""The answer to a CONNECT that was dialled: from then on bytes go both ways, `Requests.rest` first."""

_FIRST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([^ ]+) HTTP/([0-9])\.([0-9])")
_FIRST_BYTES = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\r")
_LENGTH = re.compile(rb"[0-9]{1,18}")


@frozen
class Request:
    """What a client asks. path: as it was sent, without the query. upgrade: it asks for a WebSocket. keep: it may ask more."""

    method: str
    scheme: str  # "http", or "connect" for a tunnel of whatever is in it
    host: Name | Address
    port: int
    path: str
    upgrade: bool
    keep: bool
    old: bool  # HTTP/1.0: it knows no chunks and no interim responses
    target: Target
    fields: tuple[tuple[bytes, bytes], ...]  # that go on
    size: int | None  # of the body; None where it is chunked

    def head(self, *, absolute: bool = False, added: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
        """The head to send up; not for CONNECT, of which nothing goes up. absolute, added: for another proxy."""
        if self.scheme == "connect":
            raise ValueError("a CONNECT is answered here and not sent on")
        target = self.target
        where = b"http://" + host_field(target) if absolute else b""
        path = b"" if absolute and target.path == b"*" else target.path
        line = b"%b %b%b HTTP/1.%d\r\n" % (self.method.encode(), where, path, 0 if self.old else 1)
        return line + written([(b"Host", host_field(target)), *self.fields, *added]) + b"\r\n"


@frozen
class Body:
    """Bytes of the body, framed as they are to be sent on."""

    data: bytes


@frozen
class Done:
    """The message is over. keep: the client's connection may carry another one. reusable: the far side's may, of a response."""

    keep: bool
    reusable: bool = False


Event: TypeAlias = "Request | Body | Done | None"


class Requests:
    """See the top of this file. `next` raises BadBytesError where the client is to be refused, and is not called again then."""

    def __init__(self, fixed: tuple[Name | Address, int] | None = None) -> None:
        self._fixed = fixed
        self._stream = Stream()
        self._lines = Lines()
        self._skipped = self._ended = False
        self._request: Request | None = None
        self._body: Framing | None = None

    @property
    def wants(self) -> bool:
        """Whether more should be received now. What is held then is less than a head, or less than was just received."""
        return self._request is None or self._body is not None

    @property
    def idle(self) -> bool:
        """Whether nothing of a request is held: the client may be left alone, or closed without a word."""
        return self._request is None and not len(self._stream) and not self._lines.begun

    @property
    def plain(self) -> int:
        """How many bytes of the body may be moved to the far side without being received here; `moved` says how many were."""
        return (self._body.plain or 0) if self._body is not None and not len(self._stream) else 0

    def moved(self, count: int) -> None:
        if self._body is not None:
            self._body.moved(count)

    def receive(self, data: bytes) -> None:
        self._stream.feed(data)

    def end(self) -> None:
        """The client sends no more. What it sent before is still answered; a request that is not whole never will be."""
        self._ended = True

    def next(self) -> Event:
        """The next piece, None where more has to arrive first, or the response has to be given first (see `again`)."""
        try:
            event = self._piece()
            if event is None and self._ended and self.wants and not self.idle:
                raise MalformedError("the client closed inside a request")
        except MalformedError as error:
            raise bad_request(error.why, error.status) from None
        return event

    def again(self) -> None:
        """The response to this request has been given whole, and both sides keep the connection: read the next request."""
        if self._request is None or self._body is not None or not self._request.keep:
            raise ValueError("no request is over that another one may follow")
        self._request, self._lines, self._skipped = None, Lines(), False

    def rest(self) -> bytes:
        """What was received behind a CONNECT or an upgrade, for the far side once the tunnel stands. Nothing else is."""
        if self._request is None or not (self._request.upgrade or self._request.scheme == "connect"):
            raise ValueError("what follows this request is no tunnel")
        return self._stream.take(len(self._stream))

    def _piece(self) -> Event:
        if self._request is None:
            return self._head()
        if self._body is None:
            return None
        if data := self._body.take(self._stream):
            return Body(data)
        if not self._body.done:
            return None
        self._body = None
        return Done(self._request.keep)

    def _head(self) -> Request | None:
        if len(self._stream) and not self._lines.begun and self._stream.first() not in _FIRST_BYTES:
            raise MalformedError("bytes that are no HTTP request")
        lines = self._lines.take(self._stream)
        if lines == [] and not self._skipped:  # one empty line before a request is allowed (RFC 9112, 2.2)
            self._skipped, self._lines = True, Lines()
            return self._head()
        if lines is None:
            return None
        self._request = _request(lines, self._fixed)
        if self._request.scheme != "connect":
            self._body = Chunked() if self._request.size is None else Sized(self._request.size)
        return self._request


def _request(lines: list[bytes], fixed: tuple[Name | Address, int] | None) -> Request:
    first = _FIRST_LINE.fullmatch(lines[0]) if lines else None
    if first is None:
        raise MalformedError("a first line that is no HTTP request")
    method, text, major, minor = first.groups()
    if (major, minor) not in ((b"1", b"0"), (b"1", b"1")):
        raise MalformedError(f"HTTP/{major.decode()}.{minor.decode()}, where HTTP/1.1 and 1.0 are served", 505)
    old, fields = minor == b"0", fields_of(lines[1:])
    target = _target(method, text, fixed)
    hosts = values(fields, b"host")
    if len(hosts) > 1:
        raise MalformedError("two Host headers")
    if hosts:
        same_host(hosts[0], target)
    elif not old and method != b"CONNECT":
        raise MalformedError("HTTP/1.1 without a Host header")
    size, connection = _size(method, fields, old), tokens(fields, b"connection")
    upgrade = _is_websocket(method, fields, size, old) and b"upgrade" in connection
    return Request(
        method=method.decode(),
        scheme="connect" if method == b"CONNECT" else "http",
        host=target.host,
        port=target.port,
        path=target.path.partition(b"?")[0].decode("utf-8", "surrogateescape"),
        upgrade=upgrade,
        keep=not old and b"close" not in connection + tokens(fields, b"proxy-connection") and method != b"CONNECT" and not upgrade,
        old=old,
        target=target,
        fields=tuple(_onward(fields, size, upgrade, old)),
        size=size,
    )


def _target(method: bytes, text: bytes, fixed: tuple[Name | Address, int] | None) -> Target:
    if fixed is not None:
        if method == b"CONNECT":
            raise MalformedError("CONNECT, which only the proxy serves", 501)
        return origin_target(method, text, *fixed)
    return connect_target(text) if method == b"CONNECT" else absolute_target(method, text)


def _size(method: bytes, fields: Fields, old: bool) -> int | None:
    """The length of the body, None where it is chunked (RFC 9112, 6.3)."""
    codings, lengths = values(fields, b"transfer-encoding"), values(fields, b"content-length")
    if len(lengths) > 1 or (codings and lengths):
        raise MalformedError("two headers that say how long the body is")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked" or old):
        raise MalformedError("a Transfer-Encoding that is not exactly chunked, or in HTTP/1.0")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise MalformedError("a Content-Length that is no number")
    size = None if codings else int(lengths[0]) if lengths else 0
    if size != 0 and method in (b"CONNECT", b"TRACE"):
        raise MalformedError(f"{method.decode()} with a body")
    return size


def _is_websocket(method: bytes, fields: Fields, size: int | None, old: bool) -> bool:
    """Any other upgrade is not asked for: the far side answers in HTTP/1.1 then (RFC 9110, 7.8)."""
    asked = [each.lower() for each in values(fields, b"upgrade")]
    return method == b"GET" and size == 0 and not old and asked == [b"websocket"]


def _onward(fields: Fields, size: int | None, upgrade: bool, old: bool) -> Fields:
    """The fields that go on, with what this hop says itself."""
    expected = [each.lower() for each in values(fields, b"expect")]
    if expected not in ([], [b"100-continue"]):
        raise MalformedError("an Expect that is not 100-continue", 417)
    kept = end_to_end(fields, FRAMING | {b"expect"})
    if expected and not old and size != 0:
        kept.append((b"Expect", b"100-continue"))
    if size is None:
        kept.append((b"Transfer-Encoding", b"chunked"))
    elif size or values(fields, b"content-length"):
        kept.append((b"Content-Length", b"%d" % size))
    if upgrade:
        kept += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    elif b"trailers" in tokens(fields, b"te"):
        kept += [(b"Connection", b"TE"), (b"TE", b"trailers")]
    return kept
