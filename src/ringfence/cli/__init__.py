"""The command line: one file for each command, of which only the one that is asked for is loaded.

Arguments are parsed by argparse and the run is driven without an event loop, because a command line is started cold each time:
what it imports is most of what it costs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from ringfence.errors import RingfenceError

OURS = 125
"""The exit status of a failure that is ringfence's and not the command's, as env(1), nohup(1) and timeout(1) have it."""


MISUSED = 2
"""The exit status of arguments that mean nothing, as argparse and most shells' builtins have it. Nothing was started."""

COMMANDS = {
    "run": "run a command in a box",
    "python": "run a Python program in a box",
    "explain": "show what a box would be, before anything runs",
    "doctor": "show what this host delivers, and what adds the rest",
    "check": "check a policy file and try its examples",
    "trace": "show, check and prune the record of boxes and runs",
    "mcp": "serve tools over one box to an agent that speaks MCP",
    "policy": "compare policy files, print their schema",
    "completion": "print what completes a command line in a shell",
}
"""The modules of this package that are commands, with their line in the help."""

MAKING_BOXES = ("run", "python", "explain", "mcp")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are safe to print, and name what was probably meant."""

    def error(self, message: str) -> NoReturn:
        from ringfence.cli.shown import shown  # only where something is wrong

        self.print_usage(sys.stderr)
        self.exit(MISUSED, f"{self.prog}: {shown(message)}{self._meant(message)}\n")

    def _meant(self, message: str) -> str:
        """What was probably meant by a choice or an option that is none, as the end of a sentence."""
        choice = re.search(r"invalid choice: '(.*?)'.*?choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if choice:
            word, known = choice[1], re.findall(r"[\w-]+", choice[2])
        elif option:
            word, known = option[1], re.findall(r"--[\w-]+", self.format_help())
        else:
            return ""
        from difflib import get_close_matches

        near = get_close_matches(word, known, 1)
        return f"; did you mean {near[0]!r}?" if near else ""


class _Help(argparse.HelpFormatter):
    """Leaves room for the names of commands, which argparse indents without counting that."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        self._action_max_length = max(self._action_max_length, 4 + max(map(len, COMMANDS)))


def parser(asked: Sequence[str]) -> Parser:
    """The parser with the commands that are asked for: where it is one, without the others; else they are only named."""
    made = Parser(
        prog="ringfence",
        description="Run commands where they can do no harm. `ringfence COMMAND --help` says more of each.",
        epilog="example: ringfence run -- make test",
        formatter_class=_Help,
    )
    made.add_argument("--version", action="store_true", help="show the version and exit")
    # prog: or shutil is loaded to find it.
    commands = made.add_subparsers(prog="ringfence", dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, line in COMMANDS.items():
        if name in asked:
            import_module(f"ringfence.cli.{name}").add_to(commands)
        elif len(asked) != 1:
            commands.add_parser(name, help=line)
    made.set_defaults(parser=commands.choices.get(*asked) if len(asked) == 1 else made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the command line; the exit status of what it ran, or 125 and a message where that is ours."""
    arguments = sys.argv[1:] if argv is None else argv
    asked = arguments[0] if arguments else ""
    while (lowest := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        os.set_inheritable(lowest, True)  # one of the three was closed, and what we open next would be taken for it
    os.close(lowest)
    if asked in MAKING_BOXES:
        import ringfence

        try:
            ringfence.warm_up()  # it starts while the rest is imported
        except RingfenceError:
            pass  # the box cannot be made either, and that says so
    made = parser([asked] if asked in COMMANDS else [])
    given, unknown = made.parse_known_args(arguments)
    if unknown:
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if given.version:
        from importlib.metadata import version

        print(f"ringfence {version('ringfence')}")
        return 0
    if given.command is None:
        made.print_help(sys.stderr)
        return MISUSED
    try:
        return int(given.action(given))
    except RingfenceError as error:
        from ringfence.cli.running import complain

        return complain(error)
    except KeyboardInterrupt:
        return 130  # as a shell shows a command that SIGINT ended
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains of it once more at its end
        return 141  # as a shell shows a command that SIGPIPE ended: who read our output is gone
    except OSError as error:
        from ringfence.cli.shown import shown

        print(f"ringfence: {shown(str(error))}", file=sys.stderr)
        return OURS
