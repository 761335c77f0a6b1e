"""From what a config says of networks to what a box may reach: the caller's proxy, absolute paths, what presets stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ringfence.policy.config import SandboxConfig
from ringfence.policy.hostrules import check_proxy, closes_all_of
from ringfence.policy.network import HostRule, NetworkPolicy, published

PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy")
"""Where the caller's proxy is looked for, in this order. Not HTTP_PROXY: in some servers it is a header of the request."""


def resolve_network(
    config: SandboxConfig, environment: Mapping[str, str] = os.environ, *, home: str = "", roots: Iterable[str] = ()
) -> tuple[NetworkPolicy, tuple[str, ...], dict[str, str]]:
    """What a box of config may reach, notes on what has no effect or was left out, and variables that tell clients their places.

    home: the caller's, whose settings presets are read from; roots: folders that are never read from. Raises ConfigError for a
    proxy that cannot be used.
    """
    allow, deny = (
        tuple(rule for rule in rules if isinstance(rule, HostRule)) for rules in (config.network_allow, config.network_deny)
    )
    proxy, notes = _proxy(config.upstream_proxy, environment)
    variables: dict[str, str] = {}
    for client in config.network_presets:
        from ringfence.policy.presets import preset  # few policies have any

        found = preset(client, home, tuple(roots))
        allow += found.rules
        notes += found.notes
        variables |= found.variables
    notes += [
        f"network.deny: {closing.said} closes all of {rule.said} in network.allow."
        for rule in allow
        for closing in deny
        if closes_all_of(closing, rule)
    ]
    policy = NetworkPolicy(
        default="allow" if config.allow_network else "deny",
        allow=allow,
        deny=deny,
        on_unknown=config.on_unknown_domain,
        upstream_proxy=proxy,
        private_addresses=config.private_addresses,
        range=config.network_range,
        publish=tuple(_absolute(entry) for entry in config.network_publish),
        announce=config.egress_proxy,
    )
    return policy, tuple(notes), variables


def _proxy(said: str, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    if said == "none":
        return "", []
    if said != "env":
        return said, []
    named = next((name for name in PROXY_VARIABLES if environment.get(name)), "")
    if not named:
        return "", ["network.upstream_proxy is env, and no variable names a proxy here: hosts are reached directly."]
    check_proxy(environment[named], f"upstream_proxy is env, and {named}")
    return environment[named], []


def _absolute(entry: int | str) -> int | str:
    path, port = published(entry)
    return f"unix:{os.path.abspath(path)}:{port}" if path else entry
