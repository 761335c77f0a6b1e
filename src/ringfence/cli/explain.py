"""ringfence explain: what a box would be and what holds it, and which rule decides one act. Runs nothing of the caller's."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ringfence.cli import running
from ringfence.cli.shown import folded, heading, shown

if TYPE_CHECKING:
    from ringfence.explanation import Explanation
    from ringfence.explanation.answers import Answer

EXAMPLE = "example: ringfence explain path .git/config"
ASKED = ("path", "host", "env")


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "explain",
        help="show what a box would be, before anything runs",
        usage="ringfence explain [options] [-- CMD...]\n       ringfence explain [options] path P | host H[:PORT] | env NAME",
        description="Print the policy, the plan that would be carried out, and what holds it and how far. With a command: which "
        "file it would start, and whether it could. With `path`, `host` or `env`: which rule decides, and why. Nothing is run. "
        "The exit status is 0, 1 when the command could not start, 125 when no box can be made.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("asked", metavar="CMD", nargs=argparse.REMAINDER, help="a command after --, or one of the three questions")
    parser.set_defaults(action=lambda given: action(parser, given))


def action(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    asked = given.asked
    if asked and asked[0] not in ("--", *ASKED):
        parser.error(f"{asked[0]!r} is none of {', '.join(ASKED)}; put a command after --")
    if asked == ["--"]:
        parser.error("a command is missing after --")
    if asked and asked[0] in ASKED and len(asked) != 2:
        late = len(asked) > 2 and any(each.startswith("--") for each in asked[1:])
        parser.error(f"options go before {asked[0]!r}" if late else f"give one thing after {asked[0]!r}")
    from ringfence import SandboxLimits, explain

    # As `ringfence run` would have it here.
    found = explain(running.config(given, at_terminal=os.isatty(0) and os.isatty(1), kept=SandboxLimits().output_bytes))
    answer = _answer(found, asked) if asked else None
    if given.json:
        import json

        print(json.dumps(found.data() if answer is None else answer.data()))
    elif answer is None:
        _print(found)
    else:
        for line in answer.lines():
            print(folded(shown(line), sys.stdout))
    return 0 if answer is None or asked[0] != "--" or answer.allowed else 1


def _answer(found: Explanation, asked: list[str]) -> Answer:
    match asked:
        case ["--", *argv]:
            return found.command(argv)
        case ["path", path]:
            return found.path(path)
        case ["host", host]:
            return found.host(host)
    return found.variable(asked[1])


def _print(found: Explanation) -> None:
    for number, (name, lines) in enumerate(found.sections()):
        print(("\n" if number else "") + heading(name, sys.stdout))
        for line in lines:
            print(folded(f"  {shown(line)}", sys.stdout))
