"""One function that decides an act by a policy: what is asked before anything runs, tried by the examples of a policy file.

What closes wins over what opens, and of what closes the first in this order is named:

1. filesystem.deny, then the built-in list of secrets, for reading and writing;
2. filesystem.protect and the policy file, then the built-in set of settings that something outside would run, for writing;
3. of the folders that the policy opens (workspace, writable, read_only, the system's, the box's own) the innermost that holds the
   path decides, of two alike the one that opens less;
4. what nothing names is closed.

A link is judged twice: its own path must be open to be read, the one that it leads to must be open to the act. Hosts are decided
by reach.decide. Variables: environment.set and environment.pass open, all else is closed. Not promised:
that the box's own system allows the act (modes of files, a program that is not executable), or that a link still leads there when
the act comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ringfence.errors import ArgumentError
from ringfence.policy import settings
from ringfence.policy.patterns import compiled, covers, escaped, is_glob, literal, matches, moved, within
from ringfence.policy.resolve import ResolvedPolicy
from ringfence.policy.secrets import built_in_rule, secrets_of
from ringfence.values import frozen

if TYPE_CHECKING:
    from ringfence.policy.reach import Verdict

VERBS = ("read", "write", "exec", "connect", "env")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
OWN = ("/tmp", "/var/tmp", "/dev/shm", "/home/user")
"""Private folders of every box, which nothing of the host is in."""
OWN_RULE = "the box's own folders"
MADE = ("/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/machine-id", "/etc/hostname")
VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "TERM")


@frozen
class Decision:
    """Whether an act is allowed, the rule that decides, by its key in a policy file or as 'built in', and why."""

    allowed: bool
    rule: str
    why: str

    def __str__(self) -> str:
        return f"{'allowed' if self.allowed else 'refused'} by {self.rule}: {self.why}"


def decide(policy: ResolvedPolicy, verb: str, target: str, *, home: str, mounts: Mapping[str, bool] | None = None) -> Decision:
    """Decide one act: read or write a path, exec a command line's first word, connect to HOST:PORT, env NAME.

    Relative paths start at the workspace, `~` is home, the caller's. mounts: what a plan has beside the policy's own folders,
    each with whether it is writable; without it, the system's folders. Raises ArgumentError for what is no act.
    """
    match verb:
        case "read" | "write":
            return _Files(policy, home, mounts).decide(target, write=verb == "write")
        case "exec":
            return _Files(policy, home, mounts).execute(target)
        case "connect":
            verdict = reaches(policy, target)
            return Decision(verdict.allowed, verdict.rule, verdict.why)
        case "env":
            return _variable(policy, target)
    raise ArgumentError(f"{verb!r} is not an act: it is one of {', '.join(VERBS)}.")


class _Files:
    def __init__(self, policy: ResolvedPolicy, home: str, mounts: Mapping[str, bool] | None) -> None:
        self.policy, self.home = policy, home.rstrip("/")
        self.mounts = dict.fromkeys((*SYSTEM, *MADE), False) if mounts is None else mounts
        shared = tuple(folder.path for folder in (policy.workspace, *policy.writable, *policy.read_only) if folder)
        self.shared = shared
        self.deny, self.protect = dict(_both_spellings(policy.deny)), dict(_both_spellings(policy.protect))
        self.secrets = secrets_of(policy.deny, policy.workdir, shared, os.environ)

    def decide(self, target: str, *, write: bool) -> Decision:
        plain = self._absolute(target)
        real = os.path.realpath(plain) if self._is_of_the_host(plain) else plain
        if real == plain:
            return self._one(plain, write=write)
        # A link is followed: its own place must be open to be read, what it leads to must be open to the act.
        decision = self._one(plain, write=False)
        if write and decision.allowed:
            decision = self._protected(plain, itself=True) or decision
        if not decision.allowed:
            return decision
        behind = self._one(real, write=write)
        if behind.rule == OWN_RULE:
            behind = Decision(False, behind.rule, "the box has its own folder there, not the host's")
        return behind if behind.allowed else Decision(False, behind.rule, f"it leads to {real}, and {behind.why}")

    def execute(self, line: str) -> Decision:
        name = line.split()[0]
        if "/" in name:
            return self.decide(name, write=False)
        for folder in os.environ.get("PATH", os.defpath).split(":"):
            path = os.path.join(folder, name)
            if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
                closed = self._closed(path)
                return closed or Decision(True, "PATH", f"{path} is a tool of the caller's PATH, which is in the box read-only")
        return Decision(False, "PATH", f"no folder of the caller's PATH has {name!r}")

    def _absolute(self, target: str) -> str:
        if not target or "\0" in target:
            raise ArgumentError(f"{target!r} is not a path.")
        if target == "~" or target.startswith("~/"):
            target = self.home + target[1:]
        return os.path.normpath(os.path.join(self.policy.workdir, target))

    def _is_of_the_host(self, path: str) -> bool:
        return any(within(path, root) for root in (*self.shared, *self.mounts)) or self.policy.mode == "danger-full-access"

    def _one(self, path: str, *, write: bool) -> Decision:
        return self._closed(path) or (self._protected(path) if write else None) or self._innermost(path, write=write)

    def _closed(self, path: str) -> Decision | None:
        rule = next((said for pattern, said in self.deny.items() if covers(pattern, path)), "")
        rule = rule or next((pattern for pattern in self.secrets.denied if covers(pattern, path)), "")
        if rule:
            return Decision(False, "filesystem.deny", f"{rule} closes {path}")
        named = next((rule for secret, rule in self.secrets.paths if within(path, secret)), "") or built_in_rule(path, self.home)
        return Decision(False, named, f"the list of secrets closes {path}") if named else None

    def _protected(self, path: str, *, itself: bool = False) -> Decision | None:
        """What protects path; with itself not what protects a folder that holds it."""
        holds = _names_it if itself else covers
        rule = next((said for pattern, said in self.protect.items() if holds(pattern, path)), "")
        if rule:
            return Decision(False, "filesystem.protect", f"{rule} may be read and not changed")
        if name := protected_in_git(path):
            return Decision(False, f"built in: {name}", "git outside would run what is in it; the box changes a copy of its own")
        if name := self._setting(path):
            return Decision(False, f"built in: {name}", "something outside would run what is in it")
        return None

    def _setting(self, path: str) -> str:
        """The name of the built-in set that holds path, of a writable folder and of each repository in it; or ''."""
        for root in (folder.path for folder in (self.policy.workspace, *self.policy.writable) if folder):
            if not within(path, root) or path == root:
                continue
            folder = root
            for name in path[len(root) :].strip("/").split("/"):
                top, there = folder == root, os.path.lexists(f"{folder}/{name}")
                git = os.path.lexists(f"{folder}/{settings.GIT}")
                if name in settings.SETTINGS and (top or (git and there)):
                    return name
                if there and (
                    (top and name in settings.SHELLS) or (git and name in settings.HOOK_MANAGERS and _runs_hooks(folder))
                ):
                    return name
                folder = f"{folder}/{name}"
        return ""

    def _innermost(self, path: str, *, write: bool) -> Decision:
        if self.policy.mode == "danger-full-access":
            return Decision(True, "mode", "danger-full-access is the host's files as the caller sees them")
        holding = [(len(root), not writable, rule, root) for root, writable, rule in self._roots() if within(path, root)]
        if not holding:
            return Decision(False, "default", f"nothing of the policy opens {path}, so it is not in the box")
        _, read_only, rule, root = max(holding)
        if write and read_only:
            return Decision(False, rule, f"{root} may be read and not changed")
        if rule == OWN_RULE and not write and os.path.lexists(path) and path not in OWN:
            return Decision(False, rule, f"the box has a {root} of its own, in which the host's {path} is not")
        return Decision(True, rule, f"{path} is in {root}" if path != root else f"it is {root}")

    def _roots(self) -> Iterator[tuple[str, bool, str]]:
        policy = self.policy
        if policy.workspace:
            yield policy.workspace.path, policy.mode == "workspace-write", "filesystem.workspace"
        else:
            yield policy.workdir, True, "filesystem.workspace"
        yield from ((folder.path, True, "filesystem.writable") for folder in policy.writable)
        yield from ((folder.path, False, "filesystem.read_only") for folder in policy.read_only)
        yield from ((path, writable, "the system's folders") for path, writable in self.mounts.items())
        yield from ((path, True, OWN_RULE) for path in OWN)


def _names_it(pattern: str, path: str) -> bool:
    """Whether pattern matches path itself, and not only a folder above it."""
    return matches(pattern, path) if is_glob(pattern) else literal(pattern) == path


def _both_spellings(patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each pattern, and the same where its fixed folder really lies, with the pattern that was said."""
    for pattern in patterns:
        yield pattern, pattern
        if is_glob(pattern):
            yield moved(pattern, os.path.realpath(compiled(pattern).prefix)), pattern
        else:
            yield escaped(os.path.realpath(literal(pattern))), pattern


def _runs_hooks(repository: str) -> bool:
    """Whether git runs hooks of a repository; not looked at is core.hooksPath."""
    hooks = f"{repository}/{settings.GIT}/{settings.HOOKS}"
    try:
        return any(os.access(f"{hooks}/{name}", os.X_OK) for name in os.listdir(hooks) if name in settings.HOOK_NAMES)
    except OSError:
        return False


GIT_FILES = ("config", "config.worktree", "commondir", "gitdir")


def protected_in_git(path: str) -> str:
    """What of a git directory protects path: settings and hooks, of modules and worktrees too; or ''."""
    names = path.split("/")
    for at, name in enumerate(names[:-1]):
        inner = names[at + 1 :]
        if name != ".git" or not inner:
            continue
        while inner[:1] == ["modules"] or inner[:1] == ["worktrees"]:
            inner = inner[2:]
            while inner and inner[0] not in (*GIT_FILES, "hooks", "modules", "worktrees") and len(inner) > 1:
                inner = inner[1:]
        if inner and (inner[0] == "hooks" or (inner == [inner[0]] and inner[0] in GIT_FILES)):
            return f".git/{'/'.join(names[at + 1 : len(names) - len(inner) + 1])}"
    return ""


def reaches(policy: ResolvedPolicy, target: str) -> Verdict:
    """What reach.decide says of a program's own connect to HOST:PORT that carries what the port is for.

    Raises ArgumentError for what has no port; what is no host is refused, as it would be in the box.
    """
    from ringfence.policy import reach  # most acts are on files
    from ringfence.policy.hosts import BadHostError, normalise

    host, _, port = target.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise ArgumentError(f"{target!r} is not HOST:PORT with a port from 1 to 65535.")
    try:
        asked = reach.Asked(normalise(host), int(port), reach.likely_scheme(int(port)))
    except BadHostError as error:
        return reach.Verdict(False, "malformed", f"{host!a} is no host: {error}")
    return reach.decide(policy.network, asked)


def _variable(policy: ResolvedPolicy, name: str) -> Decision:
    if name in dict(policy.environment):
        return Decision(True, "environment", "the policy sets it or passes it")
    if name in VARIABLES:
        return Decision(True, "the box's own variables", "every box has one, made for it")
    return Decision(False, "default", "nothing of the caller's environment is passed but what environment.pass names")
