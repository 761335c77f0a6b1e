"""What this host delivers: each tier and cap, and what is missing, with the step that adds it. Found by doing it, then undone."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.confine import cgroups, probes
from ringfence.confine.host import Capability, State
from ringfence.errors import RingfenceError
from ringfence.outcome import Enforcement, Level
from ringfence.policy.config import BUILT_TIERS, TIERS, SandboxConfig, SandboxLimits
from ringfence.sync import Sandbox

DEFAULT = "namespaces"
"""The tier that 'auto' takes."""
PROGRAM = "import sys; print(sys.executable)"
NOT_BUILT = "known, and not built in this version"
WALLS = ("filesystem", "secrets", "protected", "network", "processes", "syscalls", "ids", "environment", "descriptors")
"""Dimensions of an enforcement that are no caps."""
ASKED = SandboxLimits(file_size_bytes=1 << 30)
"""A limit of each kind that this version has."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was found. tiers: by their names, the default first. caps: what a box of the first that works has of each.

    needs: what tiers and caps need, each with who needs it.
    """

    tiers: tuple[Capability, ...]
    caps: tuple[Capability, ...]
    needs: tuple[Capability, ...]

    @property
    def ready(self) -> bool:
        """Whether the default tier works: a box of it was made, and a program ran in it."""
        return self.tiers[0].state is State.DELIVERED

    def data(self) -> dict[str, object]:
        """Everything as plain values."""
        parts = {"tiers": self.tiers, "caps": self.caps, "needs": self.needs}
        return {"ready": self.ready, **{name: [_plain(each) for each in found] for name, found in parts.items()}}


def _plain(found: Capability) -> dict[str, object]:
    plain: dict[str, object] = {"name": found.name, "state": str(found.state), "cause": found.cause, "step": found.step}
    return plain | {"needed_by": list(found.needed_by)}


def host_facts() -> HostFacts:
    """Try everything that a tier or a cap needs, and each tier that is built, by a box and a program in it.

    Blocks for some tenths of a second, and forks this process for each try: for a program of one thread. Raises nothing for what
    is missing. Not promised: that it is the same later, or for another user.
    """
    needs = (*probes.capabilities(), *cgroups.capabilities())
    built = sorted((name for name in BUILT_TIERS if name != "auto"), key=lambda name: name != DEFAULT)
    tried = [_tier(name, needs) for name in built]
    caps = next((_caps(enforcement) for _, enforcement in tried if enforcement), ())
    others = [Capability(name, State.NOT_BUILT, NOT_BUILT) for name in TIERS if name not in BUILT_TIERS]
    return HostFacts((*(tier for tier, _ in tried), *others), caps, needs)


def _tier(name: str, needs: tuple[Capability, ...]) -> tuple[Capability, Enforcement | None]:
    """What is said of a tier, and what holds a box of it where one can be made."""
    try:
        with Sandbox(SandboxConfig(tier=name, limits=ASKED)) as box:
            result = box.execute(PROGRAM).raise_for_status()
            found = Capability(name, State.DELIVERED, f"a box was made, and {result.stdout.strip()} ran in it")
            return found, result.enforcement
    except RingfenceError as error:
        for each in needs:
            if name in each.needed_by and each.missing:
                return Capability(name, each.state, f"{each.name}: {each.cause}", each.step), None
        return Capability(name, State.FORBIDDEN, error.message, error.next_step), None


def _caps(enforcement: Enforcement) -> tuple[Capability, ...]:
    found = [(name, getattr(enforcement, name)) for name in Enforcement.__slots__ if name not in WALLS]
    return tuple(
        Capability(name, State.NOT_BUILT, NOT_BUILT) if held.level is Level.NONE else Capability(name, State.DELIVERED, str(held))
        for name, held in found
    )
