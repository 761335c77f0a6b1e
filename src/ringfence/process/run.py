"""A command in a box, from its request to its end. One descriptor says when something is to be done; step() does it."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable
from typing import Protocol

from ringfence.errors import HostError, ProtocolError, RingfenceError, SandboxClosedError, SandboxLostError
from ringfence.guest import wire
from ringfence.guest.wire import GRACE_NS
from ringfence.outcome import CapHit, Outcome, Output, Usage
from ringfence.policy.config import SandboxLimits
from ringfence.process import classify, messages
from ringfence.process.box import Box
from ringfence.process.evidence import Call, Cap
from ringfence.process.lane import PIPE_MODE, Lane
from ringfence.process.output import Stream
from ringfence.process.wait import Readable, Waits

LATE_SECONDS = 5.0
"""Past deadline and grace: when even the zygote cannot end the box, the call still ends."""
READS_A_TURN = 16
MOST_SHOWN = 500
"""Bytes of what an interpreter wrote that are shown in an error."""
PIPE_BYTES = 65536  # what a fresh pipe holds, pipe(7)


class Observer(Protocol):
    """Who is told what the caller of a command reads of it himself, and that he closed it without asking for its result."""

    def saw(self, stream: int, data: bytes) -> None: ...

    def given_up(self) -> None: ...


class Run:
    """One command. Use: start(), then drive finish(); abort() ends it early, in any state."""

    def __init__(self, box: Box, limits: SandboxLimits, wall: float | None, keep: int | None = None) -> None:
        self.box, self.limits, self.wall = box, limits, wall
        self.keep, self.head = (limits.output_bytes, limits.head_bytes) if keep is None else (keep, (keep + 1) // 2)
        self.pid = 0
        self.mark = 0  # what was known of the box when it began, for those who watch it
        self.streams: tuple[Stream, ...] = ()
        self.more: Callable[[], bytes] | None = None  # what follows the data of start(), piece by piece; b"" ends it
        self.on_chunk: tuple[Callable[[bytes], None] | None, ...] = (None, None)
        self.ended: messages.Ended | messages.Failed | None = None
        self.gone = False  # the channel closed without a word
        self._stdin = -1
        self._unsent = memoryview(b"")
        self._stdin_watched = False
        self._lane: Lane | None = None
        self._reusable = False
        self.at_terminal = False
        self.stopped = False  # the job at its terminal was stopped; whoever sees that sets it back
        self.terminal = -1  # the outer end, once it has started
        self.said = b""  # the end of what the caller read of stderr, where it is not drained here
        self.observer: Observer | None = None
        self._deadline_ns = 0
        self._began_ns = 0
        self.relays = False  # it runs no program of the box, and does not count among those that do
        self._alone = True  # no other run of the box was under way while this one was
        self.caps: list[Cap] = []  # that were met in it, as the warden says

    def start(self, request: dict[str, object], data: bytes | None, *, drained: bool = True) -> tuple[int, int, int]:
        """Send the request with fresh pipes. With drained the output is collected here; without, the ends are returned.

        Returns the outside ends of stdin, stdout, stderr (-1 where this object holds them or there is none).
        """
        stdin = data is not None or not drained
        theirs_in = -1
        if self.box.life:
            self.box.life.enter(self)
        self._began_ns = time.monotonic_ns()
        self._enter()
        try:
            kept = self.box.lanes.take() if drained else None
            self.at_terminal = "terminal" in request
            self._lane = kept or Lane(takes_descriptors=self.at_terminal)
            if stdin:
                theirs_in, self._stdin = os.pipe()
                os.fchmod(theirs_in, PIPE_MODE)
            given = [theirs_in] if stdin else []
            if kept is None:
                channel, *output = self._lane.theirs
                given = [channel, *given, *output]
            self._send({**request, **_given(announce=not drained)}, given, kept)
            self._lane.close_theirs()
        except BaseException as error:
            self.release()
            if isinstance(error, RingfenceError) or not isinstance(error, OSError):
                raise
            raise HostError(f"no pipe for a command: {error.strerror}.", errno=error.errno or 0) from None
        finally:
            if theirs_in >= 0:
                os.close(theirs_in)
        if not drained:
            return self._hand_over()
        self.streams = (Stream(self._lane.streams[0], self.keep, self.head), Stream(self._lane.streams[1], self.keep, self.head))
        self._feed_first(data)
        return -1, -1, -1

    def _enter(self) -> None:
        if self.relays:
            return
        for other in (others := self.box.under_way):
            self._alone = other._alone = False
        others.add(self)

    def _hand_over(self) -> tuple[int, int, int]:
        """Give the ends of the pipes away: somebody else reads and writes them."""
        assert self._lane is not None
        stdin, self._stdin = self._stdin, -1
        output, self._lane.streams = self._lane.streams, []
        for descriptor in output:
            self._lane.poll.unregister(descriptor)
        return stdin, output[0], output[1]

    def _send(self, request: dict[str, object], descriptors: list[int], kept: Lane | None) -> None:
        if self.wall is not None:
            self._deadline_ns = time.monotonic_ns() + int(self.wall * 1e9)
            self.box.arm(self, self._deadline_ns)
            request = {**request, "deadline": self._deadline_ns}
        self.box.send(request, descriptors, kept.channel if kept else None)

    # Input

    def _feed_first(self, data: bytes | None) -> None:
        if data is None:
            return
        os.set_blocking(self._stdin, False)
        self._unsent = memoryview(data)
        self._feed()
        if self._stdin >= 0:
            assert self._lane is not None
            self._lane.poll.register(self._stdin, select.EPOLLOUT)
            self._stdin_watched = True

    def _feed(self) -> None:
        try:
            while self._unsent or self._refill():
                self._unsent = self._unsent[os.write(self._stdin, self._unsent[:PIPE_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # the command does not read its input; that is its affair
        if self._stdin_watched:
            assert self._lane is not None
            self._lane.poll.unregister(self._stdin)
        os.close(self._stdin)
        self._stdin = -1

    def _refill(self) -> bool:
        if self.more is not None:
            self._unsent = memoryview(self.more())
        return bool(self._unsent)

    # The engine

    def finish(self) -> Waits[None]:
        """Until the command has ended and what it wrote is read, or the box is lost."""
        descriptor = self.descriptor
        until = (self._deadline_ns + GRACE_NS) / 1e9 + LATE_SECONDS if self._deadline_ns else None
        while not self.ended and not self.gone:
            yield Readable(descriptor, until)
            self.step()
            # The clock decides, and after what was there to hear: a flood is always readable, a caller can be late itself.
            if not self.ended and _is_past(until):
                self.box.kill()
                self.gone = True
        self._drain_rest()
        if self.gone and not self.ended:
            self.box.kill()  # a guest that let go of a run without a word is no guest any more
            yield from self.box.cause_of_death(2.0)
        self.caps = self.box.evidence.of_run(self.pids, self._began_ns, self._alone)

    @property
    def descriptor(self) -> int:
        """Readable when step() has something to do."""
        assert self._lane is not None
        return self._lane.poll.fileno()

    @property
    def over(self) -> bool:
        """Whether its end is known, or the guest is gone."""
        return self.ended is not None or self.gone

    @property
    def under_way(self) -> bool:
        """Whether it was started, and neither its end is known nor was it given up."""
        return self._lane is not None and not self.over

    @property
    def alone(self) -> bool:
        """Whether no other run of the box was under way while this one was."""
        return self._alone

    def step(self) -> None:
        """Do what can be done without waiting."""
        assert self._lane is not None
        ready = self._lane.poll.poll(0)
        for descriptor, _ in ready:
            if descriptor == self._lane.channel.fileno():
                self._hear()
            elif descriptor == self._stdin:
                self._feed()
            else:
                self._read(descriptor, READS_A_TURN)
        for stream in self.streams if self.ended else ():
            # The command had ended before the poll: what it wrote was ready in it.
            stream.empty = stream.empty or all(descriptor != stream.descriptor for descriptor, _ in ready)

    def _hear(self) -> None:
        assert self._lane is not None
        try:
            packet, descriptors = wire.receive(self._lane.channel, int(self.at_terminal and not self.pid))
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        except wire.WireError as error:
            self.box.kill()
            raise ProtocolError(f"the guest sent {error}.") from None
        if not packet:
            self.gone = True
            return
        try:
            message = messages.parse(packet)
            started = isinstance(message, messages.Started)
            if descriptors or (self.at_terminal and started and not self.pid):
                from ringfence.process.terminal import accept  # with it comes termios

                self.terminal = accept(descriptors)
        except ProtocolError:
            self.box.kill()
            raise
        if isinstance(message, messages.Started) and not self.pid:
            self.pid = message.pid
        elif isinstance(message, messages.Stopped) and self.at_terminal:
            self.stopped = True
        elif isinstance(message, (messages.Ended, messages.Failed)):
            self.ended = message
        else:
            self.box.kill()
            raise ProtocolError("the guest spoke out of turn.")

    def _read(self, descriptor: int, times: int) -> None:
        for at, stream in enumerate(self.streams):
            if stream.descriptor != descriptor:
                continue
            on_chunk = self.on_chunk[at]
            for _ in range(times):
                if not stream.read():
                    break
                if on_chunk:
                    on_chunk(stream.fresh)
            if stream.ended and not self.ended:
                assert self._lane is not None
                self._lane.poll.unregister(descriptor)

    def _drain_rest(self) -> None:
        """What the command wrote before it ended is in the pipes; a process it left behind does not hold the call."""
        left: list[int] = []
        for stream in self.streams:
            if not stream.ended and not stream.empty:
                # Bounded by what a widened pipe holds: a background writer must not keep us here.
                self._read(stream.descriptor, READS_A_TURN)
            if not stream.ended:
                left.append(stream.descriptor)
        if self.ended and self.ended.kept:
            self._reusable = all(stream.empty for stream in self.streams)
        elif left and not self.gone:
            try:
                self.box.send({"op": "discard"}, left)  # its reader must stay, or what still writes gets SIGPIPE
            except SandboxLostError:
                pass  # nothing is left to write

    # Results

    def outcome(self) -> Outcome:
        """How it ended. Raises SandboxLostError, with the output so far, when nobody knows; SandboxClosedError after a close."""
        if isinstance(self.ended, messages.Ended):
            return classify.of_ended(self.ended, self.limits, self.wall, self.caps, self.pid)
        if isinstance(self.ended, messages.Failed):
            number = self.ended.errno
            # A program's text is put into the private folders first, which what ran before may have filled.
            full = number == errno.ENOSPC and self.box.scratch >= 0
            if self.ended.stage != "guest" or self.ended.cause == "deadline" or full:
                return classify.of_failed(self.ended, self.wall)
            if not number:
                wrote = self.output()[1].data[-MOST_SHOWN:]
                raise HostError(
                    "the interpreter of the box ended before the program began" + (f"; it wrote {wrote!r}." if wrote else "."),
                    hint="Check config.python, or the workspace's virtual environment; it is run inside the box.",
                )
            raise HostError(f"the box could not start the command: {os.strerror(number)}.", errno=number)
        if self.box.killed_by_deadline and self.wall is not None:
            return CapHit("wall", self.wall, None, "zygote: the whole box was ended")
        if self.box.life_over:
            bound, seconds = self.box.life_over
            if bound == "idle":
                return CapHit("idle", seconds, None, "zygote: the whole box was ended, just as the command began")
            return CapHit("wall", seconds, None, "lifetime of the box: the zygote ended all of it")
        if cap := next((cap for cap in self.caps if cap.ends_run or cap.ends_box), None):
            return CapHit(cap.kind, cap.limit, cap.observed, f"{cap.by}: the whole box was ended")
        if self.box.closed:
            raise SandboxClosedError("the box was closed while the command ran, which ended it.")
        out, err = (stream.output().data for stream in self.streams) if self.streams else (b"", b"")
        raise SandboxLostError(f"the box was lost: {self.box.lost or 'it does not answer'}.", stdout=out, stderr=err)

    @property
    def pids(self) -> set[int]:
        """What its first process is known by, as the box counts: one number, or none before it is told."""
        return {self.pid, self.ended.pid if self.ended else 0} - {0}

    def refused_calls(self) -> tuple[list[tuple[Call, str]], list[tuple[Call, str]]]:
        """What the filter refused until its end: to this run, and before it to what earlier runs had left. Each is told once."""
        calls = self.box.evidence.calls_of_run(self.pids, self._began_ns, self._alone)
        return calls, self.box.evidence.calls_of_none(self._began_ns) if self._alone else []

    def usage(self) -> Usage:
        sizes = [stream.total for stream in self.streams] or [0, 0]
        if isinstance(self.ended, messages.Ended):
            return Usage(self.ended.took, self.ended.user, self.ended.system, *sizes)
        return Usage(stdout_bytes=sizes[0], stderr_bytes=sizes[1])

    def output(self) -> tuple[Output, Output]:
        if not self.streams:
            return Output(), Output()
        return self.streams[0].output(), self.streams[1].output()

    def created(self) -> tuple[str, ...] | None:
        return self.ended.created if isinstance(self.ended, messages.Ended) else None

    # Ends

    def signal(self, number: int) -> None:
        """Send a signal to the first process; one that has ended is no error."""
        self._tell({"op": "signal", "number": number})

    def _tell(self, message: dict[str, object]) -> None:
        if self._lane is not None and not self.ended and not self.gone:
            try:
                wire.send(self._lane.channel, message)
            except OSError:
                pass  # it has ended; its message is on the way

    def abort(self, within: float = 3.0) -> Waits[None]:
        """End the whole tree and wait until it is gone; when the guest cannot do that in time, end the box."""
        if self._lane is None:
            return
        self._tell({"op": "kill"})
        self.on_chunk = (None, None)
        until = time.monotonic() + within
        while not self.ended and not self.gone:
            yield Readable(self.descriptor, until)
            try:
                self.step()
            except ProtocolError:
                return  # the box was ended for it; why the caller gave up matters more
            if _is_past(until) and not self.over:
                self.box.kill()
                yield from self.box.cause_of_death(within)
                return

    def release(self) -> None:
        """Close every descriptor of this run. Safe to call again."""
        if self.wall is not None:
            self.box.disarm(self)
        if self.box.life:
            self.box.life.leave(self)
        self.box.under_way.discard(self)
        for descriptor in (self._stdin, self.terminal):
            if descriptor >= 0:
                os.close(descriptor)
        self._stdin = self.terminal = -1
        if self._lane is not None:
            if self._reusable:
                self.box.lanes.give_back(self._lane)
            else:
                self._lane.close()
            self._lane = None


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _given(**flags: bool) -> dict[str, object]:
    """The flags that are set: what is not said costs nothing to say."""
    return {name: 1 for name, value in flags.items() if value}
