"""The command line: one file for each command, of which only the one that is asked for is loaded.

Arguments are parsed by argparse and the run is driven without an event loop, because a command line is started cold each time:
what it imports is most of what it costs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ringfence.errors import RingfenceError

OURS = 125
"""The exit status of a failure that is ringfence's and not the command's, as env(1), nohup(1) and timeout(1) have it."""


COMMANDS = {
    "run": "run a command in a box",
    "python": "run a Python program in a box",
    "explain": "show what a box would be, before anything runs",
    "doctor": "show what this host delivers, and what adds the rest",
    "check": "check a policy file and try its examples",
    "policy": "compare policy files, print their schema",
}
"""The modules of this package that are commands, with their line in the help."""


MAKING_BOXES = ("run", "python")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the command line; the exit status of what it ran, or 125 and a message where that is ours."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="ringfence", description="Run commands where they can do no harm.")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(prog="ringfence", dest="command", metavar="COMMAND")  # or shutil is loaded to find it
    asked = arguments[0] if arguments else ""
    if asked in MAKING_BOXES:
        import ringfence

        try:
            ringfence.warm_up()  # it starts while the rest is imported
        except RingfenceError:
            pass  # the box cannot be made either, and that says so
    for name, line in COMMANDS.items():
        if name == asked:
            import_module(f"ringfence.cli.{name}").add_to(commands)
        elif asked not in COMMANDS:
            commands.add_parser(name, help=line)  # named in the help, and in the message about a command that is none
    given = parser.parse_args(arguments)
    if given.version:
        from importlib.metadata import version

        print(f"ringfence {version('ringfence')}")
        return 0
    if given.command is None:
        parser.print_help()
        return OURS
    try:
        return int(given.action(given))
    except RingfenceError as error:
        from ringfence.cli.running import complain

        complain(error)
        return OURS
    except KeyboardInterrupt:
        return 130  # as a shell shows a command that SIGINT ended
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains of it once more at its end
        return 141  # as a shell shows a command that SIGPIPE ended: who read our output is gone
    except OSError as error:
        print(f"ringfence: {error}", file=sys.stderr)
        return OURS
