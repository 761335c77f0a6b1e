"""One meaning for every glob of a policy: how an absolute pattern matches an absolute path.

`*` and `?` stay within one name, `**` as a whole name stands for any number of folders, `[a-z]` for one character, `\\` takes
the next character as it is. Names that begin with a dot match like others, upper and lower case differ. A pattern without any
of these is a path: it matches itself and everything below it. Braces, a leading `!` and extended globs are no patterns here;
they are refused by name, since a rule that silently matches nothing closes nothing.

Matching never backtracks over a star: each part between two stars takes its leftmost place, which is always right for globs,
so the cost is bounded by the product of both lengths whatever pattern and path are. What a bracket means is left to wcmatch,
which is imported for nothing else: it takes longer to import than a box to make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from ringfence.errors import ConfigError

ANY_FOLDERS = "**"
# Texts, not compiled: most boxes need none of them, and re keeps what it compiled.
_SPECIAL = r"(?s)\\.|[*?\[]"
_BRACES = r"(?<!\\)\{[^{}]*(?:,|\.\.)[^{}]*\}"
_EXTENDED = r"(?<!\\)[@!+?*]\("
_BRACKET = r"\[[!^]?\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*\]"

Name: TypeAlias = str | re.Pattern[str]
"""One name of a pattern: the name itself, or what matches it."""


def check(pattern: str) -> None:
    """Raise ConfigError for what looks like a pattern elsewhere and is none here; says what to write instead."""
    cause = ""
    if pattern.startswith("!"):
        cause = "begins with '!': a rule takes away and never gives back; leave the exception out of the pattern"
    elif re.search(_BRACES, pattern):
        cause = "has braces: write one line for each alternative, or \\{ where the name has a brace"
    elif re.search(_EXTENDED, pattern):
        cause = "has an extended glob: write one line for each alternative, or \\( where the name has a parenthesis"
    elif pattern.startswith("~") and pattern != "~" and not pattern.startswith("~/"):
        cause = "names another user's home: write its path"
    elif "\\/" in pattern or len(pattern) - len(pattern.rstrip("\\")) & 1:
        cause = "has a backslash that stands before no character of a name: write \\\\ for a backslash"
    if cause:
        raise ConfigError(f"the pattern {pattern!r} {cause}.")


def is_glob(pattern: str) -> bool:
    """Whether pattern has a wildcard; else it is a path, spelled as literal() gives it."""
    return any(found[0][0] != "\\" for found in re.finditer(_SPECIAL, pattern))


def literal(pattern: str) -> str:
    """The path that a pattern without wildcards stands for."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL) if "\\" in pattern else pattern


def escaped(path: str) -> str:
    """A path as a pattern that stands for it alone."""
    return re.sub(r"[\\*?\[{(]", r"\\\g<0>", path)


def matches(pattern: str, path: str) -> bool:
    """Whether the absolute pattern matches the absolute path, neither with a trailing slash or '.' and '..' in it."""
    if not is_glob(pattern):
        return within(path, literal(pattern))
    return compiled(pattern).matches(path)


def covers(pattern: str, path: str) -> bool:
    """Whether pattern matches path or a folder above it: what is covered hides everything below."""
    while not matches(pattern, path):
        if path in ("/", ""):
            return False
        path = path.rpartition("/")[0] or "/"
    return True


def moved(pattern: str, prefix: str) -> str:
    """A pattern with wildcards whose fixed folder is another one: where the folder's own path leads through links."""
    glob = compiled(pattern)
    names = pattern.strip("/").split("/")[glob.depth :]
    return "/".join((escaped(prefix.rstrip("/")), *names))


def within(path: str, root: str) -> bool:
    """Whether path is root or lies below it, by their names alone."""
    return path == root or path.startswith(root if root == "/" else root + "/")


class Glob:
    """A pattern with wildcards, ready to be matched.

    prefix: the folder that every match lies below, and depth its names. last: what the last name of every match is. deepest: how
    many names a match has, None where `**` leaves that open.
    """

    def __init__(self, pattern: str) -> None:
        names = pattern.strip("/").split("/")
        fixed = next(at for at, name in enumerate(names) if is_glob(name))
        self.pattern = pattern
        self.prefix = "/" + "/".join(literal(name) for name in names[:fixed])
        self.depth = fixed
        self._runs = _runs([_name(name) for name in names[fixed:]])
        self.deepest = len(names) if len(self._runs) == 1 else None
        end = self._runs[-1][-1]
        self.last = re.compile(re.escape(end)) if isinstance(end, str) else end

    def matches(self, path: str) -> bool:
        if not within(path, self.prefix) or path == self.prefix:
            return False
        return _fits(self._runs, path.strip("/").split("/")[self.depth :])


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Glob:
    """pattern, which has a wildcard, ready to be matched."""
    return Glob(pattern)


def _runs(names: list[Name]) -> list[list[Name]]:
    """The names between the `**`; at the end it stands for one name at least, so that a folder's content is not the folder."""
    if names[-1] == ANY_FOLDERS:
        names = [*names, re.compile(".*", re.DOTALL)]
    runs: list[list[Name]] = [[]]
    for name in names:
        if name == ANY_FOLDERS:
            runs.append([])
        else:
            runs[-1].append(name)
    return runs


def _fits(runs: Sequence[list[Name]], names: Sequence[str]) -> bool:
    """Whether the runs occur in names in order, the first at the start, the last at the end, the others leftmost."""
    first, last = runs[0], runs[-1]
    if len(runs) == 1:
        return len(first) == len(names) and _here(first, names, 0)
    end = len(names) - len(last)
    at = len(first)
    if end < at or not _here(first, names, 0) or not _here(last, names, end):
        return False
    for run in runs[1:-1]:
        while at + len(run) <= end and not _here(run, names, at):
            at += 1
        at += len(run)
        if at > end:
            return False
    return True


def _here(run: list[Name], names: Sequence[str], at: int) -> bool:
    return all(
        name == found if isinstance(name, str) else name.fullmatch(found) is not None
        for name, found in zip(run, names[at:], strict=False)
    )


def _name(text: str) -> Name:
    if text == ANY_FOLDERS:
        return ANY_FOLDERS
    return _expression(text) if is_glob(text) else literal(text)


def _expression(text: str) -> re.Pattern[str]:
    """One name with wildcards. Every part after a star is an atomic group: it takes its leftmost place and never gives it back."""
    parts = [""]
    at = 0
    while at < len(text):
        bracket = re.match(_BRACKET, text[at:]) if text[at] == "[" else None
        if bracket:
            parts[-1] += _bracket()(bracket[0])
            at += bracket.end()
        elif text[at] == "*":
            parts.append("")
            at += 1
        elif text[at] == "?":
            parts[-1] += "."
            at += 1
        else:
            at += text[at] == "\\"
            parts[-1] += re.escape(text[at])
            at += 1
    if len(parts) == 1:
        return re.compile(parts[0], re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return re.compile(f"{parts[0]}{middle}.*{parts[-1]}", re.DOTALL)


def _bracket() -> Callable[[str], str]:
    from wcmatch import fnmatch  # 35 ms: for patterns with brackets only

    def expression(text: str) -> str:
        found: str = fnmatch.translate(text, flags=fnmatch.CASE | fnmatch.DOTMATCH)[0][0]
        return found.removeprefix("^").removesuffix("$")

    return expression
