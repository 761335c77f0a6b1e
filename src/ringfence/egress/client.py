"""One connection that was made inside a box: what every entrance does with it."""

from __future__ import annotations

import _socket

from ringfence.egress import refusals
from ringfence.egress.box import Box
from ringfence.egress.dial import RefusedError, UnreachableError, dial
from ringfence.egress.loop import EndedError, Task, TimedOutError
from ringfence.egress.relay import IDLE_SECONDS, Pipes, relay, reset
from ringfence.egress.tls import ACCESS_DENIED, HANDSHAKE, INTERNAL_ERROR, UNRECOGNIZED_NAME, ClientHello, Hello, alert
from ringfence.policy.hosts import BadHostError, Name, normalise
from ringfence.policy.reach import Asked, Verdict, decide
from ringfence.values import replace

FAREWELL_SECONDS = 2.0
MOST_FORGOTTEN = 256 * 1024
"""What a client may still send behind the last answer, in seconds and bytes; then the connection breaks."""
MOST_READ = 16 * 1024
TLS_RULE = "the server name of a TLS hello is the host's"


class ClosedError(Exception):
    """The client has gone."""


class Client:
    """The connection, its box and the task that serves it. received: what the client sent and nobody has used yet."""

    def __init__(self, task: Task, box: Box, socket: _socket.socket, pipes: Pipes, source_port: int) -> None:
        self.task, self.box, self.socket, self.pipes, self.source_port = task, box, socket, pipes, source_port
        self.received = b""
        self.patience = box.patience

    def be_patient(self) -> None:
        """What the client says next, until its connection is decided on, has to come in the time that its box gives."""
        self.task.within(self.patience)

    async def receive(self, most: int = MOST_READ) -> bytes:
        """Some bytes, what is held first; b"" at the end. Raises TimedOutError, and ClosedError where it broke."""
        if self.received:
            data, self.received = self.received, b""
            return data
        while True:
            try:
                return self.socket.recv(most)
            except BlockingIOError:
                await self.task.wait()
            except OSError:
                raise ClosedError from None

    async def send(self, data: bytes) -> None:
        """All of data, within the deadline of the task."""
        await send(self.task, self.socket, data)

    def record(self, asked: Asked, verdict: Verdict, address: str = "") -> None:
        self.box.records.decision(asked, verdict, source_port=self.source_port, address=address)

    async def dialled(self, asked: Asked, verdict: Verdict) -> _socket.socket:
        """The far side of what was allowed, on record. Raises RefusedError, UnreachableError, both on record too."""
        try:
            server, address = await dial(self.box, self.task, asked, verdict)
        except RefusedError as error:
            self.record(asked, error.verdict)
            raise
        except UnreachableError as error:
            self.record(asked, replace(verdict, why=f"{verdict.why}, but it was not reached: {error.why}"))
            raise
        self.record(asked, verdict, address)
        self.box.live[self.task] = (asked, address)
        return server

    async def hello(self, asked: Asked) -> tuple[Asked, Verdict]:
        """Read a TLS hello, and decide by it. What was read is held. Raises BadBytesError."""
        reading = ClientHello()
        found: Hello | None = None
        while found is None:
            data = await self.receive()
            if not data:
                raise refusals.BadBytesError("a TLS hello that ends before it is whole")
            found = reading.feed(data)
        self.received = bytes(reading.received)
        asked = replace(asked, scheme="tls", ech=found.ech)
        verdict = await self.box.decided(self.task, asked)
        return asked, self._named(asked, verdict, found.server_name)

    def _named(self, asked: Asked, verdict: Verdict, said: str | None) -> Verdict:
        """The verdict with the name in the hello held against the host: absent, or the same; of an address none that is denied."""
        if not verdict.allowed or said is None:
            return verdict
        try:
            name = normalise(said)
        except BadHostError as error:
            return replace(verdict, allowed=False, rule=TLS_RULE, why=f"its hello names no host: {error}", remedy=None)
        if name == asked.host:
            return verdict
        if isinstance(asked.host, Name):
            why = f"the connection was opened to {asked.host}, and its hello asks for {refusals.encoded(said)}"
            return replace(verdict, allowed=False, rule=TLS_RULE, why=why, remedy=None)
        closing = decide(self.box.policy, replace(asked, host=name))
        return closing if closing.rule.startswith("network.deny") else verdict

    async def first_byte(self) -> int:
        """The first byte that the client sends, which stays held; -1 where it says that it sends none."""
        self.received = await self.receive()
        return self.received[0] if self.received else -1

    async def pass_on(self, server: _socket.socket) -> None:
        """What is held, then everything both ways until both have ended."""
        self.task.within(IDLE_SECONDS)
        if self.received:
            try:
                await send(self.task, server, self.received)
            except ClosedError:
                reset(self.socket)
                return
            self.received = b""
        try:
            await relay(self.task, self.socket, server, self.pipes)
        except OSError:
            pass  # an end broke, and the other was told so
        except (TimedOutError, EndedError):
            reset(self.socket)
            raise

    async def farewell(self, data: bytes) -> None:
        """A last answer, and the end, so that the answer arrives: what the client still sends is forgotten for a moment."""
        self.task.within(FAREWELL_SECONDS)
        try:
            await self.send(data)
            self.socket.shutdown(_socket.SHUT_WR)
            self.received = b""
            taken = 0
            while taken < MOST_FORGOTTEN and (data := await self.receive()):
                taken += len(data)
        except (ClosedError, TimedOutError, OSError):
            pass

    async def refuse_tls(self, verdict: Verdict) -> None:
        await self.farewell(alert(UNRECOGNIZED_NAME if verdict.rule == TLS_RULE else ACCESS_DENIED))

    async def fail_tls(self) -> None:
        await self.farewell(alert(INTERNAL_ERROR))


def is_tls(first: int) -> bool:
    """Whether a first byte is that of a TLS hello, or of the older one that is refused with an alert."""
    return first >= 0 and (first == HANDSHAKE or first & 0x80 == 0x80)


async def send(task: Task, socket: _socket.socket, data: bytes) -> None:
    """All of data. Raises ClosedError where the other side has gone, TimedOutError."""
    view = memoryview(data)
    while view:
        try:
            view = view[socket.send(view, _socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            await task.wait()
        except OSError:
            raise ClosedError from None
