"""Whether the private folders of a box are full, as their file system says, which nothing in the box can write."""

from __future__ import annotations

import os

from ringfence.outcome import CapHit, CapKind, Denial, NotStarted, Outcome, Reason
from ringfence.policy.config import SandboxLimits

GIB = 1 << 30
BY = "tmpfs"
KINDS: tuple[CapKind, ...] = ("disk", "inodes")


class Space:
    """The private folders of one box, looked at when a run has ended. most: the bytes that they may hold whatever was asked."""

    def __init__(self, scratch: int, limits: SandboxLimits, most: int) -> None:
        self._scratch, self._limits, self._most = scratch, limits, most
        self._full: set[CapKind] = set()
        self.new: set[CapKind] = set()  # caps that were reached in the last run

    def after_run(self, outcome: Outcome, known: set[str]) -> tuple[Outcome, tuple[Denial, ...]]:
        """The outcome, and a denial for each cap that was reached since the last look. known: those that were told already.

        Not promised: one that was reached and left again before the end.
        """
        found = os.fstatvfs(self._scratch)
        full = {kind for kind, left in zip(KINDS, (found.f_bfree, found.f_ffree), strict=True) if not left}
        self.new = full - self._full
        self._full = full
        if not full:
            return outcome, ()
        new = full if isinstance(outcome, NotStarted) and outcome.reason is Reason.NO_SPACE else self.new
        sizes = {"disk": found.f_blocks * found.f_frsize, "inodes": found.f_files}
        for kind in sorted(new):
            if kind in self._limits.kills and not isinstance(outcome, CapHit):
                limit = self._asked(kind, sizes[kind]) or sizes[kind]
                outcome = CapHit(kind, limit, limit, BY)
        told = known | ({outcome.kind} if isinstance(outcome, CapHit) else set())
        return outcome, tuple(self._denial(kind, sizes[kind]) for kind in sorted(new - told))

    def _asked(self, kind: CapKind, size: int) -> int | None:
        """The cap that bounds them; the size holds what was there when the box began too. None where nothing was asked."""
        asked = self._limits.disk_bytes if kind == "disk" else self._limits.inodes
        return asked if asked is not None and asked <= size and (kind == "inodes" or size < self._most) else None

    def _denial(self, kind: CapKind, size: int) -> Denial:
        asked = self._asked(kind, size)
        detail = f"the private folders are full: {asked or size} {'bytes' if kind == 'disk' else 'files'}"
        key, limit = ("resources.disk_gib", (asked or 0) / GIB) if kind == "disk" else ("resources.inodes", asked or 0)
        if asked is None:
            memory = self._limits.memory_bytes
            if kind != "disk" or memory is None or memory // 2 > size:
                return Denial("cap", kind, "the private folders' own bound", "observed", None, detail)
            key, limit = "resources.memory_gib.limit", memory / GIB
        return Denial("cap", kind, f"{key}: {limit:g}", "observed", f"{key}: {2 * limit:g}", detail)
