"""Open boxes by name, within this process: one part of a program makes a box, another finds it.

A name is taken for as long as its box is open. A box of an event loop that is over, and at the latest when the process exits every
box, is ended here where nobody did it.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ringfence.errors import ArgumentError, SandboxExistsError, SandboxNotFoundError
from ringfence.process.wait import Waits, blocking

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class World(Protocol):
    """What is open, and closed once."""

    closed: bool

    def close(self) -> Waits[None]: ...


class Box(Protocol):
    """A surface's object for it."""

    @property
    def _world(self) -> World | None: ...


Face = TypeVar("Face", bound=Box)


class Named:
    """A box that has a name."""

    def __init__(self, box: Box, world: World, loop: object) -> None:
        self.box, self.world = box, world
        # The loop holds its token and nothing here does: when it is over, the token goes.
        self.loop = weakref.finalize(loop, _end, world, os.getpid()) if loop is not None else None
        if self.loop is not None:
            self.loop.atexit = False  # _end_all does it, before the process that makes boxes is ended


_boxes: dict[str, Named] = {}
_making: set[str] = set()
_lock = threading.RLock()  # a finalizer can run at any moment, in the thread that holds it too


@contextmanager
def making(name: object, box: Box, loop: object = None) -> Iterator[None]:
    """Around the opening of box. Raises ArgumentError for what is no name, SandboxExistsError while it is taken."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ArgumentError(
            f"id must be a name of letters, digits, '.', '_' and '-', at most 64, not {name!r}.", hint="Choose another id."
        )
    with _lock:
        if name in _making or _is_taken(name):
            raise SandboxExistsError(f"a box with the id {name!r} is open in this process.")
        _making.add(name)
    try:
        yield
        assert box._world is not None
        with _lock:
            _boxes[name] = Named(box, box._world, loop)
    finally:
        _making.discard(name)


def find(name: object, face: type[Face]) -> Face:
    """The open box of that name. Raises SandboxNotFoundError."""
    with _lock:
        box = _open(name)
    if box is None:
        raise SandboxNotFoundError(f"no box with the id {name!r} is open in this process.")
    if not isinstance(box, face):
        raise SandboxNotFoundError(
            f"the box with the id {name!r} was opened by {type(box).__module__}.{type(box).__qualname__}.",
            hint="Use the surface that opened it: one of them belongs to an event loop, the other to none.",
        )
    return box


def _is_taken(name: str) -> bool:
    if _open(name) is not None:
        gc.collect()  # its loop may be over, and not collected yet
    return _open(name) is not None


def _open(name: object) -> Box | None:
    """The box of a name that is open; those that are closed are forgotten."""
    for each in [each for each, named in _boxes.items() if named.world.closed]:
        closed = _boxes.pop(each)
        if closed.loop is not None:
            closed.loop.detach()
    found = _boxes.get(name)  # type: ignore[call-overload]  # as above
    return found.box if found else None


def _end(world: World, process: int) -> None:
    if process == os.getpid():  # in a fork of the caller the box is not ours
        blocking(world.close())


def _end_all() -> None:
    while _boxes:
        _end(_boxes.popitem()[1].world, os.getpid())


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    for named in _boxes.values():
        if named.loop is not None:
            named.loop.detach()
    _boxes.clear()
    _making.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_end_all)
