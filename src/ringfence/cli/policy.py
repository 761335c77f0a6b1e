"""ringfence policy: what differs between two policy files, and the schema of one. Runs nothing."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLE = "example: ringfence policy diff main.yaml changed.yaml"


def add_to(commands: Any) -> None:
    """Add the command and its own commands to the parser's commands."""
    parser = commands.add_parser(
        "policy", help="compare policy files, print their schema", description="Look at policy files.", epilog=EXAMPLE
    )
    own = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    diff = own.add_parser(
        "diff",
        help="what differs between two policy files",
        description="Print each key in which A and B differ, whether B is narrower or wider there, and both values. The exit "
        "status is 0 when they allow the same, 1 when they differ, 125 when one cannot be read.",
        epilog=EXAMPLE,
    )
    diff.add_argument("first", metavar="A", help="a policy file")
    diff.add_argument("second", metavar="B", help="another one")
    diff.set_defaults(action=_diff)
    schema = own.add_parser(
        "schema",
        help="the JSON Schema of a policy file",
        description="Print the JSON Schema of a policy file, for editors and other programs.",
        epilog="example: ringfence policy schema > policy.schema.json",
    )
    schema.add_argument("--page", action="store_true", help="print the page for readers instead")
    schema.set_defaults(action=_schema)


def _diff(given: argparse.Namespace) -> int:
    from ringfence.policy.differences import differences, lines
    from ringfence.policy.load import load_policy

    found = differences(load_policy(given.first).config, load_policy(given.second).config)
    for line in lines(found):
        print(line)
    return 1 if found else 0


def _schema(given: argparse.Namespace) -> int:
    import json

    from ringfence.policy.page import page
    from ringfence.policy.schema import json_schema

    print(page().rstrip() if given.page else json.dumps(json_schema(), indent=2))
    return 0
