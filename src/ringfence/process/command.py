"""What a caller asks to be run, checked before anything is sent: an argv, its input, its folder, its time."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import cache

from ringfence.errors import ArgumentError
from ringfence.values import field, frozen

MAX_ARGUMENT = 128 * 1024 - 1
"""Bytes of one argument: MAX_ARG_STRLEN, 32 pages with the final NUL (linux/binfmts.h)."""


@frozen
class Command:
    """One thing to run. request holds the fields that differ between an argv, a script and a program."""

    shown: tuple[str, ...]
    request: Mapping[str, object]
    data: bytes | None = None
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None

    @property
    def text(self) -> str:
        """All of what was asked to be run, as text: the words, and the program where there is one."""
        program = self.request.get("code") or self.request.get("script") or b""
        assert isinstance(program, bytes)
        return "\n".join((*self.shown, program.decode("utf-8", "replace")))


def of_argv(argv: object) -> tuple[str, ...]:
    """argv as strings. Raises TypeError for one string, ArgumentError for what no execve takes."""
    if isinstance(argv, (str, bytes)):
        raise TypeError("run() takes a list of arguments; for a shell line use execute_command(command).")
    if not isinstance(argv, Sequence) or not argv:
        raise ArgumentError(f"argv must be a list of at least one argument, not {argv!r}.")
    words = []
    for word in argv:
        if not isinstance(word, (str, bytes, os.PathLike)):
            raise ArgumentError(f"argv holds {word!r}, which is not a string or a path.")
        words.append(checked_text(os.fsdecode(word), "argv"))
    sizes = [len(os.fsencode(word)) + 1 for word in words]
    if max(sizes) > MAX_ARGUMENT:
        raise ArgumentError(f"argv holds an argument of {max(sizes)} bytes; the kernel takes {MAX_ARGUMENT}.")
    most = _most_bytes()
    if sum(sizes) + 8 * len(words) > most:
        raise ArgumentError(f"argv has {sum(sizes)} bytes; the kernel takes {most} with the environment (ARG_MAX).")
    if not words[0]:
        raise ArgumentError("argv begins with an empty string, which names no program.")
    return tuple(words)


@cache
def _most_bytes() -> int:
    return os.sysconf("SC_ARG_MAX")


def checked_text(value: object, what: str) -> str:
    """value as a string without NUL."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what} must be a string, not {type(value).__name__}.")
    if "\0" in value:
        raise ArgumentError(f"{what} holds a NUL byte, which no argument or path can carry.")
    return value


def checked_timeout(timeout: object) -> float | None:
    """timeout in seconds, or None. Raises ArgumentError unless it is a positive, finite number."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise ArgumentError(f"timeout must be a number of seconds, not {timeout!r}.")
    if not math.isfinite(timeout) or timeout <= 0:
        raise ArgumentError(f"timeout must be positive and finite, not {timeout!r}.")
    return float(timeout)


def as_bytes(data: object, what: str) -> bytes | None:
    """Input for a command: bytes as they are, text as UTF-8."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise ArgumentError(f"{what} must be text or bytes, not {type(data).__name__}.")
