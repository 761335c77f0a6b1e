"""git's settings, read without git: which of them name files that git itself would read or run (git-config(1)).

The files may be hostile: nothing is run, what is read is bounded, and a line that makes no sense is passed over, since git
refuses the whole file for it and runs nothing. Conditions of includeIf are taken as met.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

MAX_BYTES = 256 << 10
MAX_FILES = 32
"""Files that one repository's settings may include; git itself stops at a depth of ten."""

Entry = tuple[str, str]
"""(key, value): the section and name in lower case, a subsection between them as it is written."""

RUN = frozenset((
    "fsmonitor", "sshcommand", "gitproxy", "editor", "pager", "askpass", "external", "clean", "smudge", "process", "textconv",
    "command", "driver", "helper", "program", "uploadpack", "receivepack", "alternaterefscommand", "cmd", "defaultkeycommand",
    "packobjectshook", "difffilter", "tunnel", "httpd", "update",
))  # fmt: skip
"""Last parts of the keys whose values git runs. Aliases are not among them: somebody has to call one."""
RUN_IN = ("pager.", "browser.", "difftool.", "mergetool.", "man.")
"""Sections all of whose values may be programs."""

MAX_WORDS = 64

FILES_KEPT = 1000
SETTLED_NS = 50_000_000
"""Five ticks of the slowest kernel clock: a file that changed less than this ago may change again with the same times."""

_kept: dict[tuple[int, ...], tuple[Entry, ...]] = {}


class Settings(NamedTuple):
    """What the settings of a repository name: absolute paths, with whatever links and dots are in them.

    hooks: values of core.hooksPath, and the hooks of init.templateDir.
    included: files of include.path. run: words of commands, each as the path that it may be.
    worktree: core.worktree, or the empty string.
    """

    worktree: str = ""
    hooks: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def settings_of(files: tuple[str, ...], worktree: str, home: str) -> Settings:
    """What these files of settings, and those that they include, name for a repository with this worktree."""
    top = ""
    hooks: dict[str, None] = {}  # dictionaries, for their order
    included: dict[str, None] = {}
    run: dict[str, None] = {}
    pending, seen = list(files), 0
    while pending and seen < MAX_FILES:
        path = pending.pop(0)
        seen += 1
        for key, value in _entries(path):
            last = key.rpartition(".")[2]
            if key == "core.worktree":
                top = value
            elif key == "core.hookspath" and value:
                hooks[_absolute(value, worktree, home)] = None
            elif key == "init.templatedir" and value:
                hooks[_absolute(value, worktree, home) + "/hooks"] = None
            elif key == "include.path" or (key.startswith("includeif.") and last == "path"):
                inner = _absolute(value, os.path.dirname(path), home)
                if value and inner not in included:
                    included[inner] = None
                    pending.append(inner)
            elif last in RUN or key.startswith(RUN_IN):
                run.update(dict.fromkeys(_paths_in(value, worktree, home)))
    return Settings(top, tuple(hooks), tuple(included), tuple(run))


def _paths_in(command: str, worktree: str, home: str) -> Iterator[str]:
    """Words of a shell command, which may be paths; quotes are taken off, nothing else of the shell is understood."""
    for word in command.lstrip("!").split()[:MAX_WORDS]:
        plain = word.strip("'\"();&|")
        if plain and not plain.startswith("-"):
            yield _absolute(plain, worktree, home)


def _absolute(value: str, base: str, home: str) -> str:
    value = value.replace("\0", "")
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    return os.path.join(base, value)


def _entries(path: str) -> tuple[Entry, ...]:
    """The entries of a file, none where it is none that can be read. Kept while the file is the same by its times."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return ()
    try:
        found = os.fstat(descriptor)
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        entries = _kept.get(key)
        if entries is None:
            entries = tuple(parse(os.fsdecode(os.read(descriptor, MAX_BYTES)))) if stat.S_ISREG(found.st_mode) else ()
            if found.st_ctime_ns + SETTLED_NS < time.time_ns():
                if len(_kept) >= FILES_KEPT:
                    _kept.clear()
                _kept[key] = entries
        return entries
    except OSError:
        return ()
    finally:
        os.close(descriptor)


def parse(text: str) -> Iterator[Entry]:
    """The entries of a file of settings, in order. A name without a value has the value 'true', as git reads it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n"
    section, at = "", 0
    while at < len(text):
        letter = text[at]
        if letter.isspace():
            at += 1
        elif letter == "[":
            section, at = _section(text, at + 1)
        elif letter.isalpha():
            end = next(end for end in range(at, len(text)) if not (text[end].isalnum() or text[end] == "-"))
            name, at = text[at:end].lower(), _blanks(text, end)
            value = "true"
            if text[at] == "=":
                value, at = _value(text, _blanks(text, at + 1))
            elif text[at] not in "\n#;":
                at, name = text.index("\n", at), ""
            if section and name:
                yield f"{section}.{name}", value
        else:  # a comment, or what git would refuse the file for
            at = text.index("\n", at)


def _blanks(text: str, at: int) -> int:
    while text[at] in " \t":
        at += 1
    return at


def _section(text: str, at: int) -> tuple[str, int]:
    """(section, where what follows it begins) of the header whose bracket stands before at; one without an end has no name."""
    name, subsection, quoted = "", None, False
    while text[at] != "\n":
        letter = text[at]
        at += 1
        if letter == '"':
            quoted, subsection = not quoted, subsection or ""
        elif quoted:
            if letter == "\\":
                letter, at = text[at], at + 1
            subsection = (subsection or "") + letter
        elif letter == "]":
            plain = name.strip().lower()
            return (plain if subsection is None else f"{plain}.{subsection}"), at
        else:
            name += letter
        if at >= len(text):
            break
    return "", at


def _value(text: str, at: int) -> tuple[str, int]:
    """(value, where its line ends): quotes taken off, escapes understood, a comment and the blanks around it left out."""
    value, kept, quoted = "", 0, False
    while text[at] != "\n":
        letter = text[at]
        at += 1
        if letter == '"':
            quoted = not quoted
            kept = len(value)
        elif letter in "#;" and not quoted:
            return value[:kept], text.index("\n", at)
        elif letter == "\\":
            if text[at] != "\n":
                value += {"n": "\n", "t": "\t", "b": "\b"}.get(text[at], text[at])
                kept = len(value)
            at += 1
            if at >= len(text):
                break
        else:
            value += letter
            if quoted or not letter.isspace():
                kept = len(value)
    return value[:kept], at
