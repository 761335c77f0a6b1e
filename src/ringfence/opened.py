"""What a surface has of the box that it opens and closes: a world, once it is open, and what is asked of that without waiting."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ringfence import errors
from ringfence.outcome import REFUSED, Denial, Enforcement
from ringfence.policy.config import SandboxConfig
from ringfence.world.local import LocalWorld


class Opened:
    """What a surface has of the box that it opens and closes, alike on both. One that belongs to a loop checks that in `_open`."""

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config if config is not None else SandboxConfig()
        if not isinstance(self.config, SandboxConfig):
            raise TypeError(f"Sandbox takes a SandboxConfig, not {type(config).__name__}.")
        self._world: LocalWorld | None = None
        self._id: str | None = None

    @property
    def id(self) -> str | None:
        """The name by which Sandbox.get finds this box; None for one that was not made by Sandbox.create."""
        return self._id

    def _must_be_new(self) -> None:
        if self._world is not None:
            raise errors.SandboxClosedError("this Sandbox was opened before; a box is opened once.")

    def _open(self) -> LocalWorld:
        if self._world is None:
            raise errors.SandboxClosedError("the box is not open.")
        self._world.must_be_open()
        return self._world

    @property
    def workdir(self) -> str:
        """The workspace, as a path inside the box; the same path outside where it is a folder of the host."""
        return self._open().workdir

    @property
    def backend(self) -> str:
        """The mechanism that holds this box."""
        return self._open().prepared.backend

    @property
    def published(self) -> dict[int, str]:
        """Where programs outside reach the ports that network.publish names: `127.x.y.z:PORT`, an address of this box alone, or
        `unix:PATH`. Only the caller and root are let in."""
        world = self._open()
        return dict(world.published.places) if world.published else {}

    @property
    def enforcement(self) -> Enforcement:
        """What holds every run of this box, dimension by dimension."""
        return self._open().enforcement

    def planted(self) -> tuple[Denial, ...]:
        """What was planted in the folders that the box may write, since it was opened, for git outside to run.

        Denials of kind 'planted': nested repositories, bare repositories, gitlinks. Looks at all of these folders while the
        box is open; after its end it is what the last look of cleanup() knew. Not promised: who made it, the box or another
        program of the host; and what was there and gone again between two looks.
        """
        if self._world is None:
            raise errors.SandboxClosedError("the box is not open.")
        return self._world.planted()

    def denials(self) -> tuple[Denial, ...]:
        """Everything of the life of the box: what was observed, in order, told by results or not; then what results inferred.

        After the end of the box too, whose last look may find something.
        """
        if self._world is None:
            raise errors.SandboxClosedError("the box is not open.")
        return self._world.all_told()

    def apply_changes(self, keys: Sequence[str]) -> list[str]:
        """Take settings over into the host's files: those of keys that the last call of changes() offered.

        Also after the end of the box. Returns the paths of the files that were changed. Raises ArgumentError for a key that was not
        offered, HostError where a file is locked or cannot be written. Not promised: all or nothing over several files.
        """
        if isinstance(keys, (str, bytes)):
            raise TypeError("apply_changes() takes a list of keys.")
        changed = self._world.changed if self._world is not None else ()
        known = {key for change in changed for key, _ in change.offered}
        if missing := [key for key in keys if key not in known]:
            raise errors.ArgumentError(f"{missing[0]!r} was not offered.", hint="Name keys of changes()[n].offered.")
        from ringfence.confine.protected.harmless import take_over  # as in changes()

        done = []
        for change in changed:
            if chosen := [setting for setting in change.offered if setting[0] in keys]:
                take_over(change.path, chosen)
                done.append(change.path)
        return done

    def _refuse(self) -> None:
        """Raise PlantedError, once, for what the last look found and the policy refuses."""
        world = self._world
        refused = tuple(denial for denial in world.untold if denial.rule == REFUSED) if world is not None else ()
        if world is not None and refused:
            world.untold = ()
            raise errors.PlantedError(refused)

    def resolve_path(self, path: str | os.PathLike[str], *, write: bool = False) -> str:
        """The absolute path of a file that the box may read, or with write may write. Raises OutsideError for others."""
        return self._open().resolve_path(path, write=write)
