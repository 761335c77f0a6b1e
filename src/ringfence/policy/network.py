"""What a box may reach, as data: the rules of a policy, and the form of them that the egress server is told.

Made by resolve from a config; nothing here looks at the host. Which rule decides is said by reach.decide.
"""

from __future__ import annotations

from typing import Any

from ringfence.values import field, fields, frozen

RANGE = "198.18.0.0/15"
"""Addresses that stand for names inside a box: set aside for tests of devices, so no network uses them (RFC 2544)."""


@frozen
class HostRule:
    """One entry of network.allow or network.deny.

    said: as it was written, which is what a denial names; two rules that mean the same are equal whatever was written. host: a
    normalised name, or one behind `*.`, or `*`; address: a network in CIDR form; one of the two is empty. ports: () is the
    default: TLS on 443 and plain HTTP on 80 where it allows, every port where it denies. methods, paths: of plain HTTP alone; ()
    is any. ech: whether a TLS hello whose server name is encrypted is let through. schemes: 'tls' and 'http', where no other
    kind of traffic is meant; () is what the ports say.
    """

    said: str = field(compare=False)
    host: str = ""
    address: str = ""
    ports: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    ech: bool = False
    schemes: tuple[str, ...] = ()


@frozen
class NetworkPolicy:
    """What a box may reach. default: of what no rule names, 'deny' or 'allow'; private addresses need naming in both.

    on_unknown: 'ask' holds a connection to a name that no rule names until somebody answers. upstream_proxy: '' or the URL of the
    proxy that the server dials through; it may hold a password and is never shown: see shown_proxy. private_addresses: whether
    names may lead to private addresses that no rule names. range: the network that stands for names inside the box. publish:
    ports of the box, and `unix:PATH:PORT`. announce: whether a proxy is announced to programs too.
    """

    default: str = "deny"
    allow: tuple[HostRule, ...] = ()
    deny: tuple[HostRule, ...] = ()
    on_unknown: str = "deny"
    upstream_proxy: str = field(default="", repr=False)
    private_addresses: bool = False
    range: str = RANGE
    publish: tuple[int | str, ...] = ()
    announce: bool = True

    @property
    def open(self) -> bool:
        """Whether there is a way out at all; a box without one needs no server and no listener."""
        return self.default == "allow" or bool(self.allow) or self.on_unknown == "ask"

    @property
    def ruled(self) -> tuple[str, ...]:
        """The keys of a policy file under which more is said than that all is open or closed."""
        said = {
            "network.allow": self.allow,
            "network.deny": self.deny,
            "network.on_unknown_domain": self.on_unknown == "ask",
            "network.publish": self.publish,
            "network.upstream_proxy": self.upstream_proxy,
        }
        return tuple(key for key, value in said.items() if value)

    @property
    def shown_proxy(self) -> str:
        """The upstream proxy without what is before the `@` of its URL."""
        return without_password(self.upstream_proxy)


CLOSED = NetworkPolicy()
"""What a box has that asks for no network."""


def without_password(url: str) -> str:
    """A URL without what is before its `@`."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


def published(entry: int | str) -> tuple[str, int]:
    """The path of a Unix socket outside, or '' for an address of loopback, and the port of the box that it leads to.

    entry: a port, or `unix:PATH:PORT`. Raises ValueError for what is neither.
    """
    if isinstance(entry, str) and entry.startswith("unix:"):
        path, _, port = entry.removeprefix("unix:").rpartition(":")
        number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    else:
        path, number = "", entry if isinstance(entry, int) and not isinstance(entry, bool) else 0
    if not 0 < number < 65536 or "\0" in path or (isinstance(entry, str) and not path):
        raise ValueError(f"a port from 1 to 65535, or unix:PATH:PORT, not {entry!r}")
    return path, number


def to_wire(policy: NetworkPolicy) -> bytes:
    """The policy as JSON, for the egress server."""
    import json  # only where there is a way out

    said = {each.name: getattr(policy, each.name) for each in fields(policy)}
    for name in ("allow", "deny"):
        said[name] = [{each.name: getattr(rule, each.name) for each in fields(rule)} for rule in said[name]]
    return json.dumps(said, separators=(",", ":")).encode()


def from_wire(data: bytes) -> NetworkPolicy:
    """The policy that to_wire wrote. Raises ValueError for what it did not write; meant for what this program sent itself."""
    import json

    said = json.loads(data)
    try:
        plain: dict[str, Any] = {key: _plain(value) for key, value in said.items()}
        for name in ("allow", "deny"):
            plain[name] = tuple(HostRule(**{key: _plain(value) for key, value in rule.items()}) for rule in plain[name])
        return NetworkPolicy(**plain)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is no policy of a network: {error}") from None


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
