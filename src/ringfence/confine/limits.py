"""The caps of a local box: what the kernel is told, which mechanism holds each cap here, and what is refused because none does.

A mechanism is a file of its own that makes an offer: for each cap that it is about, how far it holds it on this host, found by
using it, or why it cannot. Offers are asked in order, the best first, and what every box has of itself comes last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, TypeAlias

from ringfence.errors import UnenforceableError
from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.policy.config import SHARES, UNBUILT, SandboxLimits
from ringfence.policy.resolve import ResolvedPolicy

if TYPE_CHECKING:
    from ringfence.confine.processors import Processors

CAPS: Mapping[str, str] = {
    "cpu": "cpu_seconds",
    "memory": "memory_bytes",
    "max_processes": "max_processes",
    "open_files": "open_files",
    "file_size": "file_size_bytes",
    "disk": "disk_bytes",
    "inodes": "inodes",
    "cpu_share": "cpu_limit",
}
"""The caps that need a mechanism, by their names in an enforcement, and the limit that asks for each."""


MONITOR = "monitor"


class Lacking:
    """Why a mechanism cannot hold a cap here, and the step that changes it."""

    __slots__ = ("cause", "step")

    def __init__(self, cause: str, step: str = "") -> None:
        self.cause, self.step = cause, step


Offer: TypeAlias = Mapping[str, Enforced | Lacking]
"""What one mechanism says of caps, by their names in an enforcement."""


def rlimits(policy: ResolvedPolicy, *, floor: bool = False) -> dict[str, int]:
    """The limits that the kernel checks for each process (getrlimit(2)); CPU seconds are whole, rounded up.

    floor: every folder of the box is one of the host.
    """
    limits = policy.limits
    wanted = {
        "cpu": -(-limits.cpu_seconds // 1) if limits.cpu_seconds is not None else None,
        "open_files": limits.open_files,
        "file_size": largest_file(policy, floor=floor),
    }
    return {name: int(value) for name, value in wanted.items() if value is not None}


def largest_file(policy: ResolvedPolicy, *, floor: bool = False) -> int | None:
    """Bytes of the largest file: the cap on it, or that on the disk where files go into a folder of the host.

    There nothing but this stops one call from taking more than the whole box may, as fallocate(2) does at once.
    """
    caps = [policy.limits.file_size_bytes]
    if floor or policy.shared:
        caps.append(policy.limits.disk_bytes)
    return min((cap for cap in caps if cap is not None), default=None)


def watchers(policy: ResolvedPolicy) -> dict[str, Mapping[str, object]]:
    """Who of the warden watches a box of this policy, by name, with its settings."""
    wanted: dict[str, Mapping[str, object]] = {}
    if policy.limits.memory_bytes is not None:
        wanted["memory"] = {"limit": policy.limits.memory_bytes}
    if policy.limits.cpu_seconds is not None:
        wanted["cpu"] = {"limit": round(policy.limits.cpu_seconds * 1e6)}
    if policy.limits.open_files is not None:
        wanted["reached"] = {"open_files": policy.limits.open_files, "processes": 0, "by": MONITOR}
    return wanted


def asked_for(policy: ResolvedPolicy) -> bool:
    """Whether a limit of single processes differs from its default; then commands start by the slower, exact way."""
    default = SandboxLimits()
    names = ("cpu_seconds", "open_files", "file_size_bytes")
    return any(getattr(policy.limits, name) not in (None, getattr(default, name)) for name in names)


def processors_of(policy: ResolvedPolicy) -> Processors | None:
    """The processors that a box of this policy runs on, taken until they are released; None where it has no cap of cores."""
    if policy.limits.cpu_limit is None:
        return None
    from ringfence.confine.processors import Processors  # few boxes have one

    return Processors(policy.limits.cpu_limit)


def asks_of_host(limits: SandboxLimits) -> bool:
    """Whether a limit is to be held against what the host has: a share of it, or a ceiling above it."""
    if limits.cpu_guaranteed is not None or limits.memory_guaranteed_bytes is not None:
        return True
    if (limits.cpu_limit or 0) > (os.cpu_count() or 0):
        return True
    return (limits.memory_bytes or 0) > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def limits_enforced(policy: ResolvedPolicy, *offers: Offer, observed: Set[str] = frozenset()) -> dict[str, Enforced]:
    """Each cap that is held, with its mechanism: the first of the offers, then what every box has.

    A cap that was asked for and that nothing holds is none with its cause where best_effort names it; else raises
    UnenforceableError for all of them. An offer may hold what nobody asked for.
    observed: the refusing caps of which something outside of the box sees that they are met; only these can end a run.
    """
    held: dict[str, Enforced] = {}
    lacking: dict[str, list[Lacking]] = {}
    for offer in (*offers, _everywhere(policy)):
        for cap, said in offer.items():
            if isinstance(said, Enforced):
                held.setdefault(cap, said)
            else:
                lacking.setdefault(cap, []).append(said)
    refused: dict[str, list[Lacking]] = {}
    for cap, limit in CAPS.items():
        value = getattr(policy.limits, limit)
        if value is None or cap in held:
            continue
        causes = lacking.get(cap) or [Lacking("not built in this version")]
        excused = policy.best_effort and _is_excused(limit, policy.best_effort)
        if not excused:
            refused[limit] = causes
        why = "; ".join(each.cause for each in causes)
        held[cap] = Enforced(Level.NONE, "", f"{why}; best_effort goes without it" if excused else why)
    if refused:
        raise _error(refused, policy)
    if unseen := policy.limits.kills - observed:
        _refuse_to_end(unseen, policy)
    return held


def notes(policy: ResolvedPolicy, enforcement: Enforcement) -> tuple[str, ...]:
    """What best_effort did: a note for each cap that the box goes without, and for what was named in vain."""
    if not policy.best_effort:
        return ()
    from ringfence.policy.keys import KEY_OF
    from ringfence.policy.unbuilt import IDLE, is_excused, is_limit

    without = {
        KEY_OF[f"limits.{limit}"]: getattr(enforcement, cap).note.partition(";")[0]
        for cap, limit in CAPS.items()
        if f"limits.{limit}" not in UNBUILT
        and getattr(policy.limits, limit) is not None
        and getattr(enforcement, cap).level is Level.NONE
    }
    said = [
        f"{key} is not enforced, as best_effort allows: {cause}."
        for key, cause in without.items()
        if is_excused(key, policy.best_effort)
    ]
    shares = {KEY_OF[f"limits.{share}"] for share, _ in SHARES if getattr(policy.limits, share) is not None}
    used = without.keys() | shares  # what becomes of these is noted where they are taken
    idle = [path for path in policy.best_effort if is_limit(path) and not any(is_excused(key, (path,)) for key in used)]
    return (*said, *(IDLE.format(path) for path in idle))


def _everywhere(policy: ResolvedPolicy) -> dict[str, Enforced]:
    """What every local box has alike."""
    limits = policy.limits
    enforced = {"output": Enforced(Level.FULL, "bounded reading")}
    if limits.wall_seconds is not None:
        enforced["wall"] = Enforced(Level.FULL, "timer outside the box")
    if limits.cpu_seconds is not None:
        unseen = "of the whole tree but for processes that nobody waited for; each process alone by rlimit"
        enforced["cpu"] = Enforced(Level.PARTIAL, MONITOR, unseen)
    if limits.open_files is not None:
        exact = Enforced(Level.FULL, "rlimit", "for each process")
        late = Enforced(Level.PARTIAL, "rlimit", "for each process; hard only a moment after it began, as for every default")
        enforced["open_files"] = exact if asked_for(policy) else late
    if limits.file_size_bytes is not None:
        enforced["file_size"] = Enforced(Level.FULL, "rlimit", "for each process")
    if limits.memory_bytes is not None:
        seen = "by looking, at the latest after 0.4 s; not counted are data in sockets and SysV memory that is not attached"
        enforced["memory"] = Enforced(Level.PARTIAL, MONITOR, seen)
    for dimension, seconds in (("lifetime", limits.lifetime_seconds), ("idle", limits.idle_seconds)):
        if seconds is not None:
            enforced[dimension] = Enforced(Level.FULL, "timer outside the box")
    return enforced


def _is_excused(limit: str, best_effort: Iterable[str]) -> bool:
    from ringfence.policy.keys import KEY_OF  # only where something is not held
    from ringfence.policy.unbuilt import is_excused

    return is_excused(KEY_OF[f"limits.{limit}"], tuple(best_effort))


def _refuse_to_end(caps: Set[str], policy: ResolvedPolicy) -> None:
    """Raise for caps that on_breach lets end a run, and whose breach nothing here sees, unless best_effort names them."""
    from ringfence.policy.unbuilt import Refusal, is_excused

    key = "resources.on_breach"
    if is_excused(key, tuple(policy.best_effort)):
        return
    cause = "nothing outside of the box sees that it is met"
    raise UnenforceableError(
        f"on_breach: kill cannot be enforced here for {', '.join(sorted(caps))}: {cause}.",
        hint=f"Leave it at refuse, where the call fails, or name {key} in best_effort.",
        refusals=(Refusal("limits.on_breach", key, dict(policy.limits.on_breach), cause, False),),
    )


def _error(refused: Mapping[str, list[Lacking]], policy: ResolvedPolicy) -> UnenforceableError:
    from ringfence.policy.keys import KEY_OF
    from ringfence.policy.unbuilt import Refusal

    said = "; ".join(f"limits.{limit} ({', '.join(each.cause for each in causes)})" for limit, causes in refused.items())
    keys = [KEY_OF[f"limits.{limit}"] for limit in refused]
    steps = [each.step for causes in refused.values() for each in causes if each.step]
    hint = "".join(f"{step}. " for step in dict.fromkeys(steps))
    return UnenforceableError(
        f"this host cannot enforce {said}.",
        hint=f"{hint}Or name {', '.join(keys)} in best_effort to go on without.",
        refusals=tuple(
            Refusal(f"limits.{limit}", key, getattr(policy.limits, limit), "; ".join(each.cause for each in refused[limit]), False)
            for limit, key in zip(refused, keys, strict=True)
        ),
    )
