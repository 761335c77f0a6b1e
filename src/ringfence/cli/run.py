"""ringfence run: one command in a box over a folder."""

from __future__ import annotations

import argparse
from typing import Any

from ringfence.cli import running

EXAMPLE = "example: ringfence run --timeout 60 -- pytest -q"


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "run",
        help="run a command in a box",
        description="Run CMD in a box over a folder. The exit status is the command's; 125 and a message when the failure "
        "is ringfence's, 124 at a limit, 126 and 127 as a shell has them. A terminal is not passed to the command in this "
        "version: it reads what is piped or redirected, else nothing.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    parser.add_argument("argv", metavar="CMD", nargs=argparse.REMAINDER, help="the command and its arguments, after --")
    parser.set_defaults(action=lambda given: action(parser, given))


def action(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    if not argv:
        parser.error("a command is missing: put it after --")
    from ringfence.sync import Sandbox

    with Sandbox(running.config(given)) as box:
        result = box.run(argv, input=running.caller_input(), on_stdout=running.writer(1), on_stderr=running.writer(2))
    return running.status_of(result)
