"""ringfence run: one command in a box over a folder."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ringfence.cli import running
from ringfence.cli.late import recorded
from ringfence.errors import CommandError, RingfenceError

if TYPE_CHECKING:
    from ringfence.outcome import Result
    from ringfence.permission.terminal import CliApprover
    from ringfence.sync import Sandbox

EXAMPLE = "example: ringfence run --timeout 60 -- pytest -q"


def add_to(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "run",
        help="run a command in a box",
        description="Run CMD in a box over a folder. The exit status is the command's; 125 and a message when the failure "
        "is ringfence's, 124 at a limit, 126 and 127 as a shell has them, 128 and its number for a signal. At a terminal the "
        "command has one of its own; where input or output is a pipe, it has pipes.",
        epilog=EXAMPLE,
    )
    running.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object instead of the output")
    parser.add_argument("argv", metavar="CMD", nargs=argparse.REMAINDER, help="the command and its arguments, after --")
    parser.set_defaults(action=lambda given: action(parser, given))


def action(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    if not argv:
        parser.error("a command is missing: put it after --")
    if given.json:
        return _as_json(given, argv)
    at_terminal = os.isatty(0) and os.isatty(1)  # with a pipe on one side, pipes stay pipes
    config, trace = recorded(given, running.config(given, at_terminal=at_terminal))
    from ringfence.sync import Sandbox

    ceiling = running.ceiling(given, config)
    with running.approver(config) as approver, Sandbox(config, approver=approver, ceiling=ceiling, trace=trace) as box:
        running.say_published(box)
        try:
            result = _at_terminal(box, argv, approver) if at_terminal else _piped(box, argv, approver)
            if approver is not None and not result.ok:
                result = _once_more(box, argv, approver, result, at_terminal=at_terminal)
        except CommandError as error:  # it was not started
            running.summary(error.result.denials, ())
            return running.complain(error)
        changes = running.changes_of(box)
    return running.status_of(result, box.denials(), changes)


def _once_more(box: Sandbox, argv: list[str], approver: CliApprover, result: Result, *, at_terminal: bool) -> Result:
    """The second run, where somebody grants what the first one was refused; else the first result."""
    approver.resume()  # the command and its terminal are done with
    if not at_terminal and not _from_its_start():
        return result
    try:
        wider = box.escalate(result)
    except RingfenceError as error:
        from ringfence.cli.shown import shown  # only where something was refused

        print(f"ringfence: {shown(error.message)}", file=sys.stderr)
        return result
    if wider is None:
        return result
    print("ringfence: it runs again, from the start, with what was granted", file=sys.stderr)
    with wider:
        return _at_terminal(wider, argv, approver) if at_terminal else _piped(wider, argv, approver)


def _from_its_start() -> bool:
    """Whether the command's input can be read once more: none, or a file, which is set back to where it began."""
    from ringfence.cli import relay

    if relay.caller_input() >= 0:
        try:
            os.lseek(0, 0, os.SEEK_SET)
        except OSError:  # a pipe
            return False
    return True


def _at_terminal(box: Sandbox, argv: list[str], approver: CliApprover | None) -> Result:
    from ringfence.cli import terminal

    try:
        return terminal.run(box, argv, approver)
    except terminal.Ended as ended:
        raise SystemExit(128 + ended.number) from None


def _piped(box: Sandbox, argv: list[str], approver: CliApprover | None) -> Result:
    from ringfence.cli import relay

    with box.spawn(argv) as process:
        return relay.piped(process, approver)


def _as_json(given: argparse.Namespace, argv: list[str]) -> int:
    """The result as data, its output within it; or the failure of ours. Not promised: output that is not UTF-8, byte by byte."""
    import json

    from ringfence.cli import relay
    from ringfence.sync import Sandbox

    source = relay.caller_input()
    data = b""
    if source >= 0:
        with open(source, "rb", closefd=False) as file:
            data = file.read()
    try:
        config, trace = recorded(given, running.config(given))
        ceiling = running.ceiling(given, config)
        with running.approver(config) as approver, Sandbox(config, approver=approver, ceiling=ceiling, trace=trace) as box:
            result = box.run(argv, input=data)
    except RingfenceError as error:  # the message and the exit status follow
        print(json.dumps({"error": error.code, "message": str(error), "for_model": error.for_model()}))
        raise
    print(json.dumps(_data(result)))
    return running.status_of(result)


def _data(result: Result) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "argv": result.argv,
        "outcome": {"type": type(result.outcome).__name__, **asdict(result.outcome)},
        "ok": result.ok,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
        "usage": asdict(result.usage),
        "files_created": result.files_created,
        "denials": [asdict(denial) for denial in result.denials],
        "for_model": result.for_model(),
        "notes": result.notes,
        "enforcement": asdict(result.enforcement),
        "backend": result.backend,
        "policy_hash": result.policy_hash,
    }
