"""What this host delivers: each tier and cap, and what is missing, with the step that adds it. Found by doing it, then undone."""

from __future__ import annotations

from collections.abc import Iterable

from ringfence.confine import cgroups, probes
from ringfence.confine.host import Capability, State
from ringfence.errors import RingfenceError
from ringfence.explanation import explain
from ringfence.outcome import Level
from ringfence.policy.config import BUILT_TIERS, TIERS, UNBUILT, SandboxConfig, SandboxLimits
from ringfence.sync import Sandbox
from ringfence.values import frozen

DEFAULT = "namespaces"
"""The tier that 'auto' takes."""
PROGRAM = "import sys; print(sys.executable)"
NOT_BUILT = "known, and not built in this version"
CAPS: dict[str, tuple[str, float]] = {
    "wall": ("wall_seconds", 120), "cpu": ("cpu_seconds", 60), "cpu_share": ("cpu_limit", 1), "guaranteed": ("cpu_guaranteed", 1),
    "lifetime": ("lifetime_seconds", 3600), "idle": ("idle_seconds", 3600), "memory": ("memory_bytes", 1 << 30),
    "max_processes": ("max_processes", 512), "open_files": ("open_files", 256), "file_size": ("file_size_bytes", 1 << 30),
    "disk": ("disk_bytes", 1 << 30), "inodes": ("inodes", 100_000), "output": ("output_bytes", 1 << 20),
}  # fmt: skip
"""Each cap that an enforcement has, with the limit that asks for it and a value to ask for."""


@frozen
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
    others = [Capability(name, State.NOT_BUILT, NOT_BUILT) for name in TIERS if name not in BUILT_TIERS]
    works = next((tier.name for tier in tried if not tier.missing), "")
    return HostFacts((*tried, *others), tuple(_cap(name, works, needs) for name in CAPS) if works else (), needs)


def _tier(name: str, needs: tuple[Capability, ...]) -> Capability:
    try:
        with Sandbox(SandboxConfig(tier=name)) as box:
            program = box.execute(PROGRAM).raise_for_status().stdout.strip()
            return Capability(name, State.DELIVERED, f"a box was made, and {program} ran in it")
    except RingfenceError as error:
        return _refused(name, error, (each for each in needs if name in each.needed_by))


def _cap(name: str, tier: str, needs: tuple[Capability, ...]) -> Capability:
    """What a box of a tier that works would have of a cap, were it asked for."""
    limit, value = CAPS[name]
    if f"limits.{limit}" in UNBUILT:
        return Capability(name, State.NOT_BUILT, NOT_BUILT)
    try:
        held = getattr(explain(SandboxConfig(tier=tier, limits=SandboxLimits(**{limit: value}))).enforcement, name)  # type: ignore[arg-type]
    except RingfenceError as error:
        return _refused(name, error, (each for each in needs if name in each.needed_by))
    if held.level is Level.FULL:
        return Capability(name, State.DELIVERED, str(held))
    # What holds a part of it, or nothing: with the first thing that is missing there might be more.
    missing = next((each for each in needs if name in each.needed_by and each.missing), None)
    more = f"; not by {missing.name}: {missing.cause}" if missing else ""
    state = State.ABSENT if held.level is Level.NONE else State.DELIVERED
    return Capability(name, state, f"{held}{more}", missing.step if missing else "")


def _refused(name: str, error: RingfenceError, needs: Iterable[Capability]) -> Capability:
    """Why something is not delivered: what it needs and is missing, or else what the attempt said."""
    for each in needs:
        if each.missing:
            return Capability(name, each.state, f"{each.name}: {each.cause}", each.step)
    return Capability(name, State.FORBIDDEN, error.message, error.next_step)
