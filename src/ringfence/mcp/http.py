"""The transport over HTTP, for many clients: on a loopback address or a Unix socket, each client with a session and a box."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ringfence.errors import ArgumentError, HostError
from ringfence.mcp.guard import Guard
from ringfence.mcp.session import Session

MOST_SESSIONS = 64
MOST_BODY = 48 << 20
"""Bytes of a request: a file of 32 MiB is written in one, and JSON needs more for it."""
MOST_CONNECTIONS = 512
CLOSING_SECONDS = 3
BACKLOG = 128

logger = logging.getLogger(__name__)


class Sessions:
    """The sessions of a server, by the id that each request of theirs shows. Serves requests that the guard let through."""

    def __init__(self, make: Callable[[], Session], idle_seconds: float) -> None:
        self._make, self._idle = make, idle_seconds
        self._open: dict[str, StreamableHTTPServerTransport] = {}
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While sessions can be opened; those that are open at the end of it are ended, with their boxes."""
        async with anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                self.end()

    def end(self) -> None:
        """End every session, and open no more."""
        if self._group is not None:
            self._group.cancel_scope.cancel()
            self._group = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = Headers(scope=scope).get("mcp-session-id")
        if shown is None:
            await self._opening(scope, receive, send)
            return
        transport = self._open.get(shown)
        if transport is None:
            await Response("this session is not open\n", 404)(scope, receive, send)
            return
        try:
            await transport.handle_request(scope, receive, send)
        except Exception:
            if not transport.is_terminated:  # else its client ended the session while this was taken in, and wants no answer
                raise
        if transport.is_terminated:
            self._open.pop(shown, None)

    async def _opening(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request without a session: it opens one, and where it is no proper handshake that is given up again."""
        if len(self._open) >= MOST_SESSIONS or self._group is None:
            await Response(f"{MOST_SESSIONS} sessions are open, and no more are taken\n", 503)(scope, receive, send)
            return
        transport = StreamableHTTPServerTransport(secrets.token_hex(16), idle_timeout=self._idle)
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._open[transport.mcp_session_id or ""] = transport
        try:
            await self._group.start(self._serve, transport)
            await transport.handle_request(scope, receive, watched)
        finally:
            if not 200 <= status < 300:
                with anyio.CancelScope(shield=True):
                    await transport.terminate()

    async def _serve(
        self, transport: StreamableHTTPServerTransport, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """One session, until its client ends it, is idle too long, or the server ends. Its box ends with it."""
        session = self._make()
        name = transport.mcp_session_id or ""
        try:
            async with transport.connect() as (reading, writing):
                task_status.started()
                with transport.idle_scope or anyio.CancelScope():
                    await serve_loop(session.server, reading, writing, lifespan_state={}, session_id=name)
        except Exception:  # one session's failure is not the others'
            logger.exception("a session failed")
        finally:
            self._open.pop(name, None)
            with anyio.CancelScope(shield=True):
                await session.close()
                if not transport.is_terminated:
                    await transport.terminate()


def on_loopback(address: str) -> socket.socket:
    """A listening socket on HOST:PORT or PORT; port 0 is one that is free. Raises ArgumentError for what is not loopback."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    try:
        loopback, number = ipaddress.ip_address(host).is_loopback, int(port)
    except ValueError:
        raise ArgumentError(f"{address!r} is not PORT or ADDRESS:PORT.", hint="Give a port, or 127.0.0.1:PORT.") from None
    if not loopback or not 0 <= number < 65536:
        raise ArgumentError(
            f"{address!r} is not a port of this machine's loopback.", hint="Only loopback is served: 127.0.0.1:PORT."
        )
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, number))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise HostError(f"nothing can be served on {address}: {error.strerror}.", errno=error.errno or 0) from None
    return made


def on_path(path: str) -> socket.socket:
    """A listening Unix socket, mode 0600, in the place of one that nobody serves any more. Raises ArgumentError, HostError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if _is_left_over(path):
            os.unlink(path)
        made.bind(path)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise HostError(f"nothing can be served on {path!r}: {error.strerror or error}.", errno=error.errno or 0) from None
    finally:
        os.umask(before)
    return made


def hosts_of(listening: socket.socket) -> list[str]:
    """What the Host of a request may say."""
    if listening.family == socket.AF_UNIX:
        return ["localhost"]
    host, port = listening.getsockname()[:2]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", f"localhost:{port}"]


async def serve(make: Callable[[], Session], listening: socket.socket, token: str, *, idle_seconds: float) -> None:
    """Serve clients until SIGTERM or SIGINT. idle_seconds: a session without a request and without an open stream ends after it."""
    sessions = Sessions(make, idle_seconds)
    config = uvicorn.Config(
        Guard(RequestBodyLimitMiddleware(sessions, MOST_BODY), hosts_of(listening), token),
        lifespan="off",
        log_config=None,
        log_level="error",  # what strangers send is no line for each
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ws="none",
        interface="asgi3",
    )
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_not_of_one_that_went)
    server = _Server(config)
    async with sessions.running(), anyio.create_task_group() as group:

        async def until_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    sessions.end()  # their streams end too, or uvicorn would wait for them
                    server.should_exit = True

        group.start_soon(until_signal)
        await server.serve(sockets=[listening])
        group.cancel_scope.cancel()


def _is_not_of_one_that_went(record: logging.LogRecord) -> bool:
    """Whether a record is about something else than a client that ended its session while a message of its was taken in.

    The SDK (2.3) writes a traceback for that.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], (anyio.ClosedResourceError, anyio.BrokenResourceError)))


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them once more at its end, and nothing of ours would be put away."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _is_left_over(path: str) -> bool:
    """Whether a socket is there that nobody listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except FileNotFoundError:
            return False
    return False
