"""What a caller asks of a box. Values are checked when the object is made; the host is looked at later, by resolve."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from ringfence.errors import ConfigError, UnenforceableError

TIERS = (
    "auto",
    "process",
    "namespaces",
    "bubblewrap",
    "landlock",
    "seatbelt",
    "jobobject",
    "docker",
    "gvisor",
    "microvm",
    "ssh",
)
BUILT_TIERS = ("auto", "namespaces", "process")
MODES = ("read-only", "workspace-write", "danger-full-access")
ON_PLANTED = ("report", "remove", "refuse")
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a run may spend. None means no limit; every limit that is set is enforced or the box is refused.

    cpu_seconds: CPU time of each process. wall_seconds: one call. memory_bytes: the whole tree (this version cannot enforce
    it: at its default the enforcement says none, another value is refused). max_processes, open_files, file_size_bytes:
    counts and bytes for each process; max_processes for the whole box. disk_bytes: not yet. output_bytes: what is kept of
    each stream, half of it the head and half the tail; more is left out, never a reason to end a run.
    """

    cpu_seconds: float | None = 60
    wall_seconds: float | None = 120
    memory_bytes: int | None = 2 << 30
    max_processes: int | None = None
    open_files: int | None = 512
    file_size_bytes: int | None = None
    disk_bytes: int | None = None
    output_bytes: int = 2 * MIB

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is None and entry.name != "output_bytes":
                continue
            seconds = entry.name.endswith("_seconds")
            if isinstance(value, bool) or not isinstance(value, (int, float) if seconds else int):
                raise ConfigError(f"limits.{entry.name} must be a number, not {value!r}.")
            if not math.isfinite(value) or value <= 0:
                raise ConfigError(f"limits.{entry.name} must be positive and finite, not {value!r}.")
        if self.open_files is not None and self.open_files < 16:
            raise ConfigError(f"limits.open_files of {self.open_files} lets no program start; give at least 16.")

    def refuse_unbuilt(self) -> None:
        """Raise UnenforceableError for a limit that was asked for and that this version has no mechanism for."""
        if self.memory_bytes not in (None, 2 << 30):
            raise UnenforceableError("limits.memory_bytes cannot be enforced by this version: it waits for cgroup control.")
        if self.disk_bytes is not None:
            raise UnenforceableError("limits.disk_bytes cannot be enforced by this version: it waits for sized workspaces.")
        if self.max_processes is not None:
            raise UnenforceableError("limits.max_processes cannot be enforced by this version: it waits for cgroup control.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """What a box may do. Everything not named here is closed.

    tier: the exact mechanism, or 'auto' for the strongest that this host delivers. mode: read-only, workspace-write or
    danger-full-access. workspace: an existing folder, mounted at its own path; None makes an ephemeral one that ends with the
    box. read_only, writable: further folders or files of the host, at their own paths. deny: names, paths and patterns
    (`~/x`, `/x`, `x/y`, `**/.env`) of what must not be read, beside the built-in list of secrets. protect: the same for what
    may be read and not changed, beside the built-in list of settings that something outside would run. on_planted: what is
    done with a nested repository found after a run. environment: variables set inside;
    nothing of the caller's environment is passed. python: the interpreter for programs; None finds the workspace's own
    virtual environment, else the caller's. preload: modules that every program finds already imported.
    """

    tier: str = "auto"
    mode: str = "workspace-write"
    workspace: str | os.PathLike[str] | None = None
    read_only: Sequence[str | os.PathLike[str]] = ()
    writable: Sequence[str | os.PathLike[str]] = ()
    deny: Sequence[str] = ()
    protect: Sequence[str] = ()
    on_planted: str = "report"
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    allow_network: bool = False
    python: str | os.PathLike[str] | None = None
    preload: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ConfigError(f"tier {self.tier!r} is not one of {', '.join(TIERS)}.")
        if self.mode not in MODES:
            raise ConfigError(f"mode {self.mode!r} is not one of {', '.join(MODES)}.")
        if self.on_planted not in ON_PLANTED:
            raise ConfigError(f"on_planted {self.on_planted!r} is not one of {', '.join(ON_PLANTED)}.")
        if not isinstance(self.limits, SandboxLimits):
            raise ConfigError(f"limits must be SandboxLimits, not {type(self.limits).__name__}.")
        if not isinstance(self.allow_network, bool):
            raise ConfigError(f"allow_network must be True or False, not {self.allow_network!r}.")
        for name in ("read_only", "writable", "deny", "protect", "preload"):
            value = getattr(self, name)
            if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
                raise ConfigError(f"{name} must be a list of entries, not {value!r}.")
        patterns: Sequence[object] = (*self.deny, *self.protect)
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern or "\0" in pattern or ".." in pattern.split("/"):
                raise ConfigError(f"deny and protect take names, paths and patterns without '..', not {pattern!r}.")
        modules: Sequence[object] = self.preload
        for module in modules:
            if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
                raise ConfigError(f"preload names a module that cannot be imported: {module!r}.")
        object.__setattr__(self, "environment", MappingProxyType(checked_environment(self.environment, "environment")))
        self.limits.refuse_unbuilt()


def checked_environment(environment: object, where: str) -> dict[str, str]:
    """environment as a dict of strings that execve can carry; raises ConfigError naming the variable."""
    if not isinstance(environment, Mapping):
        raise ConfigError(f"{where} must map names to values, not {environment!r}.")
    for name, value in environment.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(f"{where} has a name that no environment can carry: {name!r}.")
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError(f"{where} has a value for {name} that no environment can carry: {value!r}.")
    return dict(environment)
