"""What a config asks for that this version has no mechanism for: all of it at once, each by its key and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringfence.errors import UnenforceableError
from ringfence.policy.config import UNBUILT, SandboxConfig, Unasked
from ringfence.policy.keys import FIELDS, KEY_OF, value_of
from ringfence.policy.network import without_password
from ringfence.values import frozen


@frozen
class Refusal:
    """A field that cannot be enforced: its name in a config, its key in a policy file; excused where best_effort names it."""

    field: str
    key: str
    value: object
    waits_for: str
    excused: bool

    @property
    def name(self) -> str:
        said = f"{self.key} {self.value}" if isinstance(self.value, str) else self.key
        return said if self.key == self.field else f"{said} ({self.field})"

    def __str__(self) -> str:
        return f"{self.name} cannot be enforced by this version: it waits for {self.waits_for}."


def refusals(config: SandboxConfig) -> tuple[Refusal, ...]:
    """Every field that asks for something and has no mechanism, in the order of a policy file; those that are excused too."""
    order = list(FIELDS)
    return tuple(sorted(_all(config), key=lambda refusal: order.index(refusal.key)))


def _all(config: SandboxConfig) -> Iterator[Refusal]:
    for name, (nothing, waits_for) in UNBUILT.items():
        value = value_of(config, name)
        if value in nothing or (not nothing and not value) or isinstance(value, Unasked):
            continue
        key = KEY_OF[name]
        yield Refusal(name, key, value, waits_for, is_excused(key, config.best_effort))
    if config.isolation in ("container", "microvm", "remote"):
        yield Refusal("isolation", "isolation", config.isolation, f"{config.isolation} tiers", False)
    floor = config.tier == "process" or config.isolation == "host"
    if floor and config.upstream_proxy != "none":
        yield Refusal("upstream_proxy", "network.upstream_proxy", without_password(config.upstream_proxy), ANOTHER, False)
    for name, opened, waits_for in FLOOR_HOLDS_NOTHING if floor else ():
        value = value_of(config, name)
        if value == opened if isinstance(opened, (str, bool)) else value:
            yield Refusal(name, KEY_OF[name], value, waits_for, is_excused(KEY_OF[name], config.best_effort))


ANOTHER = "another tier: 'process' confines nothing"
FLOOR_HOLDS_NOTHING = (
    ("mode", "read-only", ANOTHER),
    ("deny", (), ANOTHER),
    ("protect", (), ANOTHER),
    *((name, (), ANOTHER) for name in ("network_allow", "network_deny", "network_presets", "network_publish")),
    ("on_unknown_domain", "ask", ANOTHER),
    ("network_remember", (), ANOTHER),
)
"""What that tier has no mechanism for: the field, its value that asks for it (or any that is not empty), what it waits for."""


IDLE = "best_effort names {}, of which nothing is asked that is not enforced."


def is_limit(path: str) -> bool:
    """Whether a path of best_effort names a limit, or a map of limits, that the host is asked about."""
    named = [name for key, (name, _) in FIELDS.items() if is_excused(key, (path,))]
    return any(name.startswith("limits.") for name in named) and not any(name in UNBUILT for name in named)


def is_excused(key: str, best_effort: Sequence[str]) -> bool:
    """Whether best_effort names a key, or a map that it is in."""
    return any(key == path or key.startswith(f"{path}.") for path in best_effort)


def refuse(config: SandboxConfig) -> tuple[str, ...]:
    """Raise UnenforceableError that names every field which cannot be enforced; returns a note for each that is excused."""
    found = refusals(config)
    refused = [refusal for refusal in found if not refusal.excused]
    if refused:
        waiting: dict[str, list[str]] = {}
        for refusal in refused:
            waiting.setdefault(refusal.waits_for, []).append(refusal.name)
        said = "; ".join(f"{', '.join(names)} (waits for {what})" for what, names in waiting.items())
        raise UnenforceableError(
            f"this version cannot enforce {said}.",
            hint="Leave out what is named, or name its key in best_effort to go on without it.",
            refusals=tuple(refused),
        )
    notes = [f"{refusal.key} is not enforced, as best_effort allows: it waits for {refusal.waits_for}." for refusal in found]
    idle = [path for path in config.best_effort if not any(is_excused(refusal.key, (path,)) for refusal in found)]
    # What becomes of a limit is known when the host was asked.
    return (*notes, *(IDLE.format(path) for path in idle if not is_limit(path)))
