"""ringfence explain: what a box would be and what holds it, and which rule decides one act. Runs nothing of the caller's."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ringfence.cli import running
from ringfence.cli.shown import folded, heading, shown
from ringfence.errors import UnenforceableError

if TYPE_CHECKING:
    from ringfence import Explanation, SandboxConfig

EXAMPLE = "example: ringfence explain path .git/config"
ASKED = ("path", "host", "env", "exec")


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "explain",
        help="show what a box would be, before anything runs",
        usage="ringfence explain [options] [-- CMD...]\n"
        "       ringfence explain [options] path P | host H[:PORT] | env NAME | exec LINE",
        description="Print the policy, the plan that would be carried out, and what holds it and how far; with a command also "
        "which file it would start, and whether it could. With `path`, `host`, `env` or `exec` (a shell line) only which rule "
        "decides, and why. Nothing is run. The exit status is 0, 1 when the command could not start or is not permitted as it is, "
        "125 when no box can be made.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("asked", metavar="CMD", nargs=argparse.REMAINDER, help="a command after --, or one of the four questions")
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
    # As `ringfence run` would have it here.
    config = running.config(given, at_terminal=os.isatty(0) and os.isatty(1))
    found, status = _explained(config, only_rules=bool(asked) and asked[0] in ASKED)
    match asked:
        case ["path" | "host" | "env" as kind, subject]:
            answer = {"path": found.path, "host": found.host, "env": found.variable}[kind](subject)
            _print(given, answer.data(), [("", answer.lines())])
        case ["exec", line]:
            permission = found.permission(line)
            _print(given, permission.data(), [("", permission.lines())])
            return status or (0 if permission.allowed else 1)
        case ["--", *argv]:
            answer = found.command(argv)
            data, sections = found.data() | {"command": answer.data()}, [*found.sections(), ("command", answer.lines())]
            permitted = True
            if found.config.permissions:
                permission = found.permission(argv)
                data, permitted = data | {"permission": permission.data()}, permission.allowed
                sections.append(("permission", permission.lines()))
            _print(given, data, sections)
            return 0 if answer.allowed and permitted else 1
        case _:
            _print(given, found.data(), found.sections())
    return status


def _explained(config: SandboxConfig, *, only_rules: bool) -> tuple[Explanation, int]:
    """The explanation, and the exit status. With only_rules also of a box that would not be made: its rules can be said."""
    from ringfence import explain

    status = 0
    while True:
        try:
            return explain(config), status
        except UnenforceableError as error:
            refused = {each.key for each in error.refusals} - {*config.best_effort}
            if not only_rules or not refused:
                raise
            from ringfence.values import replace

            config = replace(config, best_effort=[*config.best_effort, *refused])
            status = running.complain(error)


def _print(given: argparse.Namespace, data: dict[str, object], sections: list[tuple[str, list[str]]]) -> None:
    """The same as data or as text: headings with their lines, which are not indented where there is no heading."""
    if given.json:
        import json

        print(json.dumps(data))
        return
    for number, (name, lines) in enumerate(sections):
        if name:
            print(("\n" if number else "") + heading(name, sys.stdout))
        for line in lines:
            print(folded(shown(f"  {line}" if name else line), sys.stdout))
