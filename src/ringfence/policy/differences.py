"""What differs between two configs, by the keys of a policy file, and which of the two allows more."""

from __future__ import annotations

from collections.abc import Iterator

from ringfence.errors import ConfigError
from ringfence.policy.compose import anchored, compose, differing, followed
from ringfence.policy.config import SandboxConfig
from ringfence.policy.keys import FIELDS, as_written, shown, value_of
from ringfence.values import frozen, replace


@frozen
class Difference:
    """One key with its values in both, as a file has them. change: 'narrower', 'wider' or 'other', from the first to the second."""

    key: str
    first: object
    second: object
    change: str


def differences(first: SandboxConfig, second: SandboxConfig) -> tuple[Difference, ...]:
    """Every key in which the two differ, in the order of a policy file. Where they were written is no difference."""
    one, two = (replace(followed(anchored(config)), policy_files=()) for config in (first, second))
    names = differing(one, two)
    return tuple(
        Difference(key, as_written(one, key), as_written(two, key), _change(one, two, name))
        for key, (name, _) in FIELDS.items()
        if name in names and not _alike(one, two, name)
    )


def _alike(one: SandboxConfig, two: SandboxConfig, name: str) -> bool:
    """Whether two values mean the same: the order of most lists means nothing."""
    a, b = value_of(one, name), value_of(two, name)
    if name == "limits.output_head_bytes":
        return one.limits.head_bytes == two.limits.head_bytes
    if name == "limits.on_breach":
        return one.limits.kills == two.limits.kills
    return name != "preload" and isinstance(a, tuple) and isinstance(b, tuple) and set(a) == set(b)


def _change(one: SandboxConfig, two: SandboxConfig, name: str) -> str:
    narrower, wider = _narrows(one, two, name), _narrows(two, one, name)
    return "narrower" if narrower and not wider else "wider" if wider and not narrower else "other"


def _narrows(parent: SandboxConfig, child: SandboxConfig, name: str) -> bool:
    if name in ("deny", "protect", "network_deny"):
        return set(value_of(parent, name)) <= set(value_of(child, name))
    if name == "permissions" and parent.permissions and not child.permissions:
        return False
    if name == "permissions" and not {*closing(parent)} <= {*closing(child)}:
        return False
    try:
        compose(parent, child, {name})
    except ConfigError:
        return False
    return True


def closing(config: SandboxConfig) -> list[str]:
    """The rules of a config that close something."""
    return [text for text in config.permissions if not text.startswith("allow ")]


def lines(found: tuple[Difference, ...]) -> Iterator[str]:
    """The differences to read: a key, what the second allows against the first, and both values."""
    for each in found:
        yield f"{each.key}: {each.change}"
        yield f"  - {shown(each.first)}"
        yield f"  + {shown(each.second)}"
