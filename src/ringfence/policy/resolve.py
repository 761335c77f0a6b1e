"""From what was asked to what holds on this host: real paths, checked folders, one stable hash."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence

from ringfence.errors import ConfigError, WorkspaceError
from ringfence.policy.config import SandboxConfig, SandboxLimits
from ringfence.policy.digest import digest
from ringfence.policy.links import real_path
from ringfence.policy.network import CLOSED, NetworkPolicy, without_password
from ringfence.policy.patterns import escaped
from ringfence.policy.secrets import refuse_open
from ringfence.values import fields, frozen, replace

EPHEMERAL = "/workspace"
"""Where a box without a workspace of the host has its own."""

NOTHING_SAID: tuple[str, ...] = ()

SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")


@frozen
class Folder:
    """A path of the host that the box sees, and which file it was when it was looked at."""

    path: str
    device: int
    inode: int
    is_dir: bool
    owner: tuple[int, int]


@frozen
class ResolvedPolicy:
    """A config whose paths were looked at. workspace is None for an ephemeral one."""

    mode: str
    workspace: Folder | None
    read_only: tuple[Folder, ...]
    writable: tuple[Folder, ...]
    environment: tuple[tuple[str, str], ...]
    limits: SandboxLimits
    python: str | None
    preload: tuple[str, ...]
    hash: str
    deny: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    on_planted: str = "report"
    syscalls: tuple[str, ...] = ()
    devices: tuple[Folder, ...] = ()
    network: NetworkPolicy = CLOSED
    best_effort: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    walk_entries: int = 200_000
    admission_seconds: float = 30
    remember: str = ""

    @property
    def shared(self) -> tuple[Folder, ...]:
        """The folders of the host that the box may write."""
        workspace = (self.workspace,) if self.workspace and self.mode != "read-only" else ()
        return (*workspace, *self.writable)

    @property
    def workdir(self) -> str:
        return self.workspace.path if self.workspace else EPHEMERAL


def resolve(config: SandboxConfig, *, home: str) -> ResolvedPolicy:
    """Look at every path of config. Raises WorkspaceError or ConfigError; makes and changes nothing."""
    workspace = _workspace(os.fspath(config.workspace), home) if config.workspace is not None else None
    base = workspace.path if workspace else "/"
    shared = [*([workspace.path] if workspace else []), *(_real(os.path.join(base, path)) for path in config.writable)]
    writable = tuple(_extra(os.path.join(base, path), "writable", shared) for path in config.writable)
    read_only = tuple(_extra(os.path.join(base, path), "read_only", shared) for path in config.read_only)
    for folder in writable:
        if folder.path == "/" or _contains(folder.path, os.path.realpath(home)) or folder.path in SYSTEM:
            raise ConfigError(f"writable may not be {folder.path}: too much of the host would be open.")
    python = os.path.abspath(os.path.join(base, config.python)) if config.python is not None else None
    if python is not None and ("\0" in python or not os.path.isfile(python) or not os.access(python, os.X_OK)):
        raise ConfigError(f"python names {python}, which is not an interpreter that can be run.")
    closed = [("read_only", folder.path) for folder in read_only]
    opened = [("writable", folder.path) for folder in writable]
    if workspace:
        (opened if config.mode == "workspace-write" else closed).append(("workspace", workspace.path))
    for where, path in opened:
        for other, same in closed:
            if path == same:
                raise ConfigError(f"{where} names {path}, which {other} says is read-only: one of them must go.")
    devices = tuple(
        {folder.path: folder for folder in (_device(os.path.join(base, path), shared) for path in config.devices)}.values()
    )
    passed = {name: os.environ[name] for name in config.pass_environment if name in os.environ}
    root = workspace.path if workspace else EPHEMERAL
    deny = tuple(absolute_pattern(pattern, root, home) for pattern in config.deny)
    protect = tuple(absolute_pattern(pattern, root, home) for pattern in config.protect)
    for where, folder in (
        *(("workspace", each) for each in (workspace,) if each),
        *(("read_only", each) for each in read_only),
        *(("writable", each) for each in writable),
    ):
        refuse_open(where, folder.path, deny, home.rstrip("/"))
    network, about_network = CLOSED, NOTHING_SAID
    told: dict[str, str] = {}
    remember = ""
    if config.allow_network or config.says_more_of_networks or not config.egress_proxy:
        from ringfence.policy.resolve_network import resolve_network  # most boxes have no network

        network, about_network, told = resolve_network(config, home=home, roots=shared)
        if config.network_remember is not None:
            from ringfence.policy import remembered  # few boxes ask about hosts

            remember = remembered.place_of(config.network_remember, shared, config.mode)
            network = replace(network, allow=(*network.allow, *remembered.remembered(remember)))
    described = _described(config, workspace, (read_only, writable, devices), python, deny, protect)
    described |= _described_network(config, network)
    hashed = digest(json.dumps(described, sort_keys=True).encode("utf-8", "surrogateescape"))
    own = tuple(escaped(path) for path in config.policy_files if _is_writable(path, workspace, writable, config.mode))
    notes = tuple(
        f"environment.pass names {name}, which is not set here." for name in config.pass_environment if name not in os.environ
    )
    return ResolvedPolicy(
        config.mode, workspace, read_only, writable, tuple(sorted({**told, **config.environment, **passed}.items())), config.limits,
        python, tuple(config.preload), hashed, deny, (*protect, *own), config.on_planted,
        tuple(sorted(config.syscalls)), devices, network, tuple(config.best_effort), (*notes, *about_network),
        config.walk_entries, config.admission_seconds, remember,
    )  # fmt: skip


AS_SAID = (
    "tier", "isolation", "minimum", "on_planted", "environment", "allow_network", "on_unknown_domain", "egress_proxy",
    "credentials_git", "credentials_tools", "preload", "image", "fresh_per_task", "snapshot_on_exit", "escalation",
    "walk_entries", "private_addresses", "network_range",
)  # fmt: skip
"""Fields of a config that the hash is made of as they are."""
AS_A_SET = ("pass_environment", "network_presets", "syscalls", "permissions", "best_effort")
"""Fields whose order means nothing. policy_files are not in the hash: where a policy was written is no part of it."""


def _described(
    config: SandboxConfig,
    workspace: Folder | None,
    folders: tuple[tuple[Folder, ...], ...],
    python: str | None,
    deny: tuple[str, ...],
    protect: tuple[str, ...],
) -> dict[str, object]:
    """What the hash is made of, but for networks."""
    read_only, writable, devices = folders
    return {
        "mode": config.mode,
        "workspace": workspace.path if workspace else None,
        "read_only": sorted(folder.path for folder in read_only),
        "writable": sorted(folder.path for folder in writable),
        "limits": {each.name: _plain(getattr(config.limits, each.name)) for each in fields(config.limits)}
        | {"output_head_bytes": config.limits.head_bytes, "on_breach": sorted(config.limits.kills)},
        "python": python,
        "deny": sorted(set(deny)),
        "protect": sorted(set(protect)),
        "devices": sorted({device.path for device in devices}),
        **{name: _plain(getattr(config, name)) for name in AS_SAID},
        **{name: sorted(set(getattr(config, name))) for name in AS_A_SET},
    }


def _described_network(config: SandboxConfig, network: NetworkPolicy) -> dict[str, object]:
    """What the hash is made of, of networks: rules by what they mean, a proxy by what was asked, so that no password is in it."""
    described: dict[str, object] = {"upstream_proxy": without_password(config.upstream_proxy)}
    for name, rules in (("network_allow", network.allow), ("network_deny", network.deny)):
        described[name] = sorted(repr(replace(rule, said="")) for rule in rules)
    described["network_remember"] = os.path.abspath(config.network_remember) if config.network_remember is not None else None
    return described | {"network_publish": sorted(map(str, network.publish))}


def _plain(value: object) -> object:
    """A value as JSON has it, by one spelling: 60.0 seconds are 60."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_writable(path: str, workspace: Folder | None, writable: tuple[Folder, ...], mode: str) -> bool:
    """Whether a box of this policy could change the file at path, an absolute one without links, were it not protected."""
    if mode == "danger-full-access":
        return True
    roots = (*writable, workspace) if workspace and mode == "workspace-write" else writable
    return any(_contains(root.path, path) for root in roots)


def absolute_pattern(pattern: str, workspace: str, home: str) -> str:
    """A pattern as one absolute path: `~` is the caller's home, what is not absolute is below the workspace."""
    if pattern == "~" or pattern.startswith("~/"):
        pattern = escaped(home.rstrip("/")) + pattern[1:]
    return os.path.normpath(os.path.join(escaped(workspace), pattern))


def _workspace(given: str, home: str) -> Folder:
    try:
        return _checked_workspace(given, home)
    except OSError as error:  # a name on the way changed while it was looked at
        raise WorkspaceError(f"the workspace {given!r} cannot be used: {error.strerror}.") from None


def _checked_workspace(given: str, home: str) -> Folder:
    path = os.path.abspath(given)
    try:
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise WorkspaceError(f"the workspace {given!r} cannot be used: {getattr(error, 'strerror', error)}.") from None
    if stat.S_ISLNK(found.st_mode):
        raise WorkspaceError(f"the workspace {given!r} is a symbolic link to {os.path.realpath(path)!r}.")
    if not stat.S_ISDIR(found.st_mode):
        raise WorkspaceError(f"the workspace {given!r} is not a folder.")
    path = os.path.realpath(path)
    if path == "/" or path in SYSTEM:
        raise WorkspaceError(f"the workspace may not be {path}: a part of the system would be writable.")
    if _contains(path, os.path.realpath(home)):
        raise WorkspaceError(f"the workspace may not be {path}: it is or holds the home folder {home}.")
    mounts = mounts_below(path)
    if mounts:
        raise WorkspaceError(f"the workspace {path} holds a mount, {mounts[0]}: its files would not be in the box.")
    return Folder(path, found.st_dev, found.st_ino, True, (found.st_uid, found.st_gid))


def _real(path: str) -> str:
    return os.path.realpath(path) if "\0" not in path else path  # _extra refuses it by name


def _extra(given: str, where: str, shared: Sequence[str]) -> Folder:
    try:
        path = real_path(os.path.abspath(given), shared)
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} names {given!r}, which cannot be used: {getattr(error, 'strerror', error)}.") from None
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise ConfigError(f"{where} names {given!r}, which is neither a folder nor a regular file.")
    return Folder(path, found.st_dev, found.st_ino, stat.S_ISDIR(found.st_mode), (found.st_uid, found.st_gid))


OWN_DEVICES = ("/dev/ptmx", "/dev/console", "/dev/shm", "/dev/pts")


def _device(given: str, shared: Sequence[str]) -> Folder:
    try:
        path = real_path(os.path.abspath(given), shared)
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"devices names {given!r}, which cannot be used: {getattr(error, 'strerror', error)}.") from None
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        raise ConfigError(f"devices names {given!r}, which is no device file.")
    if any(_contains(own, path) for own in OWN_DEVICES):
        raise ConfigError(f"devices names {given!r}, of which each box has its own.")
    return Folder(path, found.st_dev, found.st_ino, False, (found.st_uid, found.st_gid))


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def mounts_below(path: str) -> list[str]:
    """Mount points strictly below path, from /proc/self/mountinfo (proc_pid_mountinfo(5): field 5, octal escapes)."""
    below = os.fsencode(path.rstrip("/") + "/")
    with open("/proc/self/mountinfo", "rb") as table:
        points = [line.split(b" ", 5)[4] for line in table if b"/" in line]
    plain = [point.decode("unicode_escape").encode("latin-1") if b"\\" in point else point for point in points]
    return [os.fsdecode(point) for point in plain if point.startswith(below) and point != below]  # "/" is not below itself
