"""Commands whose exec never happened, and shells that say with a code that theirs did not."""

from __future__ import annotations

from truth.case import Case, Truth, fools

_FILES = {
    "noexec.sh": ("#!/bin/sh\n", 0o644),
    "missing.sh": ("#!/no/such/interpreter\n", 0o755),
    "garbage": (b"\0\1\2\3garbage", 0o755),
    "folder/x": ("x", 0o644),
    "broken": (b"\x7fELF" + bytes(60), 0o755),
    "fine": ("#!/bin/sh\necho 'bash: nope: command not found' >&2\nexit 127\n", 0o755),
}


def _not(argv: tuple[str, ...], reason: str, **more: object) -> Case:
    return Case(argv, Truth(f"not started: {reason}"), files=_FILES, **more)  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    _not(("nope",), "not found"),
    _not(("nope-no-such-command", "-x"), "not found"),
    _not(("./nope",), "not found"),
    _not(("/no/such/program",), "not found"),
    _not(("./folder/x/y",), "not found"),
    _not(("./noexec.sh",), "not executable"),
    _not(("./folder",), "is a directory"),
    _not(("/etc",), "is a directory"),
    _not(("./missing.sh",), "its interpreter is missing"),
    _not(("./garbage",), "not in a format that this machine runs"),
    _not(("./broken",), "not in a format that this machine runs"),
    _not(("true",), "the working directory cannot be entered", cwd="nowhere"),
    _not(("true",), "the working directory cannot be entered", cwd="fine"),
    fools("nope", "exited 127"),
    fools("./noexec.sh", "exited 126", files=_FILES),
    fools("sh -c ./missing.sh; exit $?", "exited 127", files=_FILES),
    fools("./folder", "exited 126", files=_FILES),
    fools("./nope || exit 0", "exited 0"),
    fools(("./fine",), "exited 127", files=_FILES),
    fools(("env", "nope"), "exited 127"),
    fools(("timeout", "1", "./noexec.sh"), "exited 126", files=_FILES),
    fools(("sh", "-c", "exec nope"), "exited 127"),
)
