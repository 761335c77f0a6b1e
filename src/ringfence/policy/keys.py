"""Which field of a config each key of a policy file is. `limits.x` is a field of SandboxLimits.

Files count in GiB, MiB and minutes, a config in bytes and seconds: the number beside a field is what one of the file is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ringfence.policy.config import GIB, MIB, SandboxConfig
from ringfence.policy.network import without_password

FIELDS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "isolation": ("isolation", 1),
        "tier": ("tier", 1),
        "minimum": ("minimum", 1),
        "mode": ("mode", 1),
        "image": ("image", 1),
        "fresh_per_task": ("fresh_per_task", 1),
        "snapshot_on_exit": ("snapshot_on_exit", 1),
        "best_effort": ("best_effort", 1),
        "on_planted": ("on_planted", 1),
        "filesystem.workspace.path": ("workspace", 1),
        "filesystem.read_only": ("read_only", 1),
        "filesystem.writable": ("writable", 1),
        "filesystem.deny": ("deny", 1),
        "filesystem.protect": ("protect", 1),
        "filesystem.walk_entries": ("walk_entries", 1),
        "network.default": ("allow_network", 1),
        "network.egress_proxy": ("egress_proxy", 1),
        "network.allow": ("network_allow", 1),
        "network.deny": ("network_deny", 1),
        "network.presets": ("network_presets", 1),
        "network.on_unknown_domain": ("on_unknown_domain", 1),
        "network.remember": ("network_remember", 1),
        "network.upstream_proxy": ("upstream_proxy", 1),
        "network.private_addresses": ("private_addresses", 1),
        "network.range": ("network_range", 1),
        "network.publish": ("network_publish", 1),
        "credentials.git": ("credentials_git", 1),
        "credentials.tools": ("credentials_tools", 1),
        "environment.pass": ("pass_environment", 1),
        "environment.set": ("environment", 1),
        "python.interpreter": ("python", 1),
        "python.preload": ("preload", 1),
        "syscalls": ("syscalls", 1),
        "devices": ("devices", 1),
        "resources.cpu.guaranteed": ("limits.cpu_guaranteed", 1),
        "resources.cpu.limit": ("limits.cpu_limit", 1),
        "resources.memory_gib.guaranteed": ("limits.memory_guaranteed_bytes", GIB),
        "resources.memory_gib.limit": ("limits.memory_bytes", GIB),
        "resources.admission_seconds": ("admission_seconds", 1),
        "resources.cpu_seconds": ("limits.cpu_seconds", 1),
        "resources.run_seconds": ("limits.wall_seconds", 1),
        "resources.wall_clock_min": ("limits.lifetime_seconds", 60),
        "resources.idle_min": ("limits.idle_seconds", 60),
        "resources.disk_gib": ("limits.disk_bytes", GIB),
        "resources.inodes": ("limits.inodes", 1),
        "resources.max_processes": ("limits.max_processes", 1),
        "resources.open_files": ("limits.open_files", 1),
        "resources.file_size_mib": ("limits.file_size_bytes", MIB),
        "resources.on_breach": ("limits.on_breach", 1),
        "resources.output_mib": ("limits.output_bytes", MIB),
        "resources.output_mib.head": ("limits.output_head_bytes", MIB),
        "permissions": ("permissions", 1),
        "on_violation.escalation": ("escalation", 1),
        "trace.record": ("trace", 1),
        "trace.durability": ("trace_durability", 1),
    }
)

KEY_OF: Mapping[str, str] = MappingProxyType({name: key for key, (name, _) in FIELDS.items()})
"""The key of a policy file for a field of a config."""


def is_key(name: str) -> bool:
    """Whether name is a key of a policy file that is a field of a config, or a map that holds some."""
    return any(key == name or key.startswith(f"{name}.") for key in FIELDS)


def value_of(config: SandboxConfig, name: str) -> Any:
    """The value of a field by its name, `limits.x` being one of its limits."""
    outer, _, inner = name.partition(".")
    value = getattr(config.limits, inner) if inner else getattr(config, outer)
    return tuple(value) if isinstance(value, list) else value


def as_written(config: SandboxConfig, key: str) -> object:
    """The value of a key as a policy file has it, in its own units."""
    name, unit = FIELDS[key]
    value: Any = config.limits.head_bytes if name == "limits.output_head_bytes" else value_of(config, name)
    if name in ("allow_network", "private_addresses"):
        return "allow" if value else "deny"
    if name in ("network_allow", "network_deny"):
        from ringfence.policy.hostrules import written  # most configs have no rules

        return sorted(map(written, value), key=shown)
    if name == "upstream_proxy":
        return without_password(value)
    if name == "python":
        return value or "auto"
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return sorted((os.fspath(entry) if not isinstance(entry, int) else entry for entry in value), key=str)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = value / unit
        return int(value) if value.is_integer() else value
    return value


def shown(value: object) -> str:
    """A value as it would be written in a policy file, characters that a terminal would act on spelled out."""
    return json.dumps(value, sort_keys=True)
