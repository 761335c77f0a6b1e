"""ringfence completion: what completes a command line in bash, zsh or fish; made from the parsers, so never behind them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ringfence.values import frozen

EXAMPLE = 'example: eval "$(ringfence completion bash)"'
SHELLS = ("bash", "zsh", "fish")


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "completion",
        help="print what completes a command line in a shell",
        description="Print a script that completes commands, options, tiers, modes and files of ringfence in SHELL. In bash and "
        "zsh, put the line of the example into ~/.bashrc or, after compinit, ~/.zshrc. In fish, write the script to "
        "~/.config/fish/completions/ringfence.fish.",
        epilog=EXAMPLE,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    parser.set_defaults(action=action)


def action(given: argparse.Namespace) -> int:
    from importlib import import_module

    print(import_module(f"ringfence.cli.completion.{given.shell}").script(list(_commands())), end="")
    return 0


@frozen
class Option:
    """flags as they are typed. kind: what its value is, '' for one that takes none: file, folder, variable, other, or the words."""

    flags: tuple[str, ...]
    help: str
    kind: str


@frozen
class Command:
    """One command by its words. next: words that may follow, with what each is. kind: what else may follow; see Option."""

    words: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    next: tuple[tuple[str, str], ...]
    kind: str


KINDS = {
    "FILE": "file",
    "HEAD": "file",
    "PATH": "file",
    "DIR": "folder",
    "NAME[=V]": "variable",
    "CMD": "command",
    "A": "file",
    "B": "file",
}
"""What a value is, by how the help calls it."""
ASKED = (
    ("path", "which rule decides a path"),
    ("host", "which rule decides a host"),
    ("env", "which rule decides a variable"),
    ("exec", "which rules decide a shell line"),
)
ASKED_KINDS = {"path": "file", "host": "other", "env": "variable", "exec": "other"}


def _commands() -> Iterator[Command]:
    from ringfence.cli import COMMANDS, parser

    yield from _of(parser(list(COMMANDS)), (), "")
    for word, line in ASKED:
        yield Command(("explain", word), line, (), (), ASKED_KINDS[word])


def _of(parser: argparse.ArgumentParser, words: tuple[str, ...], line: str) -> Iterator[Command]:
    options, following, kind, below = [], [], "", []
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in each._choices_actions}
            following += [(name, lines.get(name, "")) for name in each.choices]
            below += [(made, (*words, name), lines.get(name, "")) for name, made in each.choices.items()]
        elif each.option_strings:
            options.append(Option(tuple(each.option_strings), each.help or "", "" if each.nargs == 0 else _kind(each)))
        elif each.choices:
            following += [(str(choice), "") for choice in each.choices]
        else:
            kind = _kind(each)
    if words == ("explain",):
        following += ASKED
    yield Command(words, line, tuple(options), tuple(following), kind)
    for made, name, help_line in below:
        yield from _of(made, name, help_line)


def _kind(action: argparse.Action) -> str:
    from ringfence.policy.config import BUILT_TIERS, MODES, PRESETS

    if action.choices:
        return " ".join(str(choice) for choice in action.choices)
    name = str(action.metavar or action.dest)
    return {"T": " ".join(BUILT_TIERS), "M": " ".join(MODES), "CLIENT": " ".join(PRESETS)}.get(name) or KINDS.get(name, "other")
