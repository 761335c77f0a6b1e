"""ringfence trace: what was recorded of boxes and runs, whether it is as it was written, and runs done again."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

EXAMPLE = "example: ringfence trace ls"
BY = "; `took` is how long it ran, and `by` is what isolated it"


def add_to(commands: Any) -> None:
    """Add the command and its own commands to the parser's commands."""
    parser = commands.add_parser(
        "trace",
        help="show, check and prune the record of boxes and runs",
        description="Look at the record that `ringfence run` and `python`, and boxes that are told so, leave in the state folder. "
        "The exit status is 0, 1 where verify finds a fault or rerun a difference, 125 when the trace cannot be read.",
        epilog=EXAMPLE,
    )
    own = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    ls = _add(own, "ls", "list runs, the newest last", f"List the last runs{BY}.", "looking")
    ls.add_argument("-n", dest="most", metavar="N", type=_count, default=20, help="how many (default: 20)")
    show = _add(own, "show", "show one run", "Show all that is recorded of RUN.", "looking", "show 12 --plan")
    _run(show)
    show.add_argument("--plan", action="store_true", help="what would do it again: the config and the plan of its box")
    tail = _add(own, "tail", "show runs as they end", f"Print runs as they begin and end, until Ctrl-C{BY}.", "looking")
    tail.add_argument("-n", dest="most", metavar="N", type=_count, default=10, help="how many of before (default: 10)")
    tail.add_argument("--once", action="store_true", help="do not wait for further ones")
    verify = _add(
        own,
        "verify",
        "look whether it is as it was written",
        "Look at every row. The exit status is 1 where something is wrong.",
        "checking",
    )
    verify.add_argument("--against", metavar="HEAD", help="a head that was kept, or a file with one: is anything gone since?")
    _add(own, "head", "print what shows later whether rows are gone", "Print the head: keep it elsewhere.", "checking")
    export = _add(own, "export", "print all rows", "Print each row as one line of JSON.", "checking", "export --jsonl")
    export.add_argument("--jsonl", action="store_true", help="as lines of JSON, which is the only form there is")
    prune = _add(
        own, "prune", "take old rows away", "Take old rows away; an anchor stays in their place.", "checking", "prune --keep 1000"
    )
    which = prune.add_mutually_exclusive_group(required=True)
    which.add_argument("--before", metavar="WHEN", help="rows older than that: 2026-01-31, a time with a date, or 30d, 12h, 5m")
    which.add_argument("--keep", metavar="N", type=_count, help="all but the last N runs")
    rerun = _add(
        own, "rerun", "run one again", "Run RUN again and say what differs; the exit status is 1 then.", "again", "rerun 12"
    )
    _run(rerun)
    rerun.add_argument(
        "--env", metavar="NAME[=V]", action="append", help="a variable that was hidden; without a value, the caller's"
    )


def _add(own: Any, name: str, line: str, description: str, module: str, example: str = "") -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = own.add_parser(
        name, help=line, description=description, epilog=f"example: ringfence trace {example or name}"
    )
    made.add_argument("--trace", metavar="FILE", help="the trace (default: trace.db in the state folder)")
    made.add_argument("--json", action="store_true", help="the same as JSON")
    made.set_defaults(action=lambda given: getattr(import_module(f"ringfence.cli.trace.{module}"), name)(given))
    return made


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text!a} is no number from 0 on")
    return int(text)


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=_count, help="its number, as `ringfence trace ls` has it")
