"""ringfence check: reads a policy file, resolves it for this host and tries its examples. Runs nothing."""

from __future__ import annotations

import argparse
import sys
from typing import Any

EXAMPLE = "example: ringfence check ringfence.yaml"


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "check",
        help="check a policy file and try its examples",
        description="Read FILE, resolve it for this host and try its examples. Nothing is run. The exit status is 0 when a box can "
        "be made by it and its examples hold, 1 with a line for each reason when not, 125 when it cannot be read.",
        epilog=EXAMPLE,
    )
    parser.add_argument("file", metavar="FILE", help="a policy file, .yaml, .yml or .toml")
    parser.set_defaults(action=action)


def action(given: argparse.Namespace) -> int:
    from ringfence.cli.shown import shown
    from ringfence.policy.examples import failing
    from ringfence.policy.load import load_policy

    policy = load_policy(given.file)
    problems = failing(policy)
    for problem in problems:
        print(shown(problem.message), file=sys.stderr)
    if problems:
        return 1
    held = f", and {len(policy.examples)} examples hold" if policy.examples else ""
    print(shown(f"{given.file}: ok{held}"))
    return 0
