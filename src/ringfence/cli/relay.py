"""What a command reads and writes, passed between the caller's streams and the pipes or the terminal of a run.

The caller's own descriptors never enter the box: bytes are copied, both ways, as each side is ready for them.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading

    from ringfence.outcome import Result
    from ringfence.permission.terminal import CliApprover
    from ringfence.sync import Process

CHUNK = 1 << 16
LOOK_AGAIN = 50
"""Milliseconds between looks at whether a question still has the terminal."""
AFTER_THE_END = 64
"""Pieces of output that are still taken when the command has ended: a process it left behind does not hold us."""


class Sink(Protocol):
    def __call__(self, data: bytes) -> None: ...


def write_all(descriptor: int, data: bytes) -> None:
    """Pass output on at once; a reader that is gone ends us as it would end the command (BrokenPipeError).

    Raises HostError where it cannot be written, as on a full disk.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another program shares the pipe or terminal, and made it so
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
        except BrokenPipeError:
            raise
        except OSError as error:
            from ringfence.errors import HostError

            name = {1: "standard output", 2: "standard error"}.get(descriptor, f"descriptor {descriptor}")
            raise HostError(f"{name} cannot be written: {error.strerror}.", errno=error.errno or 0) from None


def to_caller(descriptor: int) -> Sink:
    """A sink for one of the caller's streams. What a person sees on a terminal there cannot act on it."""
    if not os.isatty(descriptor):
        return lambda data: write_all(descriptor, data)
    from ringfence.cli.escapes import Filter

    made_safe = Filter()
    return lambda data: write_all(descriptor, made_safe.feed(data, line_mode=True))


class Relay:
    """The copying for one process."""

    def __init__(self, process: Process, source: int, sinks: dict[int, Sink]) -> None:
        """source: the caller's input, -1 for none. sinks: by the descriptors of the process's output."""
        self.process, self.source, self.sinks = process, source, sinks
        self.inward = process.stdin.fileno()
        self.pending = b""
        self.watch: dict[int, Callable[[], None]] = {}  # further descriptors, with what is done when they can be read
        self.patience: int | None = None
        self.gate: threading.Lock | None = None  # held by whoever uses the caller's streams, where questions do so too
        for descriptor in (*sinks, self.inward):
            os.set_blocking(descriptor, False)
        if source < 0:
            self._close_inward()

    def rest(self) -> Result:
        """What was written before the end, then the result."""
        for _ in range(AFTER_THE_END):
            if not [True for descriptor in [*self.sinks] if self._outward(descriptor)]:
                break
        return self.process.wait()

    def turn(self) -> None:
        """Wait until something can be done, and do it."""
        poll = select.poll()
        for descriptor in (self.process.fileno(), *self.sinks, *self.watch):
            poll.register(descriptor, select.POLLIN)
        if self.inward >= 0 and self.pending:
            poll.register(self.inward, select.POLLOUT)
        elif self.inward >= 0 and self.source >= 0:
            poll.register(self.source, select.POLLIN)
        ready = poll.poll(self.patience)
        if self.gate is None:
            self._do(ready)
        elif self.gate.acquire(blocking=False):
            try:
                self._do(ready)
            finally:
                self.gate.release()
        else:  # a question has the terminal, and may read what was there to be read
            self._beside_a_question()

    def _beside_a_question(self) -> None:
        """Watch for the end of the command and for what concerns us, and for nothing that is on the terminal."""
        poll = select.poll()
        for descriptor in (self.process.fileno(), *self.watch):
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(LOOK_AGAIN):
            if descriptor in self.watch:
                self.watch[descriptor]()

    def _do(self, ready: list[tuple[int, int]]) -> None:
        for descriptor, _ in ready:
            if descriptor in self.sinks:
                self._outward(descriptor)
            elif descriptor in self.watch:
                self.watch[descriptor]()
            elif descriptor == self.source and not self.pending:
                self._read()
                self._write()
            elif descriptor == self.inward:
                self._write()

    def _outward(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # EIO: nothing holds the terminal any more
            data = b""
        if data:
            self.sinks[descriptor](data)
        else:
            del self.sinks[descriptor]
        return bool(data)

    def _read(self) -> None:
        try:
            self.pending = os.read(self.source, CHUNK)
        except OSError:  # a terminal that hung up, a folder: there is nothing to read there
            self.pending = b""
        if not self.pending:
            self.source = -1
            self._close_inward()

    def _write(self) -> None:
        try:
            while self.pending and self.inward >= 0:
                self.pending = self.pending[os.write(self.inward, self.pending) :]
        except BlockingIOError:
            pass
        except OSError:  # the command reads no more; that is its affair
            self.pending = b""
            self._close_inward()

    def _close_inward(self) -> None:
        if self.inward >= 0 and self.inward not in self.sinks:
            self.process.stdin.close()
        self.inward = -1


class Held:
    """What a question has while it is asked: nothing is copied from or to the caller's streams. For CliApprover.hold.

    around: what else is done before and after a question, by whoever has the terminal.
    """

    def __init__(self) -> None:
        import threading  # only where somebody may be asked

        self.gate = threading.Lock()
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.gate, self.around():
            yield


@contextmanager
def lent(
    relay: Relay, approver: CliApprover | None, around: Callable[[], AbstractContextManager[object]] = nullcontext
) -> Iterator[AbstractContextManager[object]]:
    """While it lasts, questions of approver hold back what relay copies, with around; what it gives holds back questions.

    When it ends, what is asked is withdrawn, and what comes is refused until approver.resume().
    """
    if approver is None:
        yield nullcontext()
        return
    held = approver.hold
    assert isinstance(held, Held)
    relay.gate, held.around = held.gate, around
    try:
        yield held.gate
    finally:
        approver.pause()
        with held.gate:
            relay.gate, held.around = None, nullcontext


def piped(process: Process, approver: CliApprover | None = None) -> Result:
    """Run a process whose streams are pipes to its end. approver: who may be asked meanwhile, at the terminal."""
    show, complain = to_caller(1), to_caller(2)

    def passed(data: bytes) -> None:
        process.passed(data)  # for the trace
        show(data)

    def heard(data: bytes) -> None:
        process.heard(data)  # what it says was refused is told when it is over
        complain(data)

    relay = Relay(process, caller_input(), {process.stdout.fileno(): passed, process.stderr.fileno(): heard})
    with lent(relay, approver):
        while not process.has_ended():
            relay.turn()
    return relay.rest()


def caller_input() -> int:
    """The descriptor of what the caller pipes or redirects to us; -1 where that is a terminal, a device, or closed."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return -1
    return 0 if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode) else -1
