"""What a client is told that is not let out: one exception for bytes that are not answered as asked, and the HTTP answers.

A refusal of ours can be told from one of the site: it has a header that no site can send through us (fields that begin with
MARK are removed from every response), and a sentence that names host, rule and remedy. Everything that goes into it may have
been chosen by the box or by who wrote the policy, so each piece is cut and percent-encoded (RFC 3986, 2.1): nothing in it ends
a header or a quoted string, nor is markup to whoever shows it.
"""

from __future__ import annotations

from collections.abc import Iterable

DENIED = "X-Ringfence-Denied"
"""On the 403 for what the policy refuses."""
FAILED = "X-Ringfence-Error"
"""On every other answer that is ours: bytes that are not HTTP, a far side that does not answer, too many connections."""
MARK = b"x-ringfence-"
"""How each of them begins. No field of a response that is passed on does."""

MAX_TEXT = 500  # characters of one piece of an answer
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}  # RFC 9110, 15
_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - frozenset('"%\\<>&')
_IN_TEXT = _PLAIN | {'"'}
"""In the body, which is text/plain, a quote ends nothing, and what would allow it is to be copied into a policy."""


class BadBytesError(ValueError):
    """What came from a client is not passed on. Send `answer`, close, and record `why`.

    answer: what its protocol has for this (an HTTP response, a TLS alert, a SOCKS reply), b"" where it has nothing.
    why: one sentence without bytes of the client's that were not encoded.
    """

    def __init__(self, why: str, answer: bytes = b"") -> None:
        super().__init__(why)
        self.why, self.answer = why, answer


class BadAnswerError(BadBytesError):
    """What a far side answered is not passed on. Nothing was refused to the box: it is no decision."""


def encoded(text: str, most: int = MAX_TEXT, plain: frozenset[str] = _PLAIN) -> str:
    """Text that anybody may have written, for a header, a log or a page: printable ASCII, at most `most` characters of it."""
    cut = text[:most]
    shown = "".join(
        each if each in plain else "".join(f"%{byte:02X}" for byte in each.encode("utf-8", "surrogatepass")) for each in cut
    )
    return shown[:most] + ("..." if len(text) > most or len(shown) > most else "")


def forbidden(host: str, port: int, rule: str, why: str, remedy: str | None, *, body: bool = True) -> bytes:
    """The 403 for a request or a CONNECT that the policy refuses; the connection is closed after it.

    rule: the entry or default that decided. remedy: the setting that would allow it, None where there is none.
    body: False for the answer to HEAD, which has the length of the body and not the body.
    """
    pairs = [("host", host), ("port", str(port)), ("rule", rule), ("why", why), *([("remedy", remedy)] if remedy else [])]
    mark = "; ".join(f'{name}="{encoded(value)}"' for name, value in pairs)
    lines = [
        f"ringfence does not let this box reach {encoded(host)}:{port}.",
        f"Rule: {encoded(rule, plain=_IN_TEXT)}",
        f"Why: {encoded(why, plain=_IN_TEXT)}",
        *([f"To allow it: {encoded(remedy, plain=_IN_TEXT)}"] if remedy else []),
        "The answer is ours; nothing was sent to the site.",
    ]
    return _response(403, (DENIED, mark), lines, body)


def failed(status: int, why: str, *, body: bool = True) -> bytes:
    """An answer of ours that is no decision: status one of 400, 408, 431, 501, 502, 503, 504, 505. why: one sentence."""
    return _response(status, (FAILED, f'why="{encoded(why)}"'), [f"ringfence: {encoded(why)}"], body)


def bad_request(why: str, status: int = 400) -> BadBytesError:
    return BadBytesError(why, failed(status, why))


def _response(status: int, mark: tuple[str, str], lines: Iterable[str], body: bool) -> bytes:
    text = "\n".join(lines) + "\n"
    headers = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"{mark[0]}: {mark[1]}",
        "Content-Type: text/plain; charset=utf-8",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        f"Content-Length: {len(text)}",
        "Connection: close",
    ]
    return ("\r\n".join(headers) + "\r\n\r\n" + (text if body else "")).encode("ascii")
