"""Whether a box gets what it is guaranteed: at once, after a wait with a deadline and a visible reason, or not at all."""

from __future__ import annotations

import logging
import os
import time

from ringfence.errors import AdmissionError, HostError
from ringfence.policy.inotify import IN_DELETE, IN_DELETE_SELF, IN_ONLYDIR, Inotify
from ringfence.process.wait import Readable, Waits
from ringfence.world.register import Bounds, Share, Short, amount, opened, take

IN_CLOSE_WRITE = 0x8  # sys/inotify.h: what a holder that was killed leaves behind is closed, and not removed
LEAVES = IN_CLOSE_WRITE | IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR
AT_LEAST_SECONDS = 1.0
"""How often is looked without being told."""
SOON_SECONDS = 0.02
"""When is looked again where the register was just being read, or a lock is dropped a moment after its file is closed."""
READING_SECONDS = 5.0
"""How long another process may keep the register to itself."""


def admitted(cores: float, memory: int, bounds: Bounds, seconds: float) -> Waits[tuple[Share, str]]:
    """A share for a box, and a note where it was waited for.

    Raises AdmissionError when seconds are over, HostError where the register cannot be used. Not promised: an order among those
    who wait.
    """
    began = time.monotonic()
    got = take(cores, memory, bounds)
    if isinstance(got, Share):
        return got, ""
    news = _News()
    told = False
    try:
        while True:
            news.watch()  # before the look, or what leaves in between would be missed
            got = take(cores, memory, bounds)
            now = time.monotonic()
            if isinstance(got, Share):
                return (
                    got,
                    f"The box waited {now - began:.1f} s for the {amount(cores, memory)} that it is guaranteed." if told else "",
                )
            if isinstance(got, Short) and now - began >= seconds:
                raise _refused(got, cores, memory, now - began)
            if got is None and now - began >= max(seconds, READING_SECONDS):
                raise HostError("the register of guaranteed shares is kept by a process that does not go on.", hint="Try again.")
            if isinstance(got, Short) and not told:
                told = True
                _tell(got, cores, memory, seconds)
            pause = AT_LEAST_SECONDS if isinstance(got, Short) and not news.came else SOON_SECONDS
            until = now + pause if got is None else min(now + pause, began + seconds)
            news.came = yield Readable(news.descriptor, until)
    finally:
        news.close()


class _News:
    """Readable when a holder left the register; where the kernel has no queue to give, only the clock says when to look."""

    def __init__(self) -> None:
        self.came = False
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
            self.descriptor = self._inotify.descriptor
        except OSError:
            self.descriptor = os.eventfd(0, os.EFD_CLOEXEC)

    def watch(self) -> None:
        """Watch the folder that is there now, and forget what has been told."""
        if self._inotify is None:
            return
        for _ in self._inotify.events():
            pass
        folder = opened()
        try:
            self._inotify.watch(folder, LEAVES)
        except OSError:
            pass  # no watch is left: as without a queue
        finally:
            os.close(folder)

    def close(self) -> None:
        os.close(self.descriptor)


def _said(short: Short, cores: float, memory: int) -> str:
    held = "; ".join(map(str, short.holders))
    return f"{amount(cores, memory)} cannot be guaranteed now: {short.bound} has {short.has}, of which boxes hold: {held}"


def _tell(short: Short, cores: float, memory: int, seconds: float) -> None:
    # A program that configures no logging has this on its standard error.
    said = f"ringfence: a box waits, for up to {seconds:g} s: {_said(short, cores, memory)}."
    logging.getLogger("ringfence").warning("%s", said)


def _refused(short: Short, cores: float, memory: int, waited: float) -> AdmissionError:
    after = f" after {waited:.1f} s" if waited >= 0.1 else ""
    return AdmissionError(f"no box was made{after}: {_said(short, cores, memory)}.", holders=short.holders)
