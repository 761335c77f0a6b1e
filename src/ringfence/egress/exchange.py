"""Plain HTTP, one request after the other: each is decided on by itself, and goes up as it was understood.

On a connection to a site that is known, transparent or through a tunnel, the site is fixed, and a Host that names another is
refused; at the proxy each request names its own. Long bodies are moved by the kernel where their framing lets them be.
"""

from __future__ import annotations

import _socket

from ringfence.egress import refusals
from ringfence.egress.client import Client, ClosedError
from ringfence.egress.dial import RefusedError, UnreachableError, authorization, bypassed, to_proxy
from ringfence.egress.http_proxy import Body, Done, Request, Requests
from ringfence.egress.http_response import Response, Responses
from ringfence.egress.loop import TimedOutError
from ringfence.egress.refusals import BadAnswerError, BadBytesError
from ringfence.egress.relay import Direction
from ringfence.policy.hosts import Address, Name
from ringfence.policy.reach import Asked, Verdict
from ringfence.values import replace

KEEP_ALIVE_SECONDS = 75.0
"""How long a client may think between two requests."""
IDLE_SECONDS = 900.0
"""How long nothing may move within one: some sites take minutes to answer."""
MOST_READ = 64 * 1024
WORTH_A_WAY = 64 * 1024
"""Bytes of a body from which on it is moved without being received."""
BAD_BYTES = "what a client sends has one reading"


class Upstream:
    """The connection to the far side that the last request went through, and where it leads."""

    def __init__(self, socket: _socket.socket, host: Name | Address, port: int, address: str, absolute: bool = False) -> None:
        self.socket, self.host, self.port, self.address, self.absolute = socket, host, port, address, absolute

    def serves(self, request: Request) -> bool:
        """Whether another request may go through it: to the same place, and the far side has neither ended nor said anything."""
        if (self.host, self.port) != (request.host, request.port):
            return False
        try:
            self.socket.recv(1, _socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


async def serve_tunnel(client: Client, asked: Asked, server: _socket.socket | None) -> None:
    """The requests of a connection to a site that is known; what of them has come already is held by client."""
    upstream = None if server is None else Upstream(server, asked.host, asked.port, client.box.live[client.task][1])
    await Exchange(client, Requests((asked.host, asked.port)), asked.via, upstream, asked).serve()


class Exchange:
    """The requests of one client connection."""

    def __init__(
        self, client: Client, requests: Requests, via: str, upstream: Upstream | None = None, fixed: Asked | None = None
    ) -> None:
        self.client, self.requests, self.via, self.upstream, self.fixed = client, requests, via, upstream, fixed

    async def serve(self) -> Request | None:
        """Until the client asks nothing more. A CONNECT is given back, to be served by who called."""
        while True:
            try:
                request = await self._request()
                if request is None or request.scheme == "connect":
                    return request
                done = await self._one(request)
            except BadAnswerError as error:
                await self.client.farewell(error.answer)
                return None
            except BadBytesError as error:
                await self._malformed(error)
                return None
            if done is None or not done.keep:
                return None
            self.requests.again()

    async def _request(self) -> Request | None:
        task, requests = self.client.task, self.requests
        task.within(KEEP_ALIVE_SECONDS)
        begun = False
        while True:
            event = requests.next()
            if isinstance(event, Request):
                return event
            if not begun and not requests.idle:
                begun = True
                self.client.be_patient()
            try:
                data = await self.client.receive(MOST_READ)
            except TimedOutError:
                if requests.idle:
                    return None
                raise refusals.bad_request(f"a request whose head did not come within {self.client.patience:g} s", 408) from None
            if data:
                requests.receive(data)
            elif requests.idle:
                return None
            else:
                requests.end()

    async def _one(self, request: Request) -> Done | None:
        """Decide, dial, and pass on one request and its response; None where the connection is over."""
        client = self.client
        asked = Asked(request.host, request.port, "http", self.via, request.method, request.path)
        verdict = await client.box.decided(client.task, asked)
        if not verdict.allowed:
            client.record(asked, verdict)
            await self._refuse(request, verdict)
            return None
        client.task.within(IDLE_SECONDS)
        read = False
        for _ in range(2):
            reused = self.upstream is not None and self.upstream.serves(request)
            try:
                upstream = await self._upstream(request, asked, verdict)
            except RefusedError as error:
                await self._refuse(request, error.verdict)
                return None
            except UnreachableError as error:
                await client.farewell(refusals.failed(504 if error.error == 110 else 502, error.why, body=request.method != "HEAD"))
                return None
            passing = _Passing(client, upstream, self.requests, request, reused=reused, read=read)
            done = await passing.run()
            read = passing.sent
            if done is not None or not (reused and passing.untouched):
                return done
            self._forget()
            if request.size != 0 or request.method not in ("GET", "HEAD"):
                break  # it may have done something already, or its body is gone
        await client.farewell(refusals.failed(502, "the far side closed before it answered", body=request.method != "HEAD"))
        return None

    async def _upstream(self, request: Request, asked: Asked, verdict: Verdict) -> Upstream:
        client, box = self.client, self.client.box
        if self.upstream is not None:
            if self.upstream.serves(request):
                client.record(asked, verdict, self.upstream.address)
                box.live[client.task] = (asked, self.upstream.address)
                return self.upstream
            self._forget()
        if box.upstream and not bypassed(box.no_proxy, request.host, request.port):
            socket = await to_proxy(box, client.task)
            client.record(asked, verdict)
            box.live[client.task] = (asked, "")
            self.upstream = Upstream(socket, request.host, request.port, "", absolute=True)
        else:
            socket = await client.dialled(asked, verdict)
            self.upstream = Upstream(socket, request.host, request.port, box.live[client.task][1])
        return self.upstream

    def _forget(self) -> None:
        if self.upstream is not None:
            self.client.task.close(self.upstream.socket)
            self.upstream = None

    async def _refuse(self, request: Request, verdict: Verdict) -> None:
        said = refusals.forbidden(
            str(request.host), request.port, verdict.rule, verdict.why, verdict.remedy, body=request.method != "HEAD"
        )
        await self.client.farewell(said)

    async def _malformed(self, error: BadBytesError) -> None:
        verdict = Verdict(False, BAD_BYTES, error.why)
        if self.fixed is None:
            self.client.box.records.tell("", 0, "http", self.via, verdict, self.client.source_port)
        else:
            self.client.record(replace(self.fixed, scheme="http"), verdict)
        await self.client.farewell(error.answer)


class _Passing:
    """One request on its way up and its response on its way down, at once."""

    def __init__(
        self, client: Client, upstream: Upstream, requests: Requests, request: Request, *, reused: bool, read: bool
    ) -> None:
        self._reused = reused
        self.client, self.server, self.requests, self.request = client, upstream.socket, requests, request
        self.responses = Responses(request)
        self.untouched = True  # nothing of a response has come
        added: list[tuple[bytes, bytes]] = []
        if upstream.absolute:
            name, _, value = authorization(client.box.upstream).rstrip().partition(": ")
            added = [(name.encode(), value.encode())] if value else []
        self.up = request.head(absolute=upstream.absolute, added=added)
        self.down = b""
        self.sent = read  # all of the request was read, and is sent once up is empty
        self.over: Done | None = None
        self.tunnel = self.broken = False
        self._way: Direction | None = None

    async def run(self) -> Done | None:
        """How the exchange ended; None where the connection is over. Raises BadBytesError for a response of the far side's too."""
        task = self.client.task
        try:
            while True:
                moved = self._upward()
                moved = self._downward() or moved
                if self.tunnel and not self.up and not self.down:
                    self.client.received = self.requests.rest()
                    await self.client.pass_on(self.server)
                    return None
                if self.over is not None and not self.down:
                    return Done(self.over.keep and self.sent and not self.up, self.over.reusable)
                if moved:
                    task.within(IDLE_SECONDS)
                    await task.give_way()
                else:
                    await task.wait()
        except BrokenPipeError:
            return None
        finally:
            if self._way is not None:
                self._way.close()

    def _upward(self) -> bool:
        """Send, or read more to be sent. Whether something moved."""
        if self.up:
            try:
                sent = self.server.send(self.up, _socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError:  # it may have answered before it had everything
                self.up, self.sent = b"", False
                self.broken = True
                return False
            self.up = self.up[sent:]
            return True
        if self.sent or self.broken or self.over is not None:
            return False
        event = self.requests.next()
        if isinstance(event, Body):
            self.up = event.data
        elif isinstance(event, Done):
            self.sent = True
        elif self.request.upgrade or not self.requests.wants:
            return False
        else:
            data = _available(self.client.socket)
            if data is None:
                return False
            if data:
                self.requests.receive(data)
            else:
                self.requests.end()
        return True

    def _downward(self) -> bool:
        if self._way is not None:
            return self._along()
        if self.down:
            try:
                sent = self.client.socket.send(self.down, _socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                raise ClosedError from None
            self.down = self.down[sent:]
            return True
        if self.over is not None or self.tunnel:
            return False
        event = self.responses.next()
        if isinstance(event, Response):
            self.untouched = False
            self.down, self.tunnel = event.head, event.tunnel
            if event.tunnel:
                self.down += self.responses.rest()
        elif isinstance(event, Body):
            self.down = event.data
        elif isinstance(event, Done):
            self.over = event
        else:
            plain = self.responses.plain
            if plain is None or plain >= WORTH_A_WAY:
                limit = -1 if plain is None else plain
                self._way = Direction(self.server, self.client.socket, self.client.pipes, self.client.task.owner, limit)
                return self._along()
            data = _available(self.server)
            if data is None:
                return False
            if data:
                self.untouched = False
                self.responses.receive(data)
            elif self.untouched and self._reused:
                raise BrokenPipeError  # it closed it just as it was used again
            else:
                self.responses.end()
        return True

    def _along(self) -> bool:
        way = self._way
        assert way is not None
        before = way.moved
        try:
            way.pump()
        except OSError:
            raise ClosedError from None
        self.responses.moved(way.moved - before)
        if way.done:
            way.close()
            self._way = None
            if way.ended:
                self.responses.end()
            return True
        return way.moved != before


def _available(socket: _socket.socket) -> bytes | None:
    """What has come, b"" at the end or where it broke, None where nothing has."""
    try:
        return socket.recv(MOST_READ)
    except BlockingIOError:
        return None
    except OSError:
        return b""
