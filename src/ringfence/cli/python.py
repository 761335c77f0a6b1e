"""ringfence python: one program in a box over a folder, in a fresh interpreter."""

from __future__ import annotations

import argparse
from typing import Any

from ringfence.cli import relay, running
from ringfence.cli.late import recorded
from ringfence.errors import ArgumentError

EXAMPLE = "example: ringfence python -c 'print(40 * 10)'"


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "python",
        help="run a Python program in a box",
        description="Run the program FILE, or CODE, in a box over a folder. Exit statuses are those of `ringfence run`. "
        "The program's input is empty in this version.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    parser.add_argument("-c", dest="code", metavar="CODE", help="the program itself")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a file with the program")
    parser.set_defaults(action=lambda given: action(parser, given))


def action(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    if (given.code is None) == (given.file is None):
        parser.error("give either FILE or -c CODE")
    code = given.code if given.code is not None else _text(given.file)
    from ringfence.sync import Sandbox

    config, trace = recorded(given, running.config(given, kept=running.KEPT_BYTES))
    ceiling = running.ceiling(given, config)
    with running.approver(config) as approver, Sandbox(config, approver=approver, ceiling=ceiling, trace=trace) as box:
        running.say_published(box)
        sinks = (relay.to_caller(1), relay.to_caller(2))
        if approver is None:
            result = box.execute(code, on_stdout=sinks[0], on_stderr=sinks[1])
        else:
            from ringfence.cli import asking  # as in running.approver

            out, complain = asking.held(approver, *sinks)
            result = box.execute(code, on_stdout=out, on_stderr=complain)
            asking.tell(result)
    return running.status_of(result)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        raise ArgumentError(f"the program {path!r} cannot be read: {error}.") from None
