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
    from ringfence.policy.load import load_policy
    from ringfence.policy.unbuilt import refusals

    policy = load_policy(given.file)
    failing = [policy.fault(refusal.key, str(refusal)) for refusal in refusals(policy.config) if not refusal.excused]
    for fault in failing:
        print(fault.message, file=sys.stderr)
    if not failing:
        print(f"{given.file}: ok")
    return 1 if failing else 0
