"""ringfence check: reads a policy file, resolves it for this host and tries its examples. Runs nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.decide import Decision
    from ringfence.policy.resolve import ResolvedPolicy

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


def warnings_of(rules: Sequence[str]) -> list[tuple[int, str]]:
    """What is likely not meant of the rules for single acts."""
    if not rules:
        return []
    from ringfence.policy.permissions import parse, warnings  # few files have any

    return list(warnings([parse(rule) for rule in rules]))


def _permitted(rules: Sequence[str]) -> Callable[[str, ResolvedPolicy], Decision]:
    """What the rules say of an example: only what is started without a question is allowed, only what is never started refused."""

    def permitted(line: str, resolved: ResolvedPolicy) -> Decision:
        from ringfence.permission.permissions import PermissionManager  # for files with such examples
        from ringfence.policy.decide import Decision

        found = PermissionManager(rules).check(line, resolved)
        return Decision(found.effect == "allow", found.rule, f"{found.effect}: {found.why}")

    return permitted


def _closed(config: SandboxConfig) -> Sequence[str]:
    """What of network.allow network.deny leaves nothing of."""
    if not config.network_deny:
        return ()
    from ringfence.policy.resolve_network import resolve_network  # few files have any

    _, notes, _ = resolve_network(replace(config, network_presets=()), {})
    return [note for note in notes if note.startswith("network.deny")]


def action(given: argparse.Namespace) -> int:
    from ringfence.cli.shown import shown
    from ringfence.policy.examples import failing
    from ringfence.policy.load import load_policy

    policy = load_policy(given.file)
    problems = failing(policy, _permitted(policy.config.permissions))
    for number, what in warnings_of(policy.config.permissions):
        print(shown(policy.document.fault(("permissions", number), f"warning: {what}", "").message), file=sys.stderr)
    for problem in problems:
        print(shown(problem.message), file=sys.stderr)
    if problems:
        return 1
    for note in _closed(policy.config):
        print(shown(policy.document.fault(("network", "deny"), f"warning: {note}", "").message), file=sys.stderr)
    held = f", and {len(policy.examples)} examples hold" if policy.examples else ""
    print(shown(f"{given.file}: ok{held}"))
    return 0
