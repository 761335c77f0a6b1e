"""From a policy file to a config: strict in what is read, and every complaint has a line and a column."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ringfence.errors import ConfigError, PolicyError
from ringfence.policy.complaint import complaint
from ringfence.policy.compose import compose
from ringfence.policy.config import SandboxConfig, SandboxLimits
from ringfence.policy.document import Document, Path, Value, part_at
from ringfence.policy.hostrules import host_rule
from ringfence.policy.keys import FIELDS, is_key
from ringfence.policy.network import HostRule, published
from ringfence.policy.patterns import check as check_pattern
from ringfence.policy.patterns import escaped
from ringfence.policy.schema import VERSION, PolicyFile
from ringfence.policy.source import read_document
from ringfence.values import frozen, replace

VERBS = ("read", "write", "exec", "connect", "env")
ANYWHERE = "**/"


@frozen
class Example:
    """An act that the policy must decide as said. said is the text of the file, verb and object its parts; path its key."""

    path: Path
    said: str
    verb: str
    object: str
    allowed: bool


@frozen
class Policy:
    """A policy file that was read. said: the fields of the config that it names; what it does not name has its default."""

    document: Document
    config: SandboxConfig
    said: frozenset[str]
    examples: tuple[Example, ...]

    def fault(self, key: str, what: str, hint: str | None = None) -> PolicyError:
        """The error about one of its keys, with the line and the column."""
        return self.document.fault(tuple(key.split(".")), what, hint)


def load_policy(file: str | os.PathLike[str]) -> Policy:
    """Read a policy file, YAML or TOML by its name. The same file gives the same config wherever the caller is.

    Relative paths start at the folder of the file, `~` is the caller's home. Raises PolicyError, a ConfigError, with line and
    column. Nothing is looked at but the file: paths that are missing are found when a box is made.
    """
    document = read_document(file)
    said = _checked(document)
    folder = os.path.realpath(os.path.dirname(os.path.abspath(document.file)))
    own = os.path.join(folder, os.path.basename(document.file))
    _refuse_contradictions(document, said)
    fields, limits = _fields(document, said, folder)
    try:
        config = SandboxConfig(**fields, limits=SandboxLimits(**limits), policy_files=(own,))
    except ConfigError as error:
        raise placed(document, error) from None
    named = frozenset(name for key, (name, _) in FIELDS.items() if _is_said(document.value, key))
    return Policy(document, config, named | {"policy_files"}, tuple(_examples(document, said, folder)))


def load_config(files: Sequence[str | os.PathLike[str]], options: SandboxConfig, given: Mapping[str, object]) -> SandboxConfig:
    """The config of a policy file, narrowed by each further one and then by options, in the fields that given has a value for.

    The workspace of options is taken where no file names one; what is kept of the output is always that of options. Raises
    PolicyError, and WideningError where a later part would open what an earlier one closes.
    """
    first, *others = (load_policy(file) for file in files)
    config = first.config
    for policy in others:
        config = compose(config, policy.config, policy.said)
    said = {name for name, value in given.items() if value is not None}
    if config.workspace is None:
        config = replace(config, workspace=options.workspace)
        said.discard("workspace")
    config = compose(config, options, said)
    kept = options.limits
    limits = replace(config.limits, output_bytes=kept.output_bytes, output_head_bytes=kept.output_head_bytes)
    return replace(config, limits=limits)


def _checked(document: Document) -> PolicyFile:
    """The document as the model has it; raises PolicyError at the place of what does not fit."""
    value = document.value
    if "version" not in value:
        raise document.fault((), "the key version is missing.", f"Begin with the line `version: {VERSION}`.")
    if value["version"] != VERSION or value["version"] is True:
        said = f"version {value['version']!a} is not known: this ringfence reads version {VERSION}."
        raise document.fault(("version",), said, "Write the file for that version.")
    try:
        return msgspec.convert(value, PolicyFile, strict=True)
    except msgspec.ValidationError as error:
        raise complaint(document, str(error)) from None


def _is_said(value: Value, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def _refuse_contradictions(document: Document, said: PolicyFile) -> None:
    """What two keys say that cannot both hold."""
    workspace = said.filesystem.workspace
    if workspace.mode == "read-write" and said.mode == "read-only":
        raise document.fault(
            ("filesystem", "workspace", "mode"), "filesystem.workspace.mode is read-write, but mode is read-only.", "Change one."
        )
    if workspace.mode == "read-only" and said.mode == "danger-full-access":
        what = "filesystem.workspace.mode is read-only, but mode is danger-full-access."
        raise document.fault(("filesystem", "workspace", "mode"), what, "Change one.")
    if workspace.path is None and (workspace.mode is not None or workspace.at is not None):
        what = "filesystem.workspace has no path, so there is no folder that this is about."
        raise document.fault(("filesystem", "workspace", "mode" if workspace.mode else "at"), what, "Give it a path.")
    for level in ("cpu", "memory_gib"):
        bounds = getattr(said.resources, level)
        if bounds.guaranteed is not None and bounds.limit is not None and bounds.guaranteed > bounds.limit:
            what = f"resources.{level}.guaranteed is more than resources.{level}.limit."
            raise document.fault(("resources", level, "guaranteed"), what, "Change one.")
    for at, key in enumerate(said.best_effort):
        if not is_key(key):
            what = f"best_effort names {key!a}, which is not a key of a policy."
            raise document.fault(("best_effort", at), what, "Write it as the whole path, such as resources.disk_gib.")
    for name in said.environment.pass_:
        if name in said.environment.set:
            what = f"environment.set has {name!a}, which environment.pass takes from the caller."
            raise document.fault(("environment", "set", name), what, "Remove one of the two.")


def _fields(document: Document, said: PolicyFile, folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of SandboxConfig and of SandboxLimits that the file means."""
    whole: dict[str, Any] = {}
    for key, (name, unit) in FIELDS.items():
        value: Any = said
        for part in key.split("."):
            value = getattr(value, {"pass": "pass_"}.get(part, part))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = value * unit if name.endswith("_seconds") or name.startswith("limits.cpu_") else int(value * unit)
        whole[name] = tuple(value) if isinstance(value, list) else value
    whole["mode"] = "read-only" if said.filesystem.workspace.mode == "read-only" else said.mode
    whole["workspace"] = _workspace(document, said, folder)
    whole["allow_network"] = said.network.default == "allow"
    whole["private_addresses"] = said.network.private_addresses == "allow"
    for name in ("allow", "deny"):
        whole[f"network_{name}"] = tuple(_rules(document, name))
    whole["permissions"] = tuple(_permissions(document, said, folder))
    whole["network_publish"] = tuple(_published(entry, folder) for entry in said.network.publish)
    if said.network.remember is not None:
        whole["network_remember"] = located(said.network.remember, folder)
    whole["python"] = None if said.python.interpreter == "auto" else located(said.python.interpreter, folder)
    whole["syscalls"] = tuple(name for name in ("debug", "nested") if getattr(said.syscalls, name))
    for name in ("read_only", "writable", "devices"):
        whole[name] = tuple(located(path, folder) for path in whole[name])
    for name in ("deny", "protect"):
        whole[name] = tuple(_patterns(document, whole[name], name, folder))
    head, tail = (
        int(size * FIELDS["resources.output_mib"][1]) for size in (said.resources.output_mib.head, said.resources.output_mib.tail)
    )
    whole["limits.output_bytes"], whole["limits.output_head_bytes"] = head + tail, head
    limits = {name.removeprefix("limits."): value for name, value in whole.items() if name.startswith("limits.")}
    return {name: value for name, value in whole.items() if not name.startswith("limits.")}, limits


def _patterns(document: Document, given: Sequence[str], name: str, folder: str) -> Iterator[str]:
    for at, pattern in enumerate(given):
        try:
            check_pattern(pattern)
        except ConfigError as error:
            raise document.fault(("filesystem", name, at), error.message) from None
        yield pattern if pattern.startswith(ANYWHERE) else located(pattern, folder, escaped)


def _rules(document: Document, name: str) -> Iterator[HostRule]:
    entries = part_at(document.value, ("network", name))
    for at, entry in enumerate(entries if isinstance(entries, list) else ()):
        # What is null there is as good as not there.
        given = {key: value for key, value in entry.items() if value is not None} if isinstance(entry, dict) else entry
        try:
            yield host_rule(given, f"network_{name}")
        except ConfigError as error:
            what = error.message.replace(f"network_{name}", f"network.{name}", 1)
            raise document.fault(("network", name, at), what) from None


def _permissions(document: Document, said: PolicyFile, folder: str) -> Iterator[str]:
    """The rules for single acts as text; each is tried with its own examples."""
    if not said.permissions:
        return
    from ringfence.policy import permissions  # few files have any

    rules: list[permissions.Rule] = []
    for at, entry in enumerate(said.permissions):
        path: Path = ("permissions", at)
        try:
            rule = permissions.parse(entry) if isinstance(entry, str) else permissions.of_map(entry)
            if rule.kind in ("read", "write") and not rule.words[0].startswith(ANYWHERE):
                rule = replace(rule, words=(located(rule.words[0], folder, escaped),))
        except ConfigError as error:
            raise document.fault(path, error.message, error.next_step) from None
        if not isinstance(entry, str):
            for kind, example in permissions.failing_examples(rule, entry, folder):
                what = f"{rule.said} {'does not match' if kind == 'match' else 'matches'} its example {example!a}."
                raise document.fault((*path, "examples", kind), what, "Correct the rule or the example.")
        rules.append(rule)
    for at, what in permissions.contradictions(rules):
        raise document.fault(("permissions", at), what)
    yield from (rule.said for rule in rules)


def _published(entry: int | str, folder: str) -> int | str:
    try:
        path, port = published(entry)
    except ValueError:
        return entry  # the config says what is wrong with it
    return f"unix:{located(path, folder)}:{port}" if path else entry


def _workspace(document: Document, said: PolicyFile, folder: str) -> str | None:
    workspace = said.filesystem.workspace
    if workspace.path is None:
        return None
    path = located(workspace.path, folder)
    if workspace.at is not None and located(workspace.at, folder) != path:
        what = f"filesystem.workspace.at is {workspace.at!a}, but a box has its workspace at its own path, {path!a}."
        raise document.fault(("filesystem", "workspace", "at"), what, "Write null: another path waits for container tiers.")
    return path


def located(path: str, folder: str, quote: Callable[[str], str] = str) -> str:
    """A path of a file as an absolute one: `~` is the home, a relative one starts at folder. Links are not followed here.

    quote is what is done to home and folder, which are plain paths, where path is a pattern.
    """
    if path == "~" or path.startswith("~/"):
        path = quote(os.path.expanduser("~")) + path[1:]
    return os.path.normpath(os.path.join(quote(folder), path))


def placed(document: Document, error: ConfigError) -> PolicyError:
    """An error of the config at the key, and the entry of its list, that it is about, where it names one."""
    message = error.message.removeprefix("the ")
    for key, (name, _) in FIELDS.items():
        if not message.startswith(name):
            continue
        path: Path = tuple(key.split("."))
        entries = part_at(document.value, path)
        named = [at for at, entry in enumerate(entries) if str(entry) in message] if isinstance(entries, list) else []
        said = error.message.replace(name, key, 1) if "_" in name else error.message
        return document.fault((*path, *named[:1]), said, error.next_step)
    return document.fault((), error.message, error.next_step)


def _examples(document: Document, said: PolicyFile, folder: str) -> Iterator[Example]:
    for kind in ("allowed", "refused"):
        for at, text in enumerate(getattr(said.examples, kind)):
            path: Path = ("examples", kind, at)
            verb, _, rest = text.partition(" ")
            rest = rest.strip()
            if verb not in VERBS or not rest:
                raise document.fault(path, f"{text!a} is not an act.", f"Begin it with one of {', '.join(VERBS)}, then what.")
            if verb in ("read", "write"):
                rest = located(rest, folder)
            if verb == "connect" and not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:]+):[0-9]{1,5}", rest):
                raise document.fault(path, f"{rest!a} is not HOST:PORT.", "Write a name or an address, a colon and a port.")
            yield Example(path, text, verb, rest, kind == "allowed")
