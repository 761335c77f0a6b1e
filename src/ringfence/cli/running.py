"""What the commands of the command line share: options, streams, and the exit status that a shell would show."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import CommandError, RingfenceError

if TYPE_CHECKING:
    from ringfence.outcome import Result
    from ringfence.policy.config import SandboxConfig

KEPT_BYTES = 2
"""Output is passed on as it comes; the result keeps next to nothing of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="FILE", action="append", help="a policy file; a further one can only take away")
    parser.add_argument("--workspace", metavar="DIR", help="the folder that the box may write (default: this one)")
    parser.add_argument("--tier", metavar="T", help="the boundary, by name (default: the strongest there is)")
    parser.add_argument("--timeout", metavar="S", type=float, help="seconds until the command is ended (default: 120)")


def config(given: argparse.Namespace) -> SandboxConfig:
    """The config of the options. --timeout may be longer than the default limit: on a command line it is the limit."""
    from ringfence.policy.config import SandboxConfig, SandboxLimits

    limits = SandboxLimits(output_bytes=KEPT_BYTES, **({"wall_seconds": given.timeout} if given.timeout is not None else {}))
    if given.policy:
        from ringfence.policy.load import load_config  # with it come a YAML reader and a schema

        said = {"workspace": given.workspace, "tier": given.tier, "limits.wall_seconds": given.timeout}
        return load_config(
            given.policy, SandboxConfig(workspace=given.workspace or ".", tier=given.tier or "auto", limits=limits), said
        )
    return SandboxConfig(workspace=given.workspace or ".", tier=given.tier or "auto", limits=limits)


def caller_input() -> bytes | None:
    """What the caller pipes or redirects to us, read whole; nothing where standard input is a terminal, a device or closed."""
    try:
        mode = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
            return None
        return sys.stdin.buffer.read()
    except (OSError, AttributeError, ValueError):
        return None


def writer(descriptor: int) -> Callable[[bytes], None]:
    """A callback that passes output on at once; a reader that is gone ends us as it would end the command."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    return write


def status_of(result: Result) -> int:
    """The exit status of a result, with one line on standard error where the command did not simply exit."""
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return 128 + result.signal
    try:
        result.raise_for_status()
    except CommandError as error:
        print(f"ringfence: {error}", file=sys.stderr)
        return error.exit_status
    raise RingfenceError("a result that is neither ok nor an error.")
