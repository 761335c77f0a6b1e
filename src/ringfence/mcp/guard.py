"""What stands before the protocol on HTTP: path, Host, Origin and token of each request are looked at before any of it is used."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from typing import Any

from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
ONCE = (b"host", b"origin", b"authorization", b"mcp-session-id", b"mcp-protocol-version", b"content-length")
"""Headers of which two would be two opinions."""


class Guard:
    """Lets through what comes from a client that has the token, and not from a page in a browser.

    hosts: what Host may say (RFC 9112, 3.2), which a page that made its name lead here cannot (DNS rebinding); an Origin
    (RFC 6454) must be http of one of these. token: what `Authorization: Bearer` must have, compared in constant time.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str) -> None:
        self._app = app
        self._hosts = {host.encode().lower() for host in hosts}
        self._origins = {b"http://" + host for host in self._hosts}
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (self._refused(scope) or self._app)(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # RFC 6455, 7.4.1: policy violation

    def _refused(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        for name in ONCE:
            if sum(each == name for each, _ in headers) > 1:
                return Response(f"two headers {name.decode()}\n", 400)
        said = dict(headers)
        if said.get(b"host", b"").lower() not in self._hosts:
            return Response("this Host is not served here\n", 421)
        if said.get(b"origin", b"").lower() not in {b"", *self._origins}:
            return Response("this Origin is not served here\n", 403)
        scheme, _, shown = said.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(shown.strip(), self._token):
            return Response("the bearer token is missing or wrong\n", 401, {"WWW-Authenticate": "Bearer"})
        if scope["path"] != PATH:
            return Response(f"only {PATH} is served here\n", 404)
        version = said.get(b"mcp-protocol-version")
        if version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS:
            return _unsupported(version.decode("latin-1")[:80])
        return None


def _unsupported(version: str) -> Response:
    """The answer to a version without a handshake, which names those with one, so that a client falls back to them."""
    data: dict[str, Any] = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    error = {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": "only versions with a handshake are served here", "data": data}
    return Response(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}), 400, media_type="application/json")
