"""What may be mounted at all, whatever PATH or the table says."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ringfence.confine.toolchains import table
from ringfence.confine.toolchains.hostfiles import Place, Refused, inside, inside_any


def check(place: Place, homes: Sequence[str], writable: Sequence[str], *, entry: bool) -> None:
    """Raise Refused unless the folder or file `place` may be mounted read-only.

    `homes` are the names of the caller's home. `entry` says that it is itself a PATH entry; otherwise the message
    names it, since it is then something that an entry needs.
    """
    reason = _unfit(place.real, homes, writable, entry) or _unreadable(place.status)
    if reason:
        raise Refused(reason if entry else f"needs {place.real!r}, which {reason}")


def _unfit(real: str, homes: Sequence[str], writable: Sequence[str], entry: bool) -> str:
    if any(inside(home, real) for home in homes):
        return "is the home folder or contains it"
    if any(inside(root, real) or inside(real, root) for root in writable):
        return "contains a writable folder or lies in one"
    if real in table.USELESS:
        return table.USELESS[real]
    if real in table.BARE or os.path.dirname(real) in table.HOMES or inside_any(real, table.CLOSED):
        return "is no folder of one tool"
    for home in homes:
        below = real[len(home) :].lstrip("/") if inside(real, home) else ""
        if entry and below.startswith(".") and "/" not in below:
            return "is a whole dot folder of the home"
        for name in table.SECRET if below else ():
            if inside(below, name) or inside(name, below):
                return f"is, contains or lies in the home's {name!r}, which holds secrets"
    return ""


def _unreadable(status: os.stat_result) -> str:
    if status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH:
        return "is a shared folder that every user can write"
    # A box of root has another uid, and what only a group can read must not depend on the caller's groups.
    need = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
    owned = os.geteuid() == status.st_uid != 0 and (status.st_mode >> 6) & need == need
    return "" if owned or status.st_mode & need == need else "is not readable for the user that a box runs as"
