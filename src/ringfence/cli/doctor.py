"""ringfence doctor: what this host delivers, what is missing, and the step that adds it."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from ringfence.cli.shown import heading, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence import Capability

EXAMPLE = "example: ringfence doctor"


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "doctor",
        help="show what this host delivers, and what adds the rest",
        description="Try each tier, and everything that tiers and caps need, by using it. For what is missing, say whether it is "
        "absent, disabled, forbidden or too old, and the step that adds it. The exit status is 0 when the default tier works "
        "here, 1 when it does not.",
        epilog=EXAMPLE,
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(action=action)


def action(given: argparse.Namespace) -> int:
    from ringfence import host_facts

    facts = host_facts()
    if given.json:
        import json

        print(json.dumps(facts.data()))
    else:
        sections = (("tiers", facts.tiers), ("caps", facts.caps), ("what they need", facts.needs))
        for number, (name, found) in enumerate(each for each in sections if each[1]):
            print(("\n" if number else "") + heading(name, sys.stdout))
            for line in _table(found):
                print(line)
    return 0 if facts.ready else 1


def _table(found: tuple[Capability, ...]) -> Iterator[str]:
    names = max(len(each.name) for each in found)
    states = max(len(each.state) for each in found)
    columns = shutil.get_terminal_size().columns
    for each in found:
        start = f"  {each.name:{names}}  {each.state:{states}}  "
        yield from textwrap.wrap(
            shown(each.cause) if each.missing or each.state == "delivered" else "",
            columns,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
        ) or [start.rstrip()]
        if each.step:
            needed = f"  # for {', '.join(each.needed_by)}" if each.needed_by else ""
            yield f"    {shown(each.step)}{needed}"  # on one line, so that it can be copied
