"""The life of a box's first process, from the fork to the loop: the order of confinement reads as one function."""

import _socket
import os
import signal

from ringfence.guest import guest, kernel, view, wire
from ringfence.guest.room import Room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHANNEL = 3
TIMER = 4
MAX_TREES = 210
"""Descriptors of one packet, with those of control groups and the warden: the kernel passes 253 (SCM_MAX_FD, net/scm.h)."""


def start(channel: int, ready: int, timer: int, *, confined: bool) -> None:
    """Never returns: becomes the guest, or reports why not and exits."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # before anything slow: a box must not outlive the zygote
    kept = [os.dup(descriptor) for descriptor in (channel, timer, ready)]  # above everything that is moved below
    for at, descriptor in enumerate(kept, CHANNEL):
        os.dup2(descriptor, at, inheritable=False)
    go = TIMER + 1
    kernel.close_from(go + 1)
    socket = _socket.socket(fileno=CHANNEL)
    try:
        if os.read(go, 1) != b"g":
            os._exit(1)
        os.close(go)
        beginning, trees = _hear(socket)
        groups = [trees.pop(0) for _ in range(beginning["groups"])]
        room = Room(groups[: 2 * beginning["room"]], bool(beginning["shielded"]))
        enter(groups[2 * beginning["room"] :], room, confined=confined)
        names, sockets = begin(beginning, trees) if confined else ([], [])
        plan, trees = _hear(socket)
        handed: list[int] = []
        watch = _socket.socket(fileno=trees.pop())
        if plan["processors"]:
            os.sched_setaffinity(0, plan["processors"])
        if confined:
            handed += [*confine(plan, trees, beginning["scratch"]), *sockets]
        else:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        served = guest.Guest(socket, TIMER, watch, room, plan)
        plan = beginning = {}  # of a plan little is used again, and this frame lasts as long as the box
        kernel.give_back_memory()
        wire.send(socket, {"ready": os.getpid(), **({"network": names} if names else {})}, handed)
        while handed:  # before anything else runs here: who holds the listener answers for the kernel
            os.close(handed.pop())
        served.serve()
    except view.ViewError as error:
        _refuse(socket, {"failed": error.error, "stage": error.stage, "path": error.path})
    except Exception as error:
        _refuse(socket, {"failed": getattr(error, "errno", 0) or 0, "stage": repr(error)[:500], "path": b""})
    os._exit(0)


def _hear(socket: "_socket.socket") -> "tuple[dict[str, Any], list[int]]":
    """A part of the plan, and the descriptors that come with it."""
    packet, descriptors = wire.receive(socket, MAX_TREES)
    if not packet:
        os._exit(0)
    part = wire.decode(wire.carried(packet, descriptors))
    assert isinstance(part, dict)
    return part, descriptors


def _refuse(socket: "_socket.socket", message: "dict[str, object]") -> None:
    try:
        wire.send(socket, message)
    finally:
        os._exit(1)


def enter(groups: "list[int]", room: Room, *, confined: bool) -> None:
    """Enter the control groups of the box. 0 is the writer, and while it has one thread it moves without waiting for others."""
    for group in (*groups, *room.outside):
        try:
            os.write(group, b"0")
        except OSError as error:
            raise view.ViewError("enter a control group of", b"the box", error.errno or 0) from None
    for group in groups:
        os.close(group)
    if (groups or room.outside) and confined:
        kernel.unshare(kernel.CLONE_NEWCGROUP)  # the one that the box was made in shows the name of the group


def begin(beginning: "dict[str, Any]", trees: "list[int]") -> "tuple[list[bytes], list[int]]":
    """Become who the box is and build what does not depend on the rest of the plan, which is still being made.

    Returns what is handed out of a network with a way out: how it was made, then the names of sockets; and the sockets.
    """
    view.become(beginning["uid"], beginning["gid"], root_caller=bool(beginning["root_caller"]))
    view.loopback_up()
    made: tuple[list[bytes], list[int]] = [], []
    if "network" in beginning:
        from ringfence.guest import network  # loaded by the zygote, before the first box that has one

        made = network.make(beginning["network"])
    kernel.set_hostname(b"ringfence")
    view.begin(beginning["steps"], trees, beginning["scratch"])
    return made


def confine(plan: "dict[str, Any]", trees: "list[int]", bounds: "list[int]") -> "list[int]":
    """Build the rest of the view and give up every right, in the only order that works.

    Returns what is handed out: a descriptor of the private folders' file system, and the filter's listener where it has one.
    """
    scratch = view.finish(plan["steps"], trees, bounds, plan["added"], plan["runners"])
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.drop_capabilities()
    # Changing ids and capabilities resets both of these, so they come last; the filter then forbids to touch them.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    listener = kernel.install_observed(plan["filter"])
    return [scratch, listener] if listener >= 0 else [scratch]
