"""A guest that is against us: what it does on its sockets ends in an error or in time, and leaves nothing open outside."""

from __future__ import annotations

import _socket
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from leak_check import look
from ringfence.errors import ProtocolError, SandboxLostError
from ringfence.guest import kernel, wire
from ringfence.outcome import Exited
from ringfence.policy.config import SandboxLimits
from ringfence.process import box as boxes
from ringfence.process import listener
from ringfence.process import run as runs
from ringfence.process.box import Box
from ringfence.process.run import Run
from ringfence.process.wait import Interrupted, Waits, blocking

BOUND_SECONDS = 20.0
ENDED = {"pid": 7, "status": 0, "user": 0, "system": 0, "took": 1, "cause": ""}

Guest = Callable[[socket.socket, socket.socket, list[int]], None]


def raw(channel: socket.socket, data: bytes, descriptors: list[int]) -> None:
    """Send as a guest does that is not ours: errors mean that the outside did not let it."""
    try:
        socket.send_fds(channel, [data], descriptors)
    except OSError:
        os._exit(0)


def forever(act: Callable[[], object]) -> None:
    while True:
        act()


@contextmanager
def box_with(guest: Guest) -> Iterator[Box]:
    """A box whose guest is a process that takes one request and then does as `guest` says: box, run, its pipes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    report, reporting = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    wire.refuse_descriptors(ours)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            report.close()
            _, descriptors, _, _ = socket.recv_fds(theirs, wire.MAX_MESSAGE, 8)
            channel = socket.socket(fileno=descriptors.pop(0)) if descriptors else theirs
            guest(theirs, channel, descriptors)
        finally:
            os._exit(0)
    theirs.close()
    reporting.close()  # the process holds the other copy, so its end is its report
    ours.setblocking(False)
    evidence, telling = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    telling.close()
    box = Box(_socket.socket(fileno=ours.detach()), report, kernel.timer_descriptor(), evidence)
    box.pid, box.pidfd = pid, os.pidfd_open(pid)
    try:
        yield box
    finally:
        box.kill()
        os.waitpid(pid, 0)
        box.release()


def started(box: Box, wall: float | None = None) -> Run:
    run = Run(box, SandboxLimits(), wall)
    run.start({"op": "run", "argv": ["x"], "cwd": "/", "env": {}}, None)
    return run


def finished(box: Box, wall: float | None = None) -> Run:
    run = started(box, wall)
    try:
        blocking(run.finish())
        run.outcome()
    finally:
        run.release()
    return run


def test_a_guest_that_answers_as_it_should_is_believed() -> None:
    with box_with(lambda box, run, pipes: raw(run, wire.encode(ENDED), [])) as box:
        assert finished(box).outcome() == Exited(0)


def lingering() -> int:
    """A connected socket with unsent data whose last close waits a minute."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    kept, _ = server.accept()
    client.setblocking(False)
    try:
        forever(lambda: client.send(bytes(65536)))
    except BlockingIOError:
        pass
    client.setblocking(True)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    kept.detach()
    return client.detach()


def sends_garbage(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    raw(run, b"\0\1\2 no message", [])


def speaks_out_of_turn(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    raw(run, wire.encode({"ready": 1}), [])


def starts_twice(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    forever(lambda: raw(run, wire.encode({"started": 7}), []))


def sends_a_huge_packet(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    run.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    raw(run, b"9" * (wire.MAX_MESSAGE + 1), [])


def names_a_file_outside(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    raw(run, wire.encode({**ENDED, "created": ["a/../../../outside"]}), [])


@pytest.mark.parametrize("guest", [sends_garbage, speaks_out_of_turn, starts_twice, sends_a_huge_packet, names_a_file_outside])
def test_what_the_protocol_does_not_allow_ends_the_box(guest: Guest) -> None:
    with box_with(guest) as box:
        with pytest.raises(ProtocolError):
            finished(box)
        assert os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED | os.WNOWAIT) is not None


def goes(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    os._exit(1)


def sends_nothing_in_a_packet(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    run.send(b"")
    signal.pause()


def closes_without_a_word(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    run.close()
    signal.pause()


@pytest.mark.parametrize("guest", [goes, sends_nothing_in_a_packet, closes_without_a_word])
def test_a_run_that_was_let_go_of_is_lost_and_the_box_ended(guest: Guest) -> None:
    with box_with(guest) as box:
        with pytest.raises(SandboxLostError):
            finished(box)
        assert os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED | os.WNOWAIT) is not None


def sends_files(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    raw(run, wire.encode(ENDED), [os.open("/proc/self/status", os.O_RDONLY) for _ in range(3)])


def sends_many_pipes(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    raw(run, wire.encode(ENDED), [*os.pipe()] * 100)


def sends_a_socket_that_lingers(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    descriptor = lingering()
    raw(run, wire.encode(ENDED), [descriptor])
    os.close(descriptor)
    signal.pause()


@pytest.mark.parametrize("guest", [sends_files, sends_many_pipes, sends_a_socket_that_lingers])
@pytest.mark.parametrize("kernel_refuses", [True, False])
def test_descriptors_that_a_guest_sends_are_refused_and_closed(
    guest: Guest, kernel_refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel_refuses:
        monkeypatch.setattr(wire, "SO_PASSRIGHTS", -1)  # as an older kernel has it
    before = look().descriptors
    began = time.monotonic()
    with box_with(guest) as box:
        with pytest.raises((ProtocolError, SandboxLostError)):
            finished(box)
    assert time.monotonic() - began < BOUND_SECONDS
    assert look().descriptors <= before


def floods_the_channel(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    forever(lambda: run.send(wire.encode({"started": 7})))


def floods_the_output(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    forever(lambda: os.write(pipes[0], bytes(65536)))


def says_nothing(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forever(signal.pause)


def floods_the_box_channel(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
    forever(lambda: box.send(bytes(1000)))


SILENT: list[Guest] = [floods_the_output, says_nothing, floods_the_box_channel]


@pytest.mark.parametrize("guest", SILENT)
def test_the_end_of_a_call_is_bounded_although_the_guest_ignores_the_deadline(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LATE_SECONDS", 0.5)
    monkeypatch.setattr(runs, "GRACE_NS", 500_000_000)
    began = time.monotonic()
    with box_with(guest) as box:
        with pytest.raises(SandboxLostError):
            finished(box, wall=0.1)
    assert time.monotonic() - began < BOUND_SECONDS


@pytest.mark.parametrize("guest", [*SILENT, floods_the_channel, sends_garbage])
def test_giving_up_a_call_is_bounded_and_stays_giving_up(guest: Guest) -> None:
    def given_up(run: Run) -> Waits[None]:
        yield from run.abort(within=0.5)
        raise Interrupted

    began = time.monotonic()
    with box_with(guest) as box:
        run = started(box)
        with pytest.raises(Interrupted):
            blocking(given_up(run))
        run.release()
        box.kill()
    assert time.monotonic() - began < BOUND_SECONDS


def test_a_guest_that_reads_no_requests_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "TAKING_SECONDS", 0.5)

    def reads_no_more(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
        forever(signal.pause)

    with box_with(reads_no_more) as box:

        def ask_for_ever() -> None:
            while True:
                box.send({"op": "run", "argv": ["x" * 50_000]}, [])

        with pytest.raises(SandboxLostError, match="no more requests"):
            ask_for_ever()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"no message", ProtocolError),
        (wire.encode(ENDED), ProtocolError),
        (b"", SandboxLostError),
        (wire.encode({"ready": 0}), ProtocolError),
    ],
)
def test_a_box_is_not_made_unless_its_guest_says_that_it_is_ready(said: bytes, error: type[Exception]) -> None:
    def speaks(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
        box.send(said)
        signal.pause()

    with box_with(speaks) as box:
        box.send({"op": "begin"}, [])
        with pytest.raises(error):
            blocking(boxes._ready(box, time.monotonic() + BOUND_SECONDS, None))


def at_terminal(box: Box) -> Run:
    run = Run(box, SandboxLimits(), None)
    try:
        run.start({"op": "run", "argv": ["x"], "terminal": [24, 80]}, None)
        blocking(run.finish())
    finally:
        run.release()
    return run


def says_started_with(*descriptors: Callable[[], int]) -> Guest:
    def guest(box: socket.socket, run: socket.socket, pipes: list[int]) -> None:
        raw(run, wire.encode({"started": 7}), [opened() for opened in descriptors])
        raw(run, wire.encode(ENDED), [])

    return guest


def outer() -> int:
    return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)


def inner() -> int:
    return os.openpty()[1]


def a_file() -> int:
    return os.open("/proc/self/status", os.O_RDONLY)


def a_device() -> int:
    return os.open("/dev/zero", os.O_RDONLY)


def test_the_outer_end_of_a_terminal_is_taken() -> None:
    with box_with(says_started_with(outer)) as box:
        assert at_terminal(box).outcome() == Exited(0)


@pytest.mark.parametrize(
    "sent",
    [(), (a_file,), (inner,), (a_device,), (lingering,), (outer, outer)],
    ids=lambda sent: "+".join(f.__name__ for f in sent),
)
def test_anything_else_that_a_guest_sends_for_a_terminal_is_closed_and_ends_the_box(sent: tuple[Callable[[], int], ...]) -> None:
    before = look().descriptors
    began = time.monotonic()
    with box_with(says_started_with(*sent)) as box:
        with pytest.raises(ProtocolError):
            at_terminal(box)
        assert os.waitid(os.P_PIDFD, box.pidfd, os.WEXITED | os.WNOWAIT) is not None
    assert time.monotonic() - began < BOUND_SECONDS
    assert look().descriptors == before


def a_listener() -> int:
    """The listener of a filter that allows everything, made by a process that ends."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            allow = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
            socket.send_fds(theirs, [b"l"], [kernel.install_filter(allow, kernel.SECCOMP_FILTER_FLAG_NEW_LISTENER)])
        finally:
            os._exit(0)
    _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(pid, 0)
    ours.close()
    theirs.close()
    return descriptor


def a_folder() -> int:
    return os.open("/", os.O_PATH)


def test_what_a_box_hands_out_when_it_is_built_is_told_apart_by_what_it_is() -> None:
    folder, handed = a_folder(), a_listener()
    assert listener.accept([handed, folder]) == listener.accept([folder, handed]) == (folder, handed)
    assert listener.accept([]) == (-1, -1)
    pid = os.fork()
    if pid == 0:  # a fork of the caller would keep what nobody answers waiting
        os._exit(os.path.lexists(f"/proc/self/fd/{handed}"))
    assert os.waitpid(pid, 0)[1] == 0 and os.path.lexists(f"/proc/self/fd/{handed}")
    listener.let_go(handed)
    os.close(folder)


@pytest.mark.parametrize(
    "sent",
    [(a_file,), (a_device,), (a_folder, a_folder), (a_listener, a_listener), (a_folder, a_listener, a_file)],
    ids=lambda sent: "+".join(f.__name__ for f in sent),
)
def test_anything_else_is_closed_and_the_box_is_not_made(sent: tuple[Callable[[], int], ...]) -> None:
    before = look().descriptors
    with pytest.raises(ProtocolError):
        listener.accept([opened() for opened in sent])
    assert look().descriptors == before
