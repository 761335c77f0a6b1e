"""What keeps a policy file from doing what it says on this host: fields that nothing enforces, paths, examples that fail."""

from __future__ import annotations

import os
from collections.abc import Callable

from ringfence.errors import ConfigError, PolicyError
from ringfence.policy.decide import Decision, decide
from ringfence.policy.load import Example, Policy, placed
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.policy.unbuilt import refusals

Permitted = Callable[[str, ResolvedPolicy], Decision]


def failing(policy: Policy, permitted: Permitted | None = None) -> list[PolicyError]:
    """Every problem with its line and column, all at once; none where a box can be made and the examples hold.

    permitted: what the policy's rules say of a command, where it has some: the room that reads commands is above this one.
    """
    home = os.path.expanduser("~")
    problems = [
        policy.fault(refusal.key, f"{refusal.key} cannot be enforced by this version: it waits for {refusal.waits_for}.")
        for refusal in refusals(policy.config)
        if not refusal.excused
    ]
    try:
        resolved = resolve(policy.config, home=home)
    except ConfigError as error:
        return [*problems, placed(policy.document, error)]
    tried = (_tried(policy, resolved, example, home, permitted) for example in policy.examples)
    return problems + [problem for problem in tried if problem]


def _tried(
    policy: Policy, resolved: ResolvedPolicy, example: Example, home: str, permitted: Permitted | None
) -> PolicyError | None:
    decision = decide(resolved, example.verb, example.object, home=home)
    if example.verb == "exec" and permitted is not None and policy.config.permissions and (decision.allowed or not example.allowed):
        decision = permitted(example.object, resolved)
    if decision.allowed == example.allowed:
        return None
    wanted = "allowed" if example.allowed else "refused"
    return policy.document.fault(example.path, f"{example.said!a} must be {wanted}; it is {decision}.")
