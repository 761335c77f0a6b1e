"""Put protection back on a live box, from outside: a short-lived fork of the zygote that joins the box's mounts.

A program of the host that saves a file by a rename takes every mount off the old one, in all boxes, without an error. The
fork gets the box's namespaces as descriptors that were opened before the box could hide itself, and the steps of the plan
that are to be done again. It has every right over the box and no number in it, so nothing in the box can reach it.
"""

import _socket
import os
import signal

from ringfence.guest import kernel, protected, view, wire

CHANNEL = 3
READ_ONLY_INSTEAD = -1
"""The answer for a private copy that could not be mounted again: the host's file is, so that it cannot be written."""


def start(channel: int, user: int, mounts: int) -> None:
    """Never returns: answers on channel with one number for each step, 0 or READ_ONLY_INSTEAD or an errno."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        kept = [os.dup(descriptor) for descriptor in (channel, user, mounts)]
        for at, descriptor in enumerate(kept, CHANNEL):
            os.dup2(descriptor, at, inheritable=False)
        kernel.close_from(CHANNEL + len(kept))
        socket = _socket.socket(fileno=CHANNEL)
        packet, carriers = wire.receive(socket, 1)
        request = wire.decode(wire.carried(packet, carriers))
        assert isinstance(request, dict)
        steps = view.parse(request["steps"])
        kernel.join_namespace(CHANNEL + 1, kernel.CLONE_NEWUSER)
        kernel.join_namespace(CHANNEL + 2, kernel.CLONE_NEWNS)
        wire.send(socket, {"done": [_put_back(step) for step in steps]})
    finally:
        os._exit(0)


def _put_back(step: "list[bytes]") -> int:
    try:
        (view.cover_again if step[0] == b"cover" else protected.AGAIN[step[0]])(step, -1)
        return 0
    except OSError as error:
        number = error.errno or 5
    if step[0] not in (b"private-file", b"private-folder"):
        return number
    try:
        protected.ACTIONS[b"protect"](step, -1)
        return READ_ONLY_INSTEAD
    except OSError as error:
        return error.errno or 5
