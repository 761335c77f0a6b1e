"""What a box was refused of its network, as it was seen from outside: by the kernel, or by the egress server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringfence.denials.inferred import shown
from ringfence.outcome import Denial
from ringfence.policy.hosts import BadHostError, normalise
from ringfence.policy.reach import Asked, decide, likely_scheme
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.policy.network import NetworkPolicy

OBSERVED = "observed"
MOST = 50
"""Denials of one run; what comes more is one that says how many."""
TCP_ALONE = "network"
NO_DATAGRAMS = "nothing but TCP leaves a box"


def target_of(host: str, port: int) -> str:
    """A host and a port as a policy file has them; the host alone where no port was asked for."""
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refused_by_kernel(policy: NetworkPolicy, host: str, port: int, protocol: str) -> Denial:
    """The denial of a packet for a host, a name or an address, which no rule could allow at that port."""
    target = target_of(host, port)
    if protocol != "tcp":
        return Denial("net", target, TCP_ALONE, OBSERVED, None, f"{protocol}: {NO_DATAGRAMS}")
    try:
        verdict = decide(policy, Asked(normalise(host), port, likely_scheme(port), "transparent"))
    except BadHostError as error:
        return Denial("net", target, "network.default", OBSERVED, None, str(error))
    return Denial("net", target, verdict.rule, OBSERVED, verdict.remedy, verdict.why)


def refused_by_server(host: str, port: int, rule: str, remedy: str | None, why: str) -> Denial:
    """The denial of what the egress server was asked for, in its words."""
    return Denial("net", target_of(shown(host), port), rule, OBSERVED, remedy, shown(why))


def whose(denial: Denial, said: str) -> Denial:
    """The denial, with whose it is where it is not the run's own."""
    return replace(denial, detail=f"{denial.detail}; {said}" if denial.detail else said)


def once(denials: Iterable[Denial]) -> tuple[Denial, ...]:
    """Each target and rule once, at most MOST of them; a host whose name alone was asked for not beside what was asked of it."""
    found = {(each.target, each.rule): each for each in denials}
    asked = {_host(each.target) for each in found.values() if each.target != _host(each.target)}
    told = tuple(each for each in found.values() if each.target not in asked)
    if len(told) <= MOST:
        return told
    more = f"{len(told) - MOST} more"
    return (
        *told[:MOST],
        Denial("net", more, "network", OBSERVED, None, "so many hosts and ports were refused that not all are named"),
    )


def unknown(inferred: Iterable[Denial], observed: Iterable[Denial]) -> tuple[Denial, ...]:
    """What was inferred of hosts without those of which it was observed, whatever port a program said."""
    known = {_host(each.target) for each in observed if each.kind == "net"}
    return tuple(each for each in inferred if each.kind != "net" or _host(each.target) not in known)


def _host(target: str) -> str:
    host, separator, port = target.rpartition(":")
    return (host if separator and port.isdigit() and (":" not in host or host.endswith("]")) else target).strip("[]").lower()
