"""What the commands of the command line share: options, streams, and the exit status that a shell would show."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ringfence.errors import ArgumentError, CommandError, ConfigError, PlantedError, RingfenceError
from ringfence.recorder import NOT_RECORDED
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.outcome import Change, Denial, Result
    from ringfence.permission.terminal import CliApprover
    from ringfence.policy.config import SandboxConfig
    from ringfence.sync import Sandbox

KEPT_BYTES = 1 << 16
"""Output is passed on as it comes; the result keeps what denials are inferred from."""
OPTIONS = {
    "network_allow": "--allow",
    "network_presets": "--preset",
    "network_publish": "--publish",
    "mode": "--mode",
    "tier": "--tier",
    "limits.wall_seconds": "--timeout",
}
"""What a field of a config is called on the command line."""
MOST_LINES = 5
MOST_COLUMNS = 500


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--policy", metavar="FILE", action="append", help="a policy file; a further one can only take away")
    add("--workspace", metavar="DIR", help="the folder that the box works in (default: this one)")
    add("--mode", metavar="M", help="read-only, workspace-write (the default) or danger-full-access")
    add("--tier", metavar="T", help="the boundary, by name (default: the strongest there is)")
    add("--rw", metavar="PATH", action="append", help="a further folder or file that may be written")
    add("--ro", metavar="PATH", action="append", help="a further folder or file that may be read")
    add("--env", metavar="NAME[=V]", action="append", help="a variable to set; without a value, the caller's")
    add(
        "--allow",
        metavar="HOST[:PORT]",
        action="append",
        help="a host that may be reached: its https and http, or PORT with any traffic",
    )
    add("--preset", metavar="CLIENT", action="append", help="the hosts that this client's own settings here name: pip, npm, ...")
    add("--network", action="store_true", help="every host may be reached, but for private addresses")
    add("--ask", action="store_true", help="ask about hosts that nothing allows, and about a second try of what was refused")
    add("--remember", metavar="FILE", help="with --ask: offer 'always', written into FILE; its hosts may be reached")
    add("--publish", metavar="PORT", action="append", help="a port of the box for programs outside: PORT, or unix:PATH:PORT")
    add("--no-trace", action="store_true", help="do not record this in the trace (see `ringfence trace --help`)")
    add("--timeout", metavar="S", type=float, help="seconds until the command is ended (default: 120; none at a terminal)")


def config(given: argparse.Namespace, *, at_terminal: bool = False, kept: int | None = None) -> SandboxConfig:
    """The config of the options. --timeout may be longer than the default limit: on a command line it is the limit.

    A person at a terminal sees how long it takes and has Ctrl-C: there no time limit holds that nobody asked for.
    """
    from ringfence.policy.config import SandboxConfig, SandboxLimits

    variables = environment(given.env or ())
    limits = SandboxLimits() if kept is None else SandboxLimits(output_bytes=kept)
    if at_terminal and not given.policy:
        limits = replace(limits, wall_seconds=None, cpu_seconds=None)
    if given.timeout is not None:
        limits = replace(limits, wall_seconds=given.timeout)
    try:
        options = SandboxConfig(
            workspace=given.workspace or ".",
            tier=given.tier or "auto",
            mode=given.mode or "workspace-write",
            writable=[os.path.abspath(path) for path in given.rw or ()],
            read_only=[os.path.abspath(path) for path in given.ro or ()],
            environment=variables,
            limits=limits,
            **_network(given),
        )
    except ConfigError as error:
        field, _, rest = error.message.partition(" ")
        if field not in OPTIONS:
            raise
        raise ConfigError(f"{OPTIONS[field]} {rest}", hint=error.next_step) from None
    if not given.policy:
        return replace(options, escalation="one_time_approval") if given.ask else options
    from ringfence.policy.load import load_config  # with it come a YAML reader and a schema

    said = {name: getattr(given, name) for name in ("workspace", "tier", "mode")}
    said |= {"writable": given.rw, "read_only": given.ro, "environment": variables or None, **_network(given)}
    return load_config(given.policy, options, {**said, "limits.wall_seconds": given.timeout})


def approver(config: SandboxConfig) -> AbstractContextManager[CliApprover | None]:
    """Who is asked, None where nobody is to be."""
    if not config.permissions and config.escalation == "none" and config.on_unknown_domain != "ask":
        return nullcontext()
    from ringfence.cli import asking  # a command line that asks nothing loads none of it

    return asking.approver()


def ceiling(given: argparse.Namespace, config: SandboxConfig) -> SandboxConfig | None:
    """What no approval goes beyond: of several policy files what those before the last allow. None for one, which is widened."""
    if not given.policy or len(given.policy) < 2 or config.escalation == "none":
        return None
    from ringfence.policy.load import load_config

    return load_config(given.policy[:-1], config, {})


def _network(given: argparse.Namespace) -> dict[str, Any]:
    """What the options say of networks, by the fields of a config; nothing where they say nothing."""
    said: dict[str, Any] = {}
    if given.allow:
        said["network_allow"] = given.allow
    if given.preset:
        said["network_presets"] = given.preset
    if given.network:
        said["allow_network"] = True
    if given.ask:
        said["on_unknown_domain"] = "ask"
    if given.remember:
        said["network_remember"] = os.path.abspath(given.remember)
    if given.publish:
        said["network_publish"] = [_published(word) for word in given.publish]
    return said


def _published(word: str) -> int | str:
    if word.isascii() and word.isdecimal():
        return int(word)
    head, path, port = word.partition(":")[0], *word.partition(":")[2].rpartition(":")[::2]
    return f"unix:{os.path.abspath(path)}:{port}" if head == "unix" and path else word


def environment(given: Sequence[str]) -> dict[str, str]:
    """The variables that words of the form NAME or NAME=VALUE name."""
    found = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise ArgumentError(f"--env {name}: the variable is not set here.", hint=f"Give it a value: --env {name}=VALUE.")
        found[name] = value if equals else os.environ[name]
    return found


def complain(error: RingfenceError) -> int:
    """One line on standard error; the exit status that goes with it."""
    from ringfence.cli.shown import shown

    print(f"ringfence: {shown(str(error))}", file=sys.stderr)
    return error.exit_status


def summary(denials: Sequence[Denial], changes: Sequence[Change]) -> None:
    """On standard error, when the command is over: what was refused, what was not kept up, what the box has for itself alone."""
    from ringfence.cli.shown import shown
    from ringfence.outcome import lines_of

    said = [*dict.fromkeys(_line(each) for each in denials), *lines_of(changes)]
    for line in said[:MOST_LINES]:
        print(f"ringfence: {shown(line)[:MOST_COLUMNS]}", file=sys.stderr)
    if len(said) > MOST_LINES:
        print(f"ringfence: and {len(said) - MOST_LINES} more", file=sys.stderr)


def _say(text: str) -> None:
    from ringfence.cli.shown import shown

    print(f"ringfence: {shown(text)[:MOST_COLUMNS]}", file=sys.stderr)


def _line(denial: Denial) -> str:
    """What was refused, and the policy line that would allow it; of what was not refused, what is to be known."""
    what = f"{denial.kind} {denial.target}".rstrip()  # of bytes without one reading no host is known
    if denial.remedy:
        return f"{what} refused by {denial.rule}; allowed by {denial.remedy}"
    if denial.evidence == "observed" and denial.detail:
        return f"{what}: {denial.detail}"
    return f"{what} refused by {denial.rule}"


def say_published(box: Sandbox) -> None:
    """Where the ports of the box are for programs outside, on standard error."""
    for port, place in box.published.items():
        print(f"ringfence: port {port} of the box is at {place}", file=sys.stderr, flush=True)


def changes_of(box: Sandbox) -> tuple[Change, ...]:
    """What the box changed in its private copies; nothing where that cannot be told any more."""
    try:
        return box.changes()
    except RingfenceError:
        return ()


def status_of(result: Result, denials: Sequence[Denial] | None = None, changes: Sequence[Change] = ()) -> int:
    """The exit status of a result, with lines on standard error where there is more to say than it.

    denials: of the whole life of the box, where they are known; else those of the result.
    """
    denials = result.denials if denials is None else denials
    if result.notes and result.notes[-1].startswith(NOT_RECORDED):
        _say(result.notes[-1])
    if denials or changes:
        summary(denials, changes)
    if result.refused:
        return complain(PlantedError(result.refused, result))
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return 128 + result.signal
    try:
        result.raise_for_status()
    except CommandError as error:
        return complain(error)
    raise RingfenceError("a result that is neither ok nor an error.")
