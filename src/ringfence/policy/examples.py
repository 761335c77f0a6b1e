"""What keeps a policy file from doing what it says on this host: fields that nothing enforces, paths, examples that fail."""

from __future__ import annotations

import os

from ringfence.errors import ConfigError, PolicyError
from ringfence.policy.decide import decide
from ringfence.policy.load import Example, Policy, placed
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.policy.unbuilt import refusals


def failing(policy: Policy) -> list[PolicyError]:
    """Every problem with its line and column, all at once; none where a box can be made and the examples hold."""
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
    tried = (_tried(policy, resolved, example, home) for example in policy.examples)
    return problems + [problem for problem in tried if problem]


def _tried(policy: Policy, resolved: ResolvedPolicy, example: Example, home: str) -> PolicyError | None:
    decision = decide(resolved, example.verb, example.object, home=home)
    if decision.allowed == example.allowed:
        return None
    wanted = "allowed" if example.allowed else "refused"
    return policy.document.fault(example.path, f"{example.said!a} must be {wanted}; it is {decision}.")
