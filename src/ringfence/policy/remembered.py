"""Hosts that somebody allowed for good: the file that network.remember names, one `HOST:PORT` a line.

Read when a box is made, as entries of network.allow; written when somebody answers 'always'. Each answer is one write at the end
of the file, so that boxes which answer at once lose nothing (O_APPEND, open(2)). A box can never write it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError
from ringfence.policy.links import LinkOfABox, real_path
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.policy.patterns import within
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig

MAX_BYTES = 256 * 1024
KEY = "network.remember"
WHERE = "network_remember"
OPENED = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
"""What is not a regular file is not waited for, and no link is followed (open(2))."""
CARRIED = {443: ("tls",), 80: ("http",)}
"""What a port carries where it is asked about; any other one carries anything."""


class NotRemembered(Exception):
    """An answer that could not be written; its message says why."""


def place_of(given: str | os.PathLike[str], roots: Iterable[str], mode: str) -> str:
    """The file that a config names, its folder without links. roots: the workspace and what the box can write, by their real paths.

    Raises ConfigError where a box could write it, or its folder is missing.
    """
    path, shared = os.path.abspath(given), tuple(roots)
    if mode == "danger-full-access":
        raise ConfigError(f"{WHERE} and mode danger-full-access: a box could write {path}, and so open hosts to later boxes.")
    try:
        folder = real_path(os.path.dirname(path), shared)
    except LinkOfABox as error:
        raise ConfigError(f"{WHERE} names {path}, which is not used: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{WHERE} names {path}, whose folder cannot be used: {error.strerror}.") from None
    real = os.path.join(folder, os.path.basename(path))
    for root in shared:
        if within(real, root):
            raise ConfigError(
                f"{WHERE} names {path}, which is in {root}, a folder that boxes have: one could open hosts to later ones.",
                hint="Name a file outside of the workspace and of what is writable, such as one below ~/.config.",
            )
    return real


def remembered(path: str) -> tuple[HostRule, ...]:
    """The rules of the file at path, as place_of gave it; none where there is no file. Raises ConfigError with the line."""
    try:
        opened = os.open(path, os.O_RDONLY | OPENED)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{WHERE} names {path}, which cannot be opened: {_said(error)}.") from None
    try:
        data = _content(opened)
    except (NotRemembered, OSError) as error:
        raise ConfigError(f"{WHERE} names {path}, which is not used: {_said(error)}.") from None
    finally:
        os.close(opened)
    return tuple(dict.fromkeys(_rules(path, data)))


def remember(path: str, place: str) -> None:
    """Add a place, `HOST:PORT`, to the file at path; nothing is written where it is there. Raises NotRemembered."""
    try:
        rule_of(place)
    except ConfigError as error:
        raise NotRemembered(error.message) from None
    line = place.encode() + b"\n"
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OPENED, 0o600)
    except OSError as error:
        raise NotRemembered(_said(error)) from None
    try:
        data = _content(opened)
        if line.rstrip() in data.split(b"\n"):
            return
        if data and not data.endswith(b"\n"):  # somebody wrote it by hand
            line = b"\n" + line
        if len(data) + len(line) > MAX_BYTES:
            raise NotRemembered(f"it would have more than {MAX_BYTES} bytes")
        if os.write(opened, line) != len(line):
            raise NotRemembered("not all of it was written")
        os.fsync(opened)
    except OSError as error:
        raise NotRemembered(_said(error)) from None
    finally:
        os.close(opened)


def rule_of(place: str) -> HostRule:
    """The rule of one `HOST:PORT`. Raises ConfigError."""
    from ringfence.policy.hostrules import host_rule

    rule = host_rule(place, KEY)
    if not rule.host or "*" in rule.host or len(rule.ports) != 1:
        raise ConfigError(f"{KEY} has {place!a}, which is no NAME:PORT.")
    return replace(rule, said=f"{KEY}: {place}", schemes=CARRIED.get(rule.ports[0], ()))


def beyond(ceiling: SandboxConfig, rule: HostRule) -> bool:
    """Whether a ceiling opens a remembered rule by none of its own: its rules, its default, its asking, the same file."""
    from ringfence.policy.hostrules import rules_of
    from ringfence.policy.hosts import normalise
    from ringfence.policy.reach import Asked, decide

    policy = NetworkPolicy(
        default="allow" if ceiling.allow_network else "deny",
        allow=rules_of(ceiling),
        deny=tuple(each for each in ceiling.network_deny if isinstance(each, HostRule)),
        on_unknown="ask" if ceiling.network_remember is not None else ceiling.on_unknown_domain,
    )
    schemes = rule.schemes or ("tcp",)
    verdict = decide(policy, Asked(normalise(rule.host), rule.ports[0], schemes[0], "transparent"))
    return not (verdict.allowed or verdict.ask)


def under(ceiling: SandboxConfig, config: SandboxConfig) -> SandboxConfig:
    """config with what its file remembers beyond a ceiling denied. Raises ConfigError."""
    assert config.network_remember is not None
    found = remembered(os.path.abspath(config.network_remember))
    closed = tuple(
        HostRule(f"{each.said}, beyond the ceiling", host=each.host, ports=each.ports) for each in found if beyond(ceiling, each)
    )
    return replace(config, network_deny=(*config.network_deny, *closed))


def _content(opened: int) -> bytes:
    """All of an open file, if it can be trusted to be the caller's own. Raises NotRemembered, OSError."""
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        raise NotRemembered("it is no regular file")
    if found.st_nlink != 1:
        raise NotRemembered("it has a second name, by which others may write it")
    if found.st_uid != os.geteuid():
        raise NotRemembered("it belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotRemembered("others may write it: its mode has to be 0600")
    data = b""
    while len(data) <= MAX_BYTES and (part := os.read(opened, MAX_BYTES + 1 - len(data))):
        data += part
    if len(data) > MAX_BYTES:
        raise NotRemembered(f"it has more than {MAX_BYTES} bytes")
    return data


def _rules(path: str, data: bytes) -> Iterator[HostRule]:
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.decode("utf-8", "backslashreplace").strip()
        if not text or text.startswith("#"):
            continue
        try:
            yield rule_of(text)
        except ConfigError as error:
            raise ConfigError(
                f"{WHERE}: {path}, line {number}: {error.message}", hint="Correct the line to NAME:PORT, or remove it."
            ) from None


def _said(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
