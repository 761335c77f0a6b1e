"""Where a request goes: its target, and the Host that has to say the same. One reading, or none (RFC 9112, 3.2; 3986, 3.2).

User information, percent-encoding, backslashes, fragments, zones and ports with leading zeros are what check and dial of other
proxies read differently. Here none of them is in an authority.
"""

from __future__ import annotations

import re

from ringfence.egress.http_head import MalformedError
from ringfence.policy.hosts import Address, BadHostError, Name, normalise
from ringfence.values import frozen

HTTP_PORT = 80
_AUTHORITY = re.compile(rb"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([1-9][0-9]{0,4}))?")
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e\x80-\xff]+")  # no blanks, no controls, no "#"


@frozen
class Target:
    """path: with what is behind a "?", as it was sent; b"" for CONNECT."""

    host: Name | Address
    port: int
    path: bytes


def authority(text: bytes) -> tuple[Name | Address, int | None]:
    """The host and the port, None where it has none. Raises MalformedError."""
    if b"@" in text:
        raise MalformedError("a host with user information before it")
    parts = _AUTHORITY.fullmatch(text)
    if parts is None or (parts[2] and int(parts[2]) > 65535):
        raise MalformedError("a host, or a port, that has no single reading")
    try:
        host = normalise(parts[1].decode("ascii"))
    except BadHostError as error:
        raise MalformedError(f"a host that is none: {error}") from None
    return host, int(parts[2]) if parts[2] else None


def connect_target(text: bytes) -> Target:
    host, port = authority(text)
    if port is None:
        raise MalformedError("CONNECT without a port")
    return Target(host, port, b"")


def absolute_target(method: bytes, text: bytes) -> Target:
    scheme, found, rest = text.partition(b"://")
    if not found or not _TARGET.fullmatch(text):
        raise MalformedError("a target that is no URL: this is a proxy, and no site")
    if scheme.lower() != b"http":
        raise MalformedError(f"a URL with the scheme {scheme[:20].decode('latin-1')!a}: ask for https with CONNECT", 501)
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    host, port = authority(rest[:end])
    path = rest[end:]
    if not path.startswith(b"/"):
        path = b"*" if method == b"OPTIONS" and not path else b"/" + path
    return Target(host, port or HTTP_PORT, path)


def origin_target(method: bytes, text: bytes, host: Name | Address, port: int) -> Target:
    """The target of a request to a site that is known: a path, or a URL that names that very site."""
    if text.startswith(b"/") and _TARGET.fullmatch(text):
        return Target(host, port, text)
    if text == b"*" and method == b"OPTIONS":
        return Target(host, port, text)
    target = absolute_target(method, text) if b"://" in text else None
    if target is None:
        raise MalformedError("a target that is no path")
    if (target.host, target.port) != (host, port):
        raise MalformedError(f"a URL of {target.host}:{target.port} on a connection to {host}:{port}")
    return target


def same_host(given: bytes, target: Target) -> None:
    """Raises MalformedError where a Host names another host than the target, or another port. It may leave the port out."""
    host, port = authority(given)
    if host != target.host or (port is not None and port != target.port):
        raise MalformedError(f"a Host of {host}{'' if port is None else f':{port}'} in a request to {target.host}:{target.port}")


def host_field(target: Target) -> bytes:
    """The Host that goes on: the host that was decided on."""
    text = f"[{target.host}]" if ":" in target.host.text else target.host.text
    return (text if target.port == HTTP_PORT else f"{text}:{target.port}").encode("ascii")
