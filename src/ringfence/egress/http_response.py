"""The responses to one request, sans-io: what the far side says, and what of it the client gets.

    responses = Responses(request)
    responses.receive(data); responses.end()   # end: the far side closed
    responses.next()                           # Response with its head for the client, Body, Done

The framing decides where the next response starts, so it has one reading or the connection ends with this one. The client gets
a head that was written here, and never one of our own marks: a refusal that has one is ours. Sources: RFC 9110, 15; 9112, 6.3.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ringfence.egress.http_body import Chunked, Framing, Sized, UntilClose
from ringfence.egress.http_head import (
    FRAMING,
    Fields,
    Lines,
    MalformedError,
    Stream,
    end_to_end,
    fields_of,
    tokens,
    unmarked,
    values,
    written,
)
from ringfence.egress.http_proxy import Body, Done, Request
from ringfence.egress.refusals import BadAnswerError, failed
from ringfence.values import frozen

MAX_RESPONSE_HEAD = 128 * 1024, 256  # bytes, fields: sites send many long cookies and policies
MAX_INTERIM = 32
_FIRST_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")


@frozen
class Response:
    """head: for the client, b"" for an interim response that it would not know. interim: another one follows.

    tunnel: the upgrade was agreed to; from here on bytes go both ways, `Responses.rest` first.
    """

    status: int
    head: bytes
    interim: bool = False
    tunnel: bool = False


Event: TypeAlias = "Response | Body | Done | None"


class Responses:
    """See the top of this file. BadAnswerError has a 502 for the client, or b"" where a head was given already: close both then."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._stream = Stream()
        self._lines = Lines(*MAX_RESPONSE_HEAD)
        self._interim = 0
        self._ended = self._over = False
        self._keep, self._reusable = request.keep, True
        self._body: Framing | None = None

    @property
    def plain(self) -> int | None:
        """How many bytes of the body may be moved to the client without being received here (None: all that follow)."""
        return self._body.plain if self._body is not None and not len(self._stream) else 0

    def moved(self, count: int) -> None:
        if self._body is not None:
            self._body.moved(count)

    def receive(self, data: bytes) -> None:
        self._stream.feed(data)

    def end(self) -> None:
        """The far side sends no more."""
        self._ended = True
        if isinstance(self._body, UntilClose):
            self._body.end()

    def next(self) -> Event:
        """The next piece, or None where more has to arrive."""
        if self._over:
            return None
        given = self._body is not None
        try:
            event = self._piece()
        except MalformedError as error:
            raise self._bad(f"an answer that is not passed on: {error.why}", given) from None
        if event is None and self._ended:
            raise self._bad("the far side closed before its answer was whole", given)
        return event

    def rest(self) -> bytes:
        """What was received behind the head of an upgrade, for the client."""
        return self._stream.take(len(self._stream))

    def _bad(self, why: str, given: bool) -> BadAnswerError:
        self._over = True
        return BadAnswerError(why, b"" if given else failed(502, why, body=self._request.method != "HEAD"))

    def _piece(self) -> Event:
        if self._body is None:
            return self._head()
        if data := self._body.take(self._stream):
            return Body(data)
        if not self._body.done:
            return None
        self._over = True
        return Done(self._keep, self._keep and self._reusable and not len(self._stream))  # nobody asked for what follows

    def _head(self) -> Response | None:
        lines = self._lines.take(self._stream)
        if lines is None:
            return None
        first = _FIRST_LINE.fullmatch(lines[0]) if lines else None
        if first is None:
            raise MalformedError("it is no HTTP/1 response")
        status, reason, fields = int(first[2]), first[3] or b"", fields_of(lines[1:])
        if status == 101:
            return self._upgraded(fields)
        if status < 200:
            return self._interim_response(status, reason, fields)
        old = first[1] == b"0"
        self._body, framing = self._framed(status, fields, old)
        if old or b"close" in tokens(fields, b"connection"):
            self._reusable = False
        return Response(status, _written(status, reason, _for_client(fields) + framing + self._closing()))

    def _closing(self) -> Fields:
        return [] if self._keep else [(b"Connection", b"close")]

    def _upgraded(self, fields: Fields) -> Response:
        agreed = [each.lower() for each in values(fields, b"upgrade")] == [b"websocket"]
        if not (self._request.upgrade and agreed and b"upgrade" in tokens(fields, b"connection")):
            raise MalformedError("it switches to a protocol that was not asked for")
        self._over = True
        kept = [*_for_client(fields), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        return Response(101, _written(101, b"Switching Protocols", kept), tunnel=True)

    def _interim_response(self, status: int, reason: bytes, fields: Fields) -> Response:
        self._interim += 1
        if self._interim > MAX_INTERIM:
            raise MalformedError(f"it has more than {MAX_INTERIM} interim responses")
        self._lines = Lines(*MAX_RESPONSE_HEAD)
        head = b"" if self._request.old else _written(status, reason, _for_client(fields))
        return Response(status, head, interim=True)

    def _framed(self, status: int, fields: Fields, old: bool) -> tuple[Framing, Fields]:
        """The body, and the fields that tell the client of it (RFC 9112, 6.3)."""
        codings, lengths = values(fields, b"transfer-encoding"), values(fields, b"content-length")
        if any(not _LENGTH.fullmatch(each) for each in lengths) or len(set(map(int, lengths))) > 1:
            raise MalformedError("it has lengths that differ or are none")
        if codings and [each.lower() for each in codings] != [b"chunked"]:
            raise MalformedError("it has a Transfer-Encoding that is not exactly chunked")
        said: Fields = [(b"Content-Length", b"%d" % int(lengths[0]))] if lengths else []
        if status == 204:
            return Sized(0), []
        if self._request.method == "HEAD" or status == 304:
            return Sized(0), said if not codings else [(b"Transfer-Encoding", b"chunked")] if not self._request.old else []
        if codings:
            if old or lengths:  # a fault that has one reading here; the connection ends with it (RFC 9112, 6.1)
                self._keep = False
            return (Chunked(bare=True), []) if self._request.old else (Chunked(), [(b"Transfer-Encoding", b"chunked")])
        if lengths:
            return Sized(int(lengths[0])), said
        self._keep = False
        body = UntilClose()
        if self._ended:
            body.end()
        return body, []


def _for_client(fields: Fields) -> Fields:
    return unmarked(end_to_end(fields, FRAMING))


def _written(status: int, reason: bytes, fields: Fields) -> bytes:
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, written(fields))
