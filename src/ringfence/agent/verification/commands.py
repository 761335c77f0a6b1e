"""Which commands check a project: those that its files call for, read without running anything of it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ringfence.errors import ArgumentError
from ringfence.values import field, frozen

READ_MOST = 1 << 20
"""Bytes of a project's file that are looked at. A box may have written it."""


@frozen
class Command:
    """One step of a check. argv: a program with arguments, or a shell line.

    timeout: seconds that the command may take; running over them is a failure of the code. Without one the limits of the box hold,
    and meeting those says nothing of the code. cwd: relative to the tree. env: variables added. probe: whether it only asks for
    what the next one needs, so that its failure says nothing of the code.
    """

    argv: str | Sequence[str]
    timeout: float | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    probe: bool = False

    def __str__(self) -> str:
        return self.argv if isinstance(self.argv, str) else shlex.join(self.argv)


def given(commands: Sequence[str | Sequence[str] | Command]) -> tuple[Command, ...]:
    """The commands of a caller; a text is a shell line, a list is an argv. Raises ArgumentError."""
    if isinstance(commands, str) or not commands:
        raise ArgumentError(f"commands is a list of shell lines, argvs and Commands, and not empty; not {commands!r}.")
    made = tuple(each if isinstance(each, Command) else Command(each) for each in commands)
    for each in made:
        argv: object = each.argv
        if not argv or not (isinstance(argv, str) or (isinstance(argv, Sequence) and all(isinstance(part, str) for part in argv))):
            raise ArgumentError(f"{each.argv!r} is neither a shell line nor an argv.")
    return made


def recognised(tree: str) -> tuple[tuple[str, ...], tuple[Command, ...]]:
    """The kinds of project in the top folder of tree, and the commands that build and test them; both empty where none is known.

    A Makefile counts only by itself: beside another kind it wraps what that one's own commands do.
    """
    found = {kind: commands for kind, of in KINDS.items() if (commands := of(tree))}
    if not found and (commands := _make(tree)):
        found["make"] = commands
    return tuple(found), tuple(command for commands in found.values() for command in commands)


def _pytest(tree: str) -> list[Command]:
    settings = {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]", "pytest.ini": ""}
    if not any((text := _text(tree, name)) is not None and sign in text for name, sign in settings.items()):
        names = {name for folder in ("", "tests", "test") for name in _names(os.path.join(tree, folder))}
        if not any(re.fullmatch(r"test_.*\.py|.*_test\.py|conftest\.py", name) for name in names):
            return []
    python = _python(tree)
    # -I: a pytest.py of the tree is not taken for it. Where it is missing, `-m pytest` would look like a failure of the code.
    return [Command([python, "-I", "-c", "import pytest"], probe=True), Command([python, "-m", "pytest", "-q"])]


def _python(tree: str) -> str:
    for folder in (".venv", "venv"):
        if os.path.lexists(f"{tree}/{folder}/bin/python"):
            return f"{folder}/bin/python"
    return sys.executable


def _cargo(tree: str) -> list[Command]:
    if _text(tree, "Cargo.toml") is None:
        return []
    return [Command(["cargo", "build", "--offline"]), Command(["cargo", "test", "--offline"])]


def _go(tree: str) -> list[Command]:
    if _text(tree, "go.mod") is None:
        return []
    return [Command(["go", "build", "./..."]), Command(["go", "test", "./..."])]


def _npm(tree: str) -> list[Command]:
    try:
        package: Any = msgspec.json.decode(_text(tree, "package.json") or "null")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return [Command(["npm", "test"])]  # npm says what is wrong with it
    scripts = package.get("scripts") if isinstance(package, dict) else None
    if not isinstance(scripts, dict):
        return []
    return [Command(["npm", "run", name]) for name in ("build", "test") if isinstance(scripts.get(name), str)]


def _make(tree: str) -> list[Command]:
    for name in ("GNUmakefile", "makefile", "Makefile"):  # make's own order
        if (text := _text(tree, name)) is not None:
            tests = [target for target in ("test", "check") if re.search(rf"^{target}\s*::?(?!=)", text, re.MULTILINE)]
            return [Command(["make"]), *(Command(["make", target]) for target in tests[:1])]
    return []


KINDS: Mapping[str, Callable[[str], list[Command]]] = {"cargo": _cargo, "go": _go, "npm": _npm, "pytest": _pytest}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(tree: str, name: str) -> str | None:
    """The beginning of a regular file, None where there is none; no link is followed and no FIFO waited for."""
    try:
        descriptor = os.open(os.path.join(tree, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            return file.read(READ_MOST).decode("utf-8", "replace")
        except OSError:  # a folder
            return None
