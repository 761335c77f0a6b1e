"""One function that decides whether a box reaches a host: for `explain`, for the examples of a policy, for every connection.

What closes wins over what opens, whatever order the lines have:

1. network.deny, the first entry that names the host and the port;
2. network.allow and network.presets, the first entry that names host, port and what the connection carries;
3. network.default, which opens what no entry names where it says allow;
4. on_unknown_domain, which may ask about a name that no entry of allow names at that port;
5. all else is closed.

A name opens an address that is not public only where private_addresses says so or an address rule names it too. That is decided by
may_dial, on the very address that is about to be dialled. Nothing here does I/O. Not promised: what an allowed host does with what
it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringfence.policy.hostrules import ANY, WEB, names
from ringfence.policy.hosts import Address, Name
from ringfence.policy.network import HostRule, NetworkPolicy
from ringfence.policy.written import line
from ringfence.values import frozen, replace

OWN = "the box's own network"
UNNAMEABLE = ("metadata", "multicast")
"""Kinds of addresses for which no line of a policy is offered: credentials of a machine are there, or nothing that connects."""


@frozen
class Asked:
    """A connection that a box wants. scheme: 'tls', 'http' or 'tcp', what it carries.

    via: how it was asked for: 'transparent', 'connect', 'http', 'socks' or 'dns'; '' is a program's own connect, which for a
    loopback address does not leave the box. method, path: of a request of plain HTTP, its path as it was sent; '' where that is
    not known, and then no rule with methods or paths opens it. ech: whether the server name of a TLS hello is encrypted.
    """

    host: Name | Address
    port: int
    scheme: str
    via: str = ""
    method: str = ""
    path: str = ""
    ech: bool = False


@frozen
class Verdict:
    """rule: which line of the policy decides. why: in words. remedy: a line that would allow it, or None.

    ask: whether somebody is to be asked; allowed is False until then. private: whether the address that will be dialled may be
    one that is not public, whatever name led to it.
    """

    allowed: bool
    rule: str
    why: str
    remedy: str | None = None
    ask: bool = False
    private: bool = False


def likely_scheme(port: int) -> str:
    """What a connection to a port is taken to carry before its first bytes are known."""
    return dict(WEB).get(port, "tcp")


def decide(policy: NetworkPolicy, asked: Asked) -> Verdict:
    """Whether the box may have this connection, and which line says so."""
    if not asked.via and is_own(asked.host):
        return Verdict(True, OWN, "it is the box itself")
    verdict = _by_rules(policy, asked)
    return verdict if isinstance(asked.host, Name) else may_dial(policy, asked, verdict, asked.host.text)


def _by_rules(policy: NetworkPolicy, asked: Asked) -> Verdict:
    if closing := _closing(policy, asked.host, asked.port):
        return closing
    near: list[Verdict] = []
    for rule in policy.allow:
        if not targets(rule, asked.host):
            continue
        missing = _missing(rule, asked)
        if not missing:
            return Verdict(True, _rule(rule), f"it opens {_at(asked)}", private=bool(rule.address) or policy.private_addresses)
        near.append(Verdict(False, _rule(rule), missing, _remedy(rule, asked)))
    if policy.default == "allow" and not asked.ech:
        return Verdict(True, "network.default", "it is allow, and nothing closes it", private=policy.private_addresses)
    may_ask = policy.on_unknown == "ask" and isinstance(asked.host, Name) and not asked.ech
    if may_ask and not _is_of_port(policy, asked):
        why = f"no entry of network.allow names {asked.host} at port {asked.port}, and somebody is asked"
        return Verdict(False, "network.on_unknown_domain", why, _entry(asked), ask=True, private=policy.private_addresses)
    if near:
        return near[0]
    if policy.default == "allow":
        why = "it encrypts the server name (ech), which only a rule that names the host opens"
        return Verdict(False, "network.default", why)
    return Verdict(False, "network.default", f"nothing of network.allow opens {_at(asked)}", _entry(asked))


def may_dial(policy: NetworkPolicy, asked: Asked, verdict: Verdict, address: str) -> Verdict:
    """The verdict on an address that the allowed host has, just before it is dialled: that address and no other is.

    address: as a look-up gave it. The verdict that is given is handed back where it holds.
    """
    from ringfence.policy.addresses import faces, special

    if not verdict.allowed:
        return verdict
    for face in faces(address):
        if closing := _closing(policy, Address(str(face)), asked.port):
            return replace(closing, why=f"{asked.host} has the address {address}, and {closing.why}")
    kind = special(address)
    if not kind or policy.private_addresses or _named(policy, asked, address):
        return verdict
    said = f"{asked.host} has the address {address}" if isinstance(asked.host, Name) else f"{address} was asked for"
    why = f"{said}, a {kind} one, which no address rule of network.allow names for port {asked.port}"
    remedy = None if kind in UNNAMEABLE else _line(Address(address), asked.port, asked.scheme)
    return Verdict(False, "network.private_addresses", why, remedy)


def answers_name(policy: NetworkPolicy, name: Name) -> bool:
    """Whether the resolver of a box gives a name an address: where some connection to it may be allowed, or asked about."""
    if any(targets(rule, name) and not rule.ports for rule in policy.deny):
        return False
    if policy.default == "allow" or policy.on_unknown == "ask":
        return True
    return any(rule.host and targets(rule, name) for rule in policy.allow)


def is_own(host: Name | Address) -> bool:
    """Whether a program's own connect to host ends in the box itself: loopback, and the addresses that Linux takes for it."""
    if isinstance(host, Name):
        return host.text == "localhost"
    from ringfence.policy.addresses import special

    return special(host.text) == "loopback"


def _closing(policy: NetworkPolicy, host: Name | Address, port: int) -> Verdict | None:
    for rule in policy.deny:
        if (targets(rule, host) or rule.host == ANY) and (not rule.ports or port in rule.ports):
            return Verdict(False, f"network.deny: {rule.said}", f"it closes {host} at port {port}, and deny wins")
    return None


def targets(rule: HostRule, host: Name | Address) -> bool:
    """Whether a rule is about a host. `*` is every name: an address is opened by a rule of its own."""
    if isinstance(host, Name):
        return bool(rule.host) and names(rule.host, host.text)
    if rule.host:
        return False
    from ringfence.policy.addresses import holds

    return holds(rule.address, host.text)


def _missing(rule: HostRule, asked: Asked) -> str:
    """Why a rule that is about the host does not open this connection to it; '' where it does."""
    for needs in _needs(rule, asked):
        return f"it is {needs}"
    return ""


def _needs(rule: HostRule, asked: Asked) -> Iterator[str]:
    if rule.ports:
        if asked.port not in rule.ports:
            yield f"for port {', '.join(map(str, rule.ports))}, not for {asked.port}"
    elif (asked.port, asked.scheme) not in WEB:
        carried = f" that carries {_in_words(asked.scheme)}" if asked.port in dict(WEB) else ""
        yield f"for TLS on port 443 and plain HTTP on 80, not for port {asked.port}{carried}; an explicit port carries anything"
    if rule.schemes and asked.scheme not in rule.schemes:
        yield f"for {' and '.join(map(_in_words, rule.schemes))}, not for {_in_words(asked.scheme)}"
    if asked.ech and not rule.ech:
        yield "for connections whose server name can be read, and this one encrypts it (ech)"
    if (rule.methods or rule.paths) and asked.scheme != "http":
        yield f"for requests of plain HTTP, since it has methods or paths, not for {_in_words(asked.scheme)}"
    if rule.methods and asked.method not in rule.methods:
        yield f"for {', '.join(rule.methods)}, not for {asked.method or 'a method that is not known'}"
    if rule.paths and not any(_matches(path, asked.path) for path in rule.paths):
        yield f"for {', '.join(rule.paths)}, not for {asked.path or 'a path that is not known'}"


def _in_words(scheme: str) -> str:
    return {"tls": "TLS", "http": "plain HTTP"}.get(scheme, "something else")


def _matches(pattern: str, path: str) -> bool:
    """Whether a request's path is one that a pattern means. One that servers may read as another path is never."""
    plain = plain_path(path)
    if not plain:
        return False
    from ringfence.policy.patterns import matches  # few rules have paths

    # What ends in a slash is in the folder of that name, by a name that no pattern has.
    return matches(pattern, plain + "\0" if plain.endswith("/") and plain != "/" else plain)


def plain_path(sent: str) -> str:
    """The path of a request target without its query, percent-encoding undone; '' for what may mean another path.

    That is dots and empty parts, a backslash, encoded slashes, a second layer of encoding, control characters and what is not
    ASCII: what a front end and the server behind it are known to read differently.
    """
    path = sent.partition("?")[0]
    if not path.startswith("/") or "#" in path or not path.isascii():
        return ""
    first, *encoded = path.split("%")
    plain = first
    for part in encoded:
        digits = part[:2]
        if len(digits) < 2 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            return ""
        character = chr(int(digits, 16))
        if character in "%/\\?#":
            return ""
        plain += character + part[2:]
    if not plain.isprintable() or not plain.isascii() or "\\" in plain or "//" in plain or ";" in plain:
        return ""
    return "" if {".", ".."} & set(plain.split("/")) else plain


def _is_of_port(policy: NetworkPolicy, asked: Asked) -> bool:
    """Whether an entry of allow names the host at this very port, with a condition that is not met: that is not asked about."""
    return any(
        targets(rule, asked.host) and (asked.port in rule.ports if rule.ports else asked.port in dict(WEB)) for rule in policy.allow
    )


def _named(policy: NetworkPolicy, asked: Asked, address: str) -> bool:
    """Whether address rules name all that an address is: itself, and the IPv4 one that it carries where that is not public."""
    from ringfence.policy.addresses import faces, holds, special

    return all(
        any(rule.address and holds(rule.address, str(face)) and not _missing(rule, asked) for rule in policy.allow)
        for face in faces(address)
        if special(str(face))
    )


def _rule(rule: HostRule) -> str:
    return rule.said if rule.said.startswith("network.") else f"network.allow: {rule.said}"


def _at(asked: Asked) -> str:
    return f"{asked.host} at port {asked.port}"


def _remedy(rule: HostRule, asked: Asked) -> str | None:
    """A line for a host that a rule names for something else; none where it says which methods and paths are meant."""
    return None if rule.methods or rule.paths or asked.ech else _entry(asked)


def _entry(asked: Asked) -> str | None:
    return _line(asked.host, asked.port, asked.scheme)


def _line(host: Name | Address, port: int, scheme: str) -> str | None:
    if isinstance(host, Address):
        from ringfence.policy.addresses import special

        if special(host.text) in UNNAMEABLE:
            return None
    shown = f"[{host}]" if ":" in host.text else host.text
    return line("network.allow", host.text if (port, scheme) in WEB else f"{shown}:{port}")
