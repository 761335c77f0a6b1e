"""Where ringfence keeps what outlives a process, and why no box ever has it: a record that a box can write proves nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ringfence.errors import WorkspaceError

VARIABLE = "RINGFENCE_STATE_DIR"

_kept_closed: set[str] = set()


def folder(environment: Mapping[str, str] | None = None) -> str:
    """The state folder: RINGFENCE_STATE_DIR, else ringfence in XDG_STATE_HOME, else ~/.local/state/ringfence.

    Values that are not absolute paths say nothing, as the XDG Base Directory Specification has it. It need not exist.
    """
    environment = os.environ if environment is None else environment
    if os.path.isabs(own := environment.get(VARIABLE, "")):
        return os.path.normpath(own)
    home = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.local/state")
    return os.path.normpath(f"{home}/ringfence")


def keep_closed(path: str) -> None:
    """From now on no box of this process has path: a folder or file beside those of the state folder."""
    _kept_closed.add(os.path.abspath(path))


def closed() -> tuple[str, ...]:
    """What no box may have, whether it is there already or not."""
    return (folder(), *sorted(_kept_closed))


def refused(path: str) -> str:
    """What is closed and is path, holds it or lies in it, by real paths; '' where nothing is and does.

    Raises WorkspaceError where path is changed meanwhile.
    """
    try:
        real = os.path.realpath(path)
    except OSError as error:  # what was a link is none any more when it is read
        raise WorkspaceError(f"{path} changed while it was looked at: {error.strerror}.", hint="Try again.") from None
    for each in closed():
        there = os.path.realpath(each)
        if real == there or real.startswith(f"{there}/") or there.startswith(f"{real.rstrip('/')}/"):
            return each
    return ""
