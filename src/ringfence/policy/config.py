"""What a caller asks of a box. Values are checked when the object is made; the host is looked at later, by resolve."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ringfence.errors import ConfigError
from ringfence.policy.network import RANGE, HostRule
from ringfence.policy.patterns import check as check_pattern
from ringfence.values import field, fields, frozen

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
LEVELS = {
    "host": ("process",),
    "os": ("namespaces", "bubblewrap", "landlock", "seatbelt", "jobobject"),
    "container": ("docker", "gvisor"),
    "microvm": ("microvm",),
    "remote": ("ssh",),
}
"""The tiers of each level of isolation, strongest first."""
MODES = ("read-only", "workspace-write", "danger-full-access")
ON_PLANTED = ("report", "remove", "refuse")
MIB, GIB = 1 << 20, 1 << 30
CEILING_OF_GUARANTEED = 3
"""A guaranteed share without a hard ceiling has one of so many times it."""
REFUSING = ("processes", "open_files", "file_size", "disk", "inodes")
"""The caps that refuse the call which goes beyond them, by their kinds; the others end the run."""
ON_BREACH = ("refuse", "kill")


TEXTS = ("pass_environment", "syscalls", "devices", "permissions", "best_effort", "policy_files")
CHOICES: Mapping[str, tuple[str | None, ...]] = MappingProxyType({
    "tier": TIERS,
    "isolation": (None, *LEVELS),
    "minimum": (None, "process", "os"),
    "mode": MODES,
    "on_planted": ON_PLANTED,
    "on_unknown_domain": ("deny", "ask"),
    "credentials_git": ("none", "proxy"),
    "credentials_tools": ("none", "vault_proxy"),
    "escalation": ("none", "one_time_approval"),
    "trace": ("none", "best-effort", "required"),
    "trace_durability": ("process", "power"),
})  # fmt: skip
SWITCHES = ("allow_network", "egress_proxy", "private_addresses", "fresh_per_task", "snapshot_on_exit")
LISTS = (
    "read_only", "writable", "deny", "protect", "preload", "pass_environment", "network_allow", "network_deny", "network_presets",
    "network_publish", "syscalls", "devices", "permissions", "best_effort", "policy_files",
)  # fmt: skip
PRESETS = ("pip", "uv", "npm", "cargo", "go", "maven", "apt")
"""The clients whose own settings say which hosts they need."""

UNBUILT: Mapping[str, tuple[tuple[object, ...], str]] = MappingProxyType({
    "image": ((None,), "container tiers"),
    "fresh_per_task": ((True,), "boxes that are used again"),
    "snapshot_on_exit": ((False,), "snapshots"),
    "credentials_git": (("none",), "credentials that are attached outside"),
    "credentials_tools": (("none",), "credentials that are attached outside"),
})  # fmt: skip
"""What this version has no mechanism for: the field, its values that ask for nothing (none: an empty list), what it waits for."""


SHARES = (("cpu_guaranteed", "cpu_limit"), ("memory_guaranteed_bytes", "memory_bytes"))
"""What is guaranteed, and the hard ceiling of the same."""


class Unasked(int):
    """A limit that nobody asked for: it holds, gives way to what is guaranteed, and may lie above what the host has."""


@frozen(kw_only=True)
class SandboxLimits:
    """What a run and its box may spend. None means no limit; every limit that is set is enforced or the box is refused.

    cpu_seconds: CPU time of each process. wall_seconds: one call. lifetime_seconds, idle_seconds: the box. cpu_limit: cores that
    the box may keep busy. memory_bytes: what its whole tree may use, with private folders and memory files; over it the largest
    process is killed, and its run where that was the run's first process or its second victim.
    cpu_guaranteed, memory_guaranteed_bytes: what the box has even where others want it; without a limit
    beside it that is three times as much. max_processes, open_files, file_size_bytes: counts and bytes for each
    process; max_processes for the whole box. disk_bytes, inodes: what the box may add. on_breach: for processes, open_files,
    file_size, disk and inodes whether the call that goes beyond the cap fails (refuse, the default) or the run is ended (kill).
    output_bytes: what is kept of each stream, output_head_bytes of it the head (None: half) and the rest the tail; more is left
    out, never a reason to end a run.
    """

    cpu_seconds: float | None = 60
    wall_seconds: float | None = 120
    lifetime_seconds: float | None = None
    idle_seconds: float | None = None
    cpu_guaranteed: float | None = None
    cpu_limit: float | None = None
    memory_bytes: int | None = Unasked(2 << 30)
    memory_guaranteed_bytes: int | None = None
    max_processes: int | None = None
    open_files: int | None = 512
    file_size_bytes: int | None = None
    disk_bytes: int | None = None
    inodes: int | None = None
    on_breach: Mapping[str, str] = field(default_factory=dict)
    output_bytes: int = 2 * MIB
    output_head_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_breach", _checked_breach(self.on_breach))
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "on_breach" or (value is None and entry.name != "output_bytes"):
                continue
            broken = entry.name.endswith("_seconds") or entry.name.startswith("cpu_")
            if isinstance(value, bool) or not isinstance(value, (int, float) if broken else int):
                raise ConfigError(f"limits.{entry.name} must be a number, not {value!r}.")
            if not math.isfinite(value) or value <= 0:
                raise ConfigError(f"limits.{entry.name} must be positive and finite, not {value!r}.")
        if self.open_files is not None and self.open_files < 16:
            raise ConfigError(f"limits.open_files of {self.open_files} lets no program start; give at least 16.")
        for share, ceiling in SHARES:
            guaranteed, limit = getattr(self, share), getattr(self, ceiling)
            if guaranteed is not None and (limit is None or isinstance(limit, Unasked)):
                object.__setattr__(self, ceiling, CEILING_OF_GUARANTEED * guaranteed)
        for least, most in (
            *SHARES,
            ("output_head_bytes", "output_bytes"),
        ):
            low, high = getattr(self, least), getattr(self, most)
            if low is not None and high is not None and low > high:
                raise ConfigError(f"limits.{least} is {low!r}, more than limits.{most}, which is {high!r}.")

    @property
    def kills(self) -> frozenset[str]:
        """The caps that end the run although they could refuse the call: those of on_breach."""
        return frozenset(cap for cap, effect in self.on_breach.items() if effect == "kill")

    @property
    def head_bytes(self) -> int:
        """How much of output_bytes is kept of the beginning of a stream."""
        return (self.output_bytes + 1) // 2 if self.output_head_bytes is None else self.output_head_bytes


@frozen(kw_only=True)
class SandboxConfig:
    """What a box may do. Everything not named here is closed.

    tier: the exact mechanism, or 'auto' for the strongest that this host delivers. isolation: the level that the tier must be
    of, None for any. minimum: 'process' lets auto go down to the floor where nothing else can be had, with a note. mode: read-
    only, workspace-write or danger-full-access. workspace: an existing folder, mounted at its own path; None makes an ephemeral
    one that ends with the box. read_only, writable: further folders or files of the host, at their own paths. deny: names,
    paths and patterns (`~/x`, `/x`, `x/y`, `**/.env`) of what must not be read, beside the built-in list of secrets; `**/x`
    holds in every shared folder. protect: the same for what may be read and not changed, beside the built-in list of settings
    that something outside would run. on_planted: what is done with a nested repository found after a run. walk_entries: how
    many entries of each shared folder are looked at for what must not be read, in two seconds or in proportion; with more than
    that no box is made. environment: variables set inside; pass_environment:
    names of the caller's that are set too; nothing else of it is passed. python: the interpreter for programs; None finds the
    workspace's own virtual environment, else the caller's. preload: modules that every program finds already imported.
    syscalls: parts of the filter that are opened, 'debug' or 'nested'. devices: device files of the host. best_effort: keys of
    a policy file (docs/policy.md) that may be enforced partly or not at all. admission_seconds: how long a box waits for what its
    limits guarantee while other boxes of this user have it; 0 is not at all. policy_files: where this was read from; a box may
    never write them. trace, trace_durability: whether boxes and runs are recorded, and what a record survives; see ringfence.trace.

    allow_network: whether what no rule names can be reached, but private addresses. network_allow, network_deny: rules as
    docs/network.md has them, text or maps; deny wins. network_presets: clients whose own settings name further hosts.
    on_unknown_domain: 'ask' holds a connection to another name until it is answered. network_remember: the file that 'always'
    writes that answer into, and that is read as further entries of network_allow. upstream_proxy: 'none', 'env' or a URL.
    private_addresses: whether a name may lead to an address that is not public. network_range: the network that stands for
    names inside. network_publish: ports of the box, or 'unix:PATH:PORT'. egress_proxy: whether a proxy is announced too.

    The other fields are those of a policy file that this version refuses unless they ask for nothing.
    """

    tier: str = "auto"
    isolation: str | None = None
    minimum: str | None = None
    mode: str = "workspace-write"
    workspace: str | os.PathLike[str] | None = None
    read_only: Sequence[str | os.PathLike[str]] = ()
    writable: Sequence[str | os.PathLike[str]] = ()
    deny: Sequence[str] = ()
    protect: Sequence[str] = ()
    on_planted: str = "report"
    walk_entries: int = 200_000
    environment: Mapping[str, str] = field(default_factory=dict)
    pass_environment: Sequence[str] = ()
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    admission_seconds: float = 30
    allow_network: bool = False
    network_allow: Sequence[str | Mapping[str, object] | HostRule] = ()
    network_deny: Sequence[str | Mapping[str, object] | HostRule] = ()
    network_presets: Sequence[str] = ()
    on_unknown_domain: str = "deny"
    network_remember: str | os.PathLike[str] | None = None
    upstream_proxy: str = field(default="none", repr=False)
    private_addresses: bool = False
    network_range: str = RANGE
    network_publish: Sequence[int | str] = ()
    egress_proxy: bool = True
    credentials_git: str = "none"
    credentials_tools: str = "none"
    python: str | os.PathLike[str] | None = None
    preload: Sequence[str] = ()
    syscalls: Sequence[str] = ()
    devices: Sequence[str] = ()
    image: str | None = None
    fresh_per_task: bool = True
    snapshot_on_exit: bool = False
    permissions: Sequence[str] = ()
    escalation: str = "none"
    trace: str = "none"
    trace_durability: str = "process"
    best_effort: Sequence[str] = ()
    policy_files: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                shown = ", ".join(str(choice) for choice in known)
                raise ConfigError(f"{name} {value!r} is not one of {shown}.")
        _refuse_contradiction(self.tier, self.isolation, self.minimum)
        if not isinstance(self.limits, SandboxLimits):
            raise ConfigError(f"limits must be SandboxLimits, not {type(self.limits).__name__}.")
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        for name in LISTS:
            value = getattr(self, name)
            if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
                raise ConfigError(f"{name} must be a list of entries, not {value!r}.")
            object.__setattr__(self, name, tuple(value))
        patterns: Sequence[object] = (*self.deny, *self.protect)
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern or "\0" in pattern or ".." in pattern.split("/"):
                raise ConfigError(f"deny and protect take names, paths and patterns without '..', not {pattern!r}.")
            check_pattern(pattern)
        if type(self.walk_entries) is not int or self.walk_entries < 1:
            raise ConfigError(f"walk_entries must be a positive number of entries, not {self.walk_entries!r}.")
        for name in TEXTS:
            for text in getattr(self, name):
                if not isinstance(text, str) or not text or "\0" in text:
                    raise ConfigError(f"{name} takes text, not {text!r}.")
        seconds: object = self.admission_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds < 0:
            raise ConfigError(f"admission_seconds must be a number of seconds, or 0, not {seconds!r}.")
        if self.best_effort:
            from ringfence.policy.keys import is_key  # it imports this module, and few configs have any

            if unknown := [key for key in self.best_effort if not is_key(key)]:
                raise ConfigError(f"best_effort names {unknown[0]!r}, which is not a key of a policy file.")
        if self.permissions:
            from ringfence.policy.permissions import check_texts  # few configs have any

            check_texts(self.permissions)
        if closed := set(self.syscalls) - {"debug", "nested"}:
            raise ConfigError(f"syscalls opens 'debug' and 'nested', not {min(closed)!r}.")
        if self.says_more_of_networks:
            from ringfence.policy import hostrules  # most boxes have no network

            for name in ("network_allow", "network_deny"):
                object.__setattr__(self, name, hostrules.host_rules(getattr(self, name), name))
            hostrules.check(self)
        if self.image is not None and not isinstance(self.image, str):
            raise ConfigError(f"image must be text, not {self.image!r}.")
        modules: Sequence[object] = self.preload
        for module in modules:
            if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
                raise ConfigError(f"preload names a module that cannot be imported: {module!r}.")
        environment = checked_environment(self.environment, "environment")
        passed = checked_environment(dict.fromkeys(self.pass_environment, ""), "pass_environment")
        if both := environment.keys() & passed.keys():
            raise ConfigError(f"environment sets {min(both)}, which pass_environment takes from the caller: one of them must go.")
        object.__setattr__(self, "environment", MappingProxyType(environment))

    @property
    def says_more_of_networks(self) -> bool:
        """Whether anything is said of networks but that all is closed or, by allow_network, open."""
        lists = self.network_allow or self.network_deny or self.network_presets or self.network_publish
        plain = (self.on_unknown_domain, self.upstream_proxy, self.network_range) == ("deny", "none", RANGE)
        return bool(lists) or not plain or self.private_addresses or self.network_remember is not None

    @property
    def asks_for_more(self) -> bool:
        """Whether some field has another value than those that ask for nothing of what this version lacks."""
        limits = self.limits
        for name, (nothing, _) in UNBUILT.items():
            value = getattr(limits, name[7:]) if name.startswith("limits.") else getattr(self, name)
            if value not in nothing and (nothing or value) and not isinstance(value, Unasked):
                return True
        unusual = self.policy_files or self.isolation or self.allow_network or self.mode != "workspace-write" or self.best_effort
        return bool(unusual or self.says_more_of_networks or (self.tier == "process" and (self.deny or self.protect)))

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> SandboxConfig:
        """The config that a policy file says; see docs/policy.md. Raises PolicyError with the line and column."""
        from ringfence.policy.load import load_policy  # with it come a YAML reader and a schema: a tenth of a second

        return load_policy(file).config


def _checked_breach(given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"limits.on_breach must map caps to {' or '.join(ON_BREACH)}, not {given!r}.")
    for cap, effect in given.items():
        if cap not in REFUSING:
            raise ConfigError(f"limits.on_breach names {cap!r}, which is none of the caps that refuse: {', '.join(REFUSING)}.")
        if effect not in ON_BREACH:
            raise ConfigError(f"limits.on_breach takes {' or '.join(ON_BREACH)} for {cap}, not {effect!r}.")
    return MappingProxyType(dict(given))


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


def _refuse_contradiction(tier: str, isolation: str | None, minimum: str | None) -> None:
    """Raise ConfigError where no tier is all that is said."""
    if isolation is not None and tier not in ("auto", *LEVELS[isolation]):
        raise ConfigError(f"tier {tier!r} is not of isolation {isolation!r}, which has {', '.join(LEVELS[isolation])}.")
    if minimum == "os" and (tier == "process" or isolation == "host"):
        said = f"tier {tier!r}" if tier == "process" else f"isolation {isolation!r}"
        raise ConfigError(f"{said} is below minimum 'os'.")
