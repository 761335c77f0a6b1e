"""The guest's side of the warden: it asks for the end of a run whose cap was met, and is told which process the template is."""

import _socket

from ringfence.guest import processes, wire

MOST_TOLD = 1000
"""Of the words that the warden hears from one box in its life (guest/warden/watched.py)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.guest.guest import Guest


class Watch:
    """One socket to the warden."""

    def __init__(self, guest: "Guest", socket: "_socket.socket") -> None:
        self.guest, self.socket = guest, socket
        socket.setblocking(False)
        self._contested = False
        self._told = 0

    def template(self, pid: int) -> None:
        """Say which child is the template: it is nobody's victim, and its children are first processes of runs."""
        self._say({"template": pid})

    def began(self, alone: bool) -> None:
        """A run has begun; say where it is not alone in the box, so that what the box spends is not all its own."""
        if not alone and not self._contested and self._told < MOST_TOLD:
            self._told += 1
            self._say({"contested": 1 if self._told < MOST_TOLD else 2})  # 2: it will be so from now on
        self._contested = not alone

    def _say(self, message: "dict[str, object]") -> None:
        try:
            wire.send(self.socket, message)
        except OSError:
            pass  # the warden is gone, and the zygote ends this box

    def hear(self) -> None:
        """End the runs that the warden names."""
        while True:
            try:
                packet, _ = wire.receive(self.socket, 0)
            except OSError:
                return
            if not packet:
                self.guest.poll.unregister(self.socket.fileno())
                return
            request = wire.decode(packet)
            assert isinstance(request, dict)
            self._end(request["run"], request["cause"])

    def _end(self, first: int, cause: bytes) -> None:
        guest = self.guest
        runs = guest.by_pid
        run = runs.get(first)
        if run is None and len(runs) == 1 and not (only := next(iter(runs.values()))).earlier:
            run = only  # a process that left its run's session: there is no other run that it can be of
        if run is not None and not run.cause:
            guest.end(run, cause)
        elif run is None:  # its first process has ended; the rest of its session goes
            others, spared = guest.sessions - {first}, {guest.programs.pid}
            processes.end(lambda: processes.of_run(first, 1 << 63, others, spared, set()), guest.reap)
