"""Configs compose by narrowing: a child takes away from what its parent allows and never adds.

The result allows what both allow. What a child would add is an error that names each key, never silently left out, so that whoever
wrote the child learns of it. Lists that close (deny, protect) are joined. A child speaks about the fields that it names; the
others are its parent's. The built-in lists of secrets and protected settings are in no config, so no child can shorten them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ringfence.errors import ConfigError, WideningError
from ringfence.policy.config import CEILING_OF_GUARANTEED, LEVELS, SHARES, SandboxConfig, SandboxLimits
from ringfence.policy.keys import KEY_OF, as_written, shown, value_of
from ringfence.policy.patterns import escaped, within
from ringfence.policy.resolve import EPHEMERAL, absolute_pattern
from ringfence.values import fields, replace

Rule = Callable[[Any, Any], bool]
"""Whether the second value, a child's, opens nothing that the first, its parent's, closes."""

NOTHING, READ, WRITE = 0, 1, 2


def _up_to(*order: str) -> Rule:
    return lambda parent, child: order.index(child) <= order.index(parent)


def _at_least(*order: str) -> Rule:
    return lambda parent, child: order.index(child) >= order.index(parent)


def _part_of(parent: Collection[object], child: Collection[object]) -> bool:
    return all(entry in parent for entry in child)


def _no_more(parent: float | None, child: float | None) -> bool:
    """A limit; None is none."""
    return parent is None or (child is not None and child <= parent)


def _no_more_granted(parent: float | None, child: float | None) -> bool:
    """What is guaranteed; None is nothing."""
    return child is None or (parent is not None and child <= parent)


def _same(parent: object, child: object) -> bool:
    return parent == child


def _kills_too(parent: Mapping[str, str], child: Mapping[str, str]) -> bool:
    """What a breach of each cap does; a cap that the child does not name keeps its parent's."""
    return all(child.get(cap, effect) == effect for cap, effect in parent.items() if effect == "kill")


def _same_or(*narrow: object) -> Rule:
    return lambda parent, child: child in narrow or parent == child


RULES: dict[str, Rule] = {
    "mode": _up_to("read-only", "workspace-write", "danger-full-access"),
    "on_planted": lambda parent, child: parent in ("report", child),
    "environment": lambda parent, child: _part_of(parent.items(), child.items()),
    "pass_environment": _part_of,
    "allow_network": _same_or(False),
    "network_deny": lambda parent, child: True,
    "network_publish": _part_of,
    "upstream_proxy": _same,  # another way out is neither more nor less
    "private_addresses": _same_or(False),
    "network_range": lambda parent, child: True,  # what names are called inside
    "on_unknown_domain": _same_or("deny"),
    "network_remember": _same_or(None),  # what is in it opens hosts
    "egress_proxy": _same_or(False),
    "credentials_git": _same_or("none"),
    "credentials_tools": _same_or("none"),
    "python": _same,
    "preload": _part_of,
    "syscalls": _part_of,
    "devices": _part_of,
    "image": _same,
    "fresh_per_task": _same_or(True),
    "snapshot_on_exit": _same_or(False),
    "permissions": lambda parent, child: _adds_nothing(parent, child),
    "escalation": _same_or("none"),
    "trace": _at_least("none", "best-effort", "required"),
    "trace_durability": _at_least("process", "power"),
    "best_effort": _part_of,
    "deny": lambda parent, child: True,
    "protect": lambda parent, child: True,
    "policy_files": lambda parent, child: True,
    "admission_seconds": lambda parent, child: True,  # how long is waited before there is a box
    "walk_entries": lambda parent, child: True,  # how long is looked for what is closed; too short is a refusal
    "limits.output_head_bytes": lambda parent, child: True,  # how a bounded number of bytes is divided
    **{
        f"limits.{entry.name}": _no_more_granted if "guaranteed" in entry.name else _no_more
        for entry in fields(SandboxLimits)
        if entry.name not in ("output_head_bytes", "on_breach")
    },
    "limits.on_breach": _kills_too,
}
"""Every field but those of files, which are judged by what each path may be used for, and those of tiers, judged as a set."""

FILES = ("workspace", "read_only", "writable", "mode")
TIERS = ("tier", "isolation", "minimum")
REACHED = ("network_allow", "network_presets")


def compose(parent: SandboxConfig, child: SandboxConfig, said: Collection[str] | None = None) -> SandboxConfig:
    """The config that allows what parent and child both allow.

    said: the fields that child speaks about (`mode`, `limits.wall_seconds`); None takes those that differ from their default.
    Raises WideningError, naming every key of child that opens what parent closes, and ConfigError where the two contradict.
    Paths of the result are absolute. Not promised: that files which are missing now, or links that change, lie where they did.
    """
    named = differing(child, SandboxConfig()) if said is None else frozenset(said)
    whole, part = anchored(parent), anchored(child)
    outer, inner = followed(whole), followed(part)
    for each in (outer, inner):
        refuse_contradiction(each)
    implied = _implied(child, named)
    named -= implied.keys()
    wider = [name for name, rule in RULES.items() if name in named and not rule(value_of(outer, name), value_of(inner, name))]
    wider += [name for name in REACHED if name in named and not _reaches_no_more(outer, inner, name)]
    if "workspace" in named and inner.workspace != outer.workspace:
        root = os.fspath(outer.workspace or EPHEMERAL)
        whole = replace(whole, deny=_held_there_too(whole.deny, root), protect=_held_there_too(whole.protect, root))
    changes = {name: _joined(whole, part, name) for name in named}
    changes |= {name: ceiling for name, ceiling in implied.items() if _no_more(value_of(whole, name), ceiling)}
    result = _changed(whole, changes)
    if not _tiers(result) <= _tiers(whole) and _tiers(whole) != {"process"}:
        wider += [name for name in TIERS if name in named]
    both = followed(result)
    opened = _wider_files(outer, both)
    # Where what opens it is the parent's own, the child has taken away what closed it.
    wider += [name for name in opened & named or (opened and named & {*FILES}) if name not in wider]
    if wider:
        keys = tuple(KEY_OF[name] for name in wider)
        raise WideningError("; ".join(_said(whole, part, name) for name in wider) + ".", keys=keys)
    refuse_contradiction(both)
    return result


def _implied(child: SandboxConfig, named: Collection[str]) -> dict[str, float]:
    """Ceilings that child has only because it guarantees a share: they narrow a higher one and widen none."""
    return {
        f"limits.{ceiling}": most
        for share, ceiling in SHARES
        if f"limits.{share}" in named and (guaranteed := getattr(child.limits, share)) is not None
        if (most := getattr(child.limits, ceiling)) == CEILING_OF_GUARANTEED * guaranteed
    }


def _said(parent: SandboxConfig, child: SandboxConfig, name: str) -> str:
    key = KEY_OF[name]
    return f"{key} would widen {shown(as_written(parent, key))} to {shown(as_written(child, key))}"


def _adds_nothing(parent: Collection[str], child: Collection[str]) -> bool:
    from ringfence.policy.permissions import adds_nothing  # few configs have any

    return parent == child or adds_nothing(tuple(parent), tuple(child))


def _joined(parent: SandboxConfig, child: SandboxConfig, name: str) -> object:
    """What the result has for a field that the child names."""
    if name in ("deny", "protect", "network_deny", "policy_files"):
        return tuple(dict.fromkeys((*getattr(parent, name), *getattr(child, name))))
    if name == "permissions":
        from ringfence.policy.permissions import joined  # few configs have any

        return joined(parent.permissions, child.permissions)
    if name == "limits.on_breach":
        return {**parent.limits.on_breach, **child.limits.on_breach}
    return value_of(child, name)


def _changed(config: SandboxConfig, changes: dict[str, Any]) -> SandboxConfig:
    """config with changes; what was read-only within a folder that is still writable stays so."""
    limits = {name.removeprefix("limits."): value for name, value in changes.items() if name.startswith("limits.")}
    whole = {name: value for name, value in changes.items() if not name.startswith("limits.")}
    if "output_bytes" in limits and (config.limits.output_head_bytes or 0) > limits["output_bytes"]:
        limits.setdefault("output_head_bytes", None)
    result = replace(config, **whole, limits=replace(config.limits, **limits))
    open_to_write = replace(followed(result), read_only=())
    said = {os.path.realpath(path) for path in (*result.read_only, *result.writable)}
    kept = [
        path for path in config.read_only if (real := os.path.realpath(path)) not in said and access(open_to_write, real) == WRITE
    ]
    return replace(result, read_only=(*result.read_only, *kept))


def _reaches_no_more(parent: SandboxConfig, child: SandboxConfig, name: str) -> bool:
    """Whether what the child may reach by its rules, or by the settings of clients, the parent may reach too."""
    if parent.allow_network and parent.private_addresses and not any(rule.ech for rule in child.network_allow):  # type: ignore[union-attr]
        return True
    if name == "network_presets":
        return _part_of(parent.network_presets, child.network_presets)
    if not child.network_allow:
        return True
    from ringfence.policy.hostrules import opens_no_more  # few children name hosts

    return opens_no_more(parent, child)


def _tiers(config: SandboxConfig) -> set[str]:
    """The tiers that may hold a box of this config."""
    if config.tier != "auto":
        return {config.tier}
    if config.isolation is not None:
        named = {*LEVELS[config.isolation]}
        return named | {"process"} if config.minimum == "process" else named
    floor = {"process"} if config.minimum == "process" else set()
    return {tier for level, tiers in LEVELS.items() if level != "host" for tier in tiers} | floor


# Files


def access(config: SandboxConfig, path: str) -> int:
    """What a followed config lets a box do with a path: the deepest folder that holds it decides, of two alike the wider."""
    if config.mode == "danger-full-access":
        return WRITE
    best, found = -1, NOTHING
    for root, allowed in _roots(config):
        if within(path, root) and len(root) >= best:
            best, found = len(root), allowed
    return found


def _roots(config: SandboxConfig) -> Iterator[tuple[str, int]]:
    for path in config.read_only:
        yield os.fspath(path), READ
    for path in config.writable:
        yield os.fspath(path), WRITE
    if config.workspace is not None:
        yield os.fspath(config.workspace), READ if config.mode == "read-only" else WRITE


def _wider_files(parent: SandboxConfig, result: SandboxConfig) -> frozenset[str]:
    """The fields of result that give a path more than parent does.

    Where the deciding folder changes is where a folder is named, so it is enough to look at each that either names.
    """
    points = {path for config in (parent, result) for path, _ in _roots(config)}
    opened = {path for path in points if access(result, path) > access(parent, path)}
    named = {"workspace": [result.workspace], "read_only": result.read_only, "writable": result.writable}
    return frozenset(
        name
        for name, paths in named.items()
        if any(path is not None and within(point, os.fspath(path)) for path in paths for point in opened)
    )


def anchored(config: SandboxConfig) -> SandboxConfig:
    """The same config with every path absolute. Links stay as they are named: whether they may be followed is for resolve."""
    workspace = os.path.abspath(config.workspace) if config.workspace is not None else None
    base = workspace or "/"

    def absolute(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(os.path.normpath(os.path.join(base, path)) for path in paths))

    return replace(
        config,
        workspace=workspace,
        read_only=absolute(config.read_only),
        writable=absolute(config.writable),
        devices=absolute(config.devices),
        network_remember=os.path.abspath(config.network_remember) if config.network_remember is not None else None,
        python=os.path.abspath(os.path.join(base, config.python)) if config.python is not None else None,
        deny=_anchored_patterns(config.deny, workspace),
        protect=_anchored_patterns(config.protect, workspace),
    )


def followed(config: SandboxConfig) -> SandboxConfig:
    """An anchored config with links followed, to be compared with another one and for nothing else."""
    workspace = os.path.realpath(config.workspace) if config.workspace is not None else None
    read_only, writable, devices = (
        tuple(dict.fromkeys(map(os.path.realpath, paths))) for paths in (config.read_only, config.writable, config.devices)
    )
    return replace(config, workspace=workspace, read_only=read_only, writable=writable, devices=devices)


def refuse_contradiction(config: SandboxConfig) -> None:
    """Raise ConfigError where a followed config says of one path that it is read-only and that it is writable."""
    open_to_write, closed = {*config.writable}, {*config.read_only}
    (open_to_write if config.mode == "workspace-write" else closed).add(config.workspace or "")
    if both := open_to_write & closed:
        raise ConfigError(f"{min(map(str, both))} is said to be read-only and to be writable: one of them must go.")


ANYWHERE = "**/"
"""What begins with it holds at any depth of the workspace, and where it is denied of each shared folder."""


def _anchored_patterns(patterns: Iterable[str], workspace: str | None) -> tuple[str, ...]:
    """Patterns as absolute ones, as resolve has them, but for those of any depth, by whichever spelling."""
    home = os.path.expanduser("~")
    root = os.path.realpath(workspace) if workspace else EPHEMERAL
    start = f"{escaped(root)}/{ANYWHERE}"
    absolute = (each if each.startswith(ANYWHERE) else absolute_pattern(each, root, home) for each in patterns)
    return tuple(dict.fromkeys(ANYWHERE + each.removeprefix(start) if each.startswith(start) else each for each in absolute))


def _held_there_too(patterns: Iterable[str], workspace: str) -> tuple[str, ...]:
    """Patterns of a config whose workspace another one takes the place of: those of any depth go on to hold in its own."""
    given = tuple(patterns)
    return (*given, *(absolute_pattern(each, workspace, "/") for each in given if each.startswith(ANYWHERE)))


def differing(config: SandboxConfig, other: SandboxConfig) -> frozenset[str]:
    """The names of the fields that differ between two configs."""
    names = [entry.name for entry in fields(SandboxConfig) if entry.name != "limits"]
    names += [f"limits.{entry.name}" for entry in fields(SandboxLimits)]
    return frozenset(name for name in names if value_of(config, name) != value_of(other, name))
