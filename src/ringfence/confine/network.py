"""The network of a box that has a way out: which addresses and sockets its first process makes, in the ways that a host may allow.

By choice one packet rule sends what can be allowed to one listener, whatever its port, and the kernel refuses the rest at once
and tells of it. Where a host refuses packet rules, there is one listener for each name and port. Either way no port is taken
from the box: what is bound for all addresses is below 1024, where a box cannot bind.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from ringfence.confine import netlink
from ringfence.confine.ways import Endpoint, Network, Way
from ringfence.outcome import Enforced, Level
from ringfence.policy.network import HostRule, NetworkPolicy

OWN = 1
"""Of the range: the box's own address, where the resolver and the proxy are."""
FIRST_NAME = 16
"""Of the range: the address of the first name that the policy says; each further name has the next."""
POOL = 32
"""Names that no rule says outright and that have an address with listeners of their own, where there is no redirect."""
PROXY_PORT = 808
RESOLVER_PORT = 53
LISTENER_PORT = 1
"""All three are below 1024: net.ipv4.ip_unprivileged_port_start, which a box cannot change."""
USUAL = (443, 80)
OFTEN = (443, 80, 22)
"""Ports that are listened on, where any may be allowed and there is no redirect."""
MOST_RULES = 64
"""Packet rules of one policy. With more ports than that every port is sent to the listener, which refuses what is not allowed."""
MOST_SOCKETS = 180
"""Descriptors of one packet, with the others that it carries: the kernel passes 253 (SCM_MAX_FD, net/scm.h)."""
REFUSED = 1  # the group that refused packets are told to
REDIRECT, UNOBSERVED, LISTENERS = "redirect", "redirect, unobserved", "listeners"
WAYS = (REDIRECT, UNOBSERVED, LISTENERS)
"""In the order in which they are tried."""
ENFORCED = {
    REDIRECT: "only what the policy allows by name and port, and what it refuses is observed",
    UNOBSERVED: "only what the policy allows by name and port; what the kernel refuses, other ports and addresses, is not observed",
    LISTENERS: "only what the policy allows by name and port, without a redirect, which this host refuses: refusals of ports "
    "that nothing listens on, and of addresses, are not observed",
}
"""What is to be said of each."""

V4, V6 = IPv4Network("0.0.0.0/0"), IPv6Network("::/0")
LOOPBACK, LOOPBACK6 = IPv4Network("127.0.0.0/8"), IPv6Network("::1/128")


@lru_cache(maxsize=16)
def network_for(policy: NetworkPolicy, ways: tuple[str, ...]) -> Network:
    """What is made for policy, which is open, in one of ways."""
    names = IPv4Network(policy.range)
    own = address_of(policy)
    redirected = _redirected(policy, names)
    made = {
        REDIRECT: _redirect(names, own, redirected, observed=True),
        UNOBSERVED: _redirect(names, own, redirected, observed=False),
        LISTENERS: _listeners(policy, names, own),
    }
    return Network(
        own,
        f"http://{own}:{PROXY_PORT}",
        tuple((name, str(names[FIRST_NAME + number])) for number, name in enumerate(names_of(policy))),
        netlink.address(own, names.prefixlen),
        tuple(made[way] for way in ways),
        policy,
    )


def enforced(way: str) -> Enforced:
    """How far the policy holds for a network that was made in one way."""
    return Enforced(Level.FULL, f"namespaces, {'nf_tables, ' if way != LISTENERS else ''}egress server", ENFORCED[way])


def changed(policy: NetworkPolicy, way: str) -> bytes:
    """The packet rules of policy, for a live box whose network was made in one way; nothing where that has none."""
    if way == LISTENERS:
        return b""
    return rules(address_of(policy), _redirected(policy, IPv4Network(policy.range)), observed=way == REDIRECT, again=True)


def address_of(policy: NetworkPolicy) -> str:
    """The box's own address."""
    return str(IPv4Network(policy.range)[OWN])


def names_of(policy: NetworkPolicy) -> tuple[str, ...]:
    """The names that rules say outright, each once: the addresses of names begin with theirs."""
    return tuple(dict.fromkeys(rule.host for rule in policy.allow if rule.host and "*" not in rule.host))


Reached = tuple[IPv4Network | IPv6Network, int | None]
"""A network, and a port of it or None for all."""


def _redirected(policy: NetworkPolicy, names: IPv4Network) -> tuple[Reached, ...]:
    """What may be allowed, and so is asked for outside; everything else the kernel refuses by itself."""
    if policy.default == "allow":
        return ((V4, None), (V6, None))
    found: dict[Reached, None] = {}
    if policy.on_unknown == "ask":
        found[names, None] = None
    for rule in policy.allow:
        net = ip_network(rule.address, strict=False) if rule.address else names
        for port in _ports(rule):
            found[net, port] = None
    if len(found) > MOST_RULES:
        return tuple(dict.fromkeys((net, None) for net, _ in found))[:MOST_RULES]
    return tuple(found)


def _ports(rule: HostRule) -> tuple[int, ...]:
    return rule.ports or USUAL


def _redirect(names: IPv4Network, own: str, redirected: tuple[Reached, ...], *, observed: bool) -> Way:
    listening = [
        Endpoint("transparent", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", LISTENER_PORT),
        Endpoint("transparent6", socket.AF_INET6, socket.SOCK_STREAM, "::1", LISTENER_PORT, optional=True),
    ]
    # Every address is local, so that what goes to one that is not allowed is seen, and can be told.
    everywhere = netlink.local(V4, own) + netlink.local(V6)
    messages = [("rules", netlink.NETFILTER, rules(own, redirected, observed=observed))]
    if observed:
        messages.append(("refusals", netlink.NETFILTER, netlink.listen_to(REFUSED)))
    messages.append(("", netlink.ROUTE, everywhere))
    port = next((port or USUAL[0] for net, port in redirected if net in (names, V4)), 0)
    said = ", ".join(f"{net}" + (f" port {port}" if port else "") for net, port in redirected)
    return Way(
        REDIRECT if observed else UNOBSERVED,
        tuple(messages),
        (*_own(own), *listening),
        (str(names[2]), port, 9) if port else None,
        (f"redirect tcp to {said} to one listener", "refuse every other packet" + (" and tell it" if observed else "")),
        ((netlink.NETFILTER, netlink.batch(netlink.remove_table())), (netlink.ROUTE, netlink.local_removed(V4))),
    )


def rules(own: str, redirected: tuple[Reached, ...], *, observed: bool, again: bool = False) -> bytes:
    """The packet rules; again: in the place of those that are there."""
    mine = (netlink.to(LOOPBACK), netlink.to(IPv4Network(own)), netlink.to(LOOPBACK6))
    made = [netlink.flush(b"nat"), netlink.flush(b"out")] if again else [
        netlink.table(), netlink.chain(b"nat", b"nat", -100), netlink.chain(b"out", b"filter", 0),
    ]  # fmt: skip
    made += [netlink.rule(b"nat", each, netlink.accept()) for each in mine]
    made += [netlink.rule(b"nat", netlink.to(net), netlink.tcp(port), netlink.redirect(LISTENER_PORT)) for net, port in redirected]
    made += [netlink.rule(b"out", each, netlink.accept()) for each in (netlink.known(), *mine)]
    made += [netlink.rule(b"out", netlink.log(REFUSED))] if observed else []
    made += [netlink.rule(b"out", netlink.tcp(), netlink.reset()), netlink.rule(b"out", netlink.unreachable())]
    return netlink.batch(*made)


def _own(own: str) -> tuple[Endpoint, ...]:
    return (
        Endpoint("dns_udp", socket.AF_INET, socket.SOCK_DGRAM, own, RESOLVER_PORT),
        Endpoint("dns_tcp", socket.AF_INET, socket.SOCK_STREAM, own, RESOLVER_PORT),
        Endpoint("proxy", socket.AF_INET, socket.SOCK_STREAM, own, PROXY_PORT),
    )


def _listeners(policy: NetworkPolicy, names: IPv4Network, own: str) -> Way:
    """One socket for each port below 1024, one for each name and port above; addresses of rules are local then."""
    wanted = dict.fromkeys(_addressed(policy, names))
    sockets = [
        Endpoint(f"transparent.{number}", socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, address, port)
        for number, (address, port) in enumerate(list(wanted)[:MOST_SOCKETS])
    ]
    nets = [net for rule in policy.allow if rule.address and not (net := ip_network(rule.address, strict=False)).is_loopback]
    routes = b"".join(netlink.local(net, own if net.version == 4 else "") for net in dict.fromkeys(nets))
    left = len(wanted) - len(sockets)
    said = ", ".join(dict.fromkeys(str(each.port) for each in sockets)) or "none"
    lines = [f"listen on ports {said} of the addresses of names"]
    lines += [f"leave {left} further ports of names to the proxy"] if left else []
    return Way(LISTENERS, (("", netlink.ROUTE, routes),) if routes else (), (*_own(own), *sockets), None, tuple(lines), ())


def _addressed(policy: NetworkPolicy, names: IPv4Network) -> Iterator[tuple[str, int]]:
    explicit = {name: str(names[FIRST_NAME + number]) for number, name in enumerate(names_of(policy))}
    pool = [str(names[FIRST_NAME + len(explicit) + number]) for number in range(POOL)]
    every = policy.default == "allow" or policy.on_unknown == "ask"
    for port in OFTEN if every else ():
        yield "0.0.0.0", port
    for rule in policy.allow:
        for port in _ports(rule):
            if rule.address:
                net = ip_network(rule.address, strict=False)
                if net.is_loopback:
                    continue  # inside, that is the box itself; outside, the proxy leads there
                wild = "0.0.0.0" if net.version == 4 else "::"
                if port < 1024:
                    yield wild, port
                elif net.num_addresses == 1:
                    yield str(net[0]), port
            elif port < 1024:
                yield "0.0.0.0", port
            elif rule.host in explicit:
                yield explicit[rule.host], port
            else:
                yield from ((address, port) for address in pool)
