"""From what a policy says to a rule of its network: `HOST`, `HOST:PORT`, `*.HOST`, an address, a network, or a map of the parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError
from ringfence.policy.hosts import Address, BadHostError, normalise
from ringfence.policy.network import RANGE, HostRule, published
from ringfence.values import fields, replace

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig

KEYS = ("host", "address", "ports", "methods", "paths", "ech")
ANY = "*"
WEB = ((443, "tls"), (80, "http"))
"""What a rule without ports opens: the port, and what it must carry."""
RANGES = (RANGE, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
"""What the network that stands for names may lie in: addresses that no public host has."""
TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
INTERCEPTION = (
    "cannot be enforced until interception: {} would hold for https, where methods and paths are encrypted. "
    "Say ports that carry plain HTTP, such as ports: [80], or leave methods and paths out"
)


def host_rule(entry: object, where: str) -> HostRule:
    """The rule of one entry of network.allow or network.deny, where being 'network_allow' or 'network_deny'. Raises ConfigError."""
    try:
        if isinstance(entry, HostRule):
            return entry
        if isinstance(entry, str):
            return _of_text(entry)
        if isinstance(entry, Mapping):
            whole = {each.name for each in fields(HostRule)} == entry.keys()  # a rule that was recorded, field by field
            given = {key: value for key, value in entry.items() if key in KEYS and value} if whole else entry
            rule = _of_map(given, denies=where == "network_deny")
            return replace(rule, said=str(entry["said"])) if whole else rule
    except BadHostError as error:
        raise ConfigError(f"{where} has {_shown(entry)}: {error}.") from None
    raise ConfigError(f"{where} takes text such as 'example.com:443' or a map with a host, not {entry!r}.")


def host_rules(entries: Sequence[object], where: str) -> tuple[HostRule, ...]:
    """The rules of a list, each meaning once. Raises ConfigError that names the entry."""
    return tuple(dict.fromkeys(host_rule(entry, where) for entry in entries))


def check(config: SandboxConfig) -> None:
    """Raise ConfigError for what a config says of networks, beside its rules, and cannot mean."""
    from ringfence.policy.config import PRESETS  # it is what this checks

    for name in config.network_presets:
        if name not in PRESETS:
            raise ConfigError(f"network_presets takes {', '.join(PRESETS)}, not {name!r}.")
    if config.network_presets and config.mode == "danger-full-access":
        raise ConfigError("network_presets and mode danger-full-access: a box could write the settings that presets are read from.")
    for entry in config.network_publish:
        try:
            published(entry)
        except ValueError as error:
            raise ConfigError(f"network_publish takes {error}.") from None
    if config.upstream_proxy not in ("none", "env"):
        check_proxy(config.upstream_proxy, "upstream_proxy")
    _check_range(config.network_range)


def check_proxy(url: object, where: str) -> None:
    """Raise ConfigError where url is not that of an HTTP proxy; where is what it is called. A password is not repeated."""
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    host, colon, port = rest.rpartition("@")[2].removesuffix("/").rpartition(":")
    try:
        if scheme != "http" or not separator or not colon or not (port.isascii() and port.isdecimal()):
            raise BadHostError("it is no http://HOST:PORT")
        normalise(host)
        _ports([int(port)])
    except BadHostError as error:
        raise ConfigError(f"{where} takes none, env or http://HOST:PORT; what is given is none of them: {error}.") from None


def _check_range(text: object) -> None:
    from ipaddress import IPv4Network

    try:
        network = IPv4Network(str(text))
        fits = network.prefixlen <= 22 and any(network.subnet_of(IPv4Network(each)) for each in RANGES)
    except ValueError:
        fits = False
    if not fits or text != str(IPv4Network(str(text))):
        raise ConfigError(f"network_range takes a network of {', '.join(RANGES)}, of at least a /22, not {text!r}.")


def written(rule: HostRule) -> str | dict[str, object]:
    """The rule as a policy file has it: text where that says all of it."""
    target = rule.host or rule.address.removesuffix("/128" if ":" in rule.address else "/32")
    parts: dict[str, object] = {"host" if rule.host else "address": target}
    parts |= {name: list(getattr(rule, name)) for name in ("ports", "methods", "paths") if getattr(rule, name)}
    parts |= {"ech": True} if rule.ech else {}
    if len(rule.ports) > 1 or parts.keys() - {"host", "address", "ports"}:
        return parts
    if not rule.ports:
        return target
    if "/" in target:
        return parts
    return f"[{target}]:{rule.ports[0]}" if ":" in target else f"{target}:{rule.ports[0]}"


def _shown(entry: object) -> str:
    if isinstance(entry, Mapping):
        return "{" + ", ".join(f"{key}: {json.dumps(entry[key], default=str)}" for key in KEYS if key in entry) + "}"
    return repr(entry)


def _of_text(text: str) -> HostRule:
    _, slash, behind = text.partition("/")
    if slash and not (behind.isascii() and behind.isdecimal()):
        raise BadHostError("a rule names a host and not a URL: write HOST or HOST:PORT")
    host, colon, port = text, "", ""
    if text.count(":") == 1 or "]:" in text:
        host, colon, port = text.rpartition(":")
    if colon and not (port.isascii() and port.isdecimal() and port[0] != "0"):
        raise BadHostError(f"{port!a} is no port")
    return replace(_target(host), said=text, ports=_ports([int(port)]) if colon else ())


def _target(host: str) -> HostRule:
    """A rule for what host names: a network, an address, a name, what is below a name, or everything."""
    if host == ANY:
        return HostRule(host, host=ANY)
    if "/" in host:
        return HostRule(host, address=_network(host))
    if host.startswith("."):
        raise BadHostError(f"it begins with a dot: write *{host} for what is below it")
    wild = host.startswith("*.")
    if "*" in host.removeprefix("*."):
        raise BadHostError("a wildcard is `*.` at the beginning and nowhere else")
    found = normalise(host.removeprefix("*."))
    if isinstance(found, Address):
        if wild:
            raise BadHostError("nothing is below an address")
        return HostRule(host, address=_network(found.text))
    return HostRule(host, host=f"*.{found}" if wild else found.text)


def _network(text: str) -> str:
    """A network, or an address as the network that holds it alone, in its one spelling."""
    from ipaddress import IPv6Network, ip_network  # most rules are names

    address, _, length = text.partition("/")
    plain = normalise(address)
    if not isinstance(plain, Address) or (length and not (length.isascii() and length.isdecimal())):
        raise BadHostError("it is no address or network: write 203.0.113.7, or 203.0.113.0/24")
    try:
        network = ip_network(f"{plain}/{length}" if length else plain.text)
    except ValueError:
        raise BadHostError("it is no network: its length is wrong, or its address has bits behind that") from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped:
        raise BadHostError("an IPv4 network is written as one")
    return str(network)


def _of_map(entry: Mapping[object, object], *, denies: bool) -> HostRule:
    if unknown := [key for key in entry if key not in KEYS]:
        raise BadHostError(f"it has {unknown[0]!r}, which is none of {', '.join(KEYS)}")
    host, address = entry.get("host"), entry.get("address")
    if (host is None) == (address is None):
        raise BadHostError("it needs a host or an address, and one of the two")
    for each in (host, address):
        if each is not None and not isinstance(each, str):
            raise BadHostError(f"{each!r} is no text")
    rule = _target(str(host if address is None else address))
    if bool(rule.host) != (address is None):
        raise BadHostError(f"{host if address is None else address!r} belongs into {'address' if rule.address else 'host'}")
    ech = entry.get("ech", False)
    if not isinstance(ech, bool):
        raise BadHostError("ech is true or false")
    rule = replace(
        rule,
        said=_shown(entry),
        ports=_ports(entry["ports"]) if "ports" in entry else (),
        methods=_methods(entry["methods"]) if "methods" in entry else (),
        paths=_paths(entry["paths"]) if "paths" in entry else (),
        ech=ech,
    )
    if denies and (rule.methods or rule.paths or rule.ech):
        raise BadHostError("deny closes hosts and ports: what methods and paths are open is for allow to say")
    if (rule.methods or rule.paths) and (not rule.ports or 443 in rule.ports):
        raise BadHostError(INTERCEPTION.format("this rule"))
    return rule


def _list(value: object, name: str) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise BadHostError(f"{name} is a list")
    if not value:
        raise BadHostError(f"{name} is empty: leave it out where any is meant")
    return value


def _ports(value: object) -> tuple[int, ...]:
    found = []
    for port in _list(value, "ports"):
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise BadHostError(f"a port is a number from 1 to 65535, not {port!r}")
        found.append(port)
    return tuple(sorted(set(found)))


def _methods(value: object) -> tuple[str, ...]:
    found = []
    for method in _list(value, "methods"):
        if not isinstance(method, str) or not method or not TOKEN.issuperset(method):
            raise BadHostError(f"a method is written in capitals, such as GET, not {method!r}")
        if method == "CONNECT":
            raise BadHostError("CONNECT is how a proxy is asked, and no method of a host")
        found.append(method)
    return tuple(sorted(set(found)))


def _paths(value: object) -> tuple[str, ...]:
    from ringfence.policy.patterns import check  # few rules have any

    found = []
    for path in _list(value, "paths"):
        if not isinstance(path, str) or not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise BadHostError(f"a path begins with / and is plain ASCII, not {path!r}")
        if "?" in path or "#" in path or "%" in path or "//" in path or {".", ".."} & set(path.split("/")):
            raise BadHostError(f"{path!r} is no path in its plain form: without query, %, // and dots")
        try:
            check(path)
        except ConfigError as error:
            raise BadHostError(error.message.rstrip(".")) from None
        found.append(path)
    return tuple(sorted(set(found)))


def opens_no_more(parent: SandboxConfig, child: SandboxConfig) -> bool:
    """Whether every rule of a child's network.allow opens only what its parent opens, port by port."""
    return all(
        any(_holds_in(outer, atom) for outer in rules_of(parent)) or (parent.allow_network and _is_open_by_default(parent, atom))
        for rule in rules_of(child)
        for atom in _atoms(rule)
    )


def rules_of(config: SandboxConfig) -> tuple[HostRule, ...]:
    """What a config allows by name: once it is made its entries are rules."""
    return tuple(rule for rule in config.network_allow if isinstance(rule, HostRule))


def _atoms(rule: HostRule) -> Iterator[HostRule]:
    """A rule as rules for one port each, the default among them as what it stands for."""
    for port in rule.ports:
        yield replace(rule, ports=(port,))
    if not rule.ports:
        for port, scheme in WEB:
            if scheme in (rule.schemes or (scheme,)):
                yield replace(rule, ports=(port,), schemes=(scheme,))


def _is_open_by_default(parent: SandboxConfig, atom: HostRule) -> bool:
    """Whether network.default: allow of the parent opens what a rule does: names, and addresses that are public."""
    from ringfence.policy.addresses import all_public

    return not atom.ech and (not atom.address or parent.private_addresses or all_public(atom.address))


def _holds_in(parent: HostRule, atom: HostRule) -> bool:
    """Whether all that a rule for one port opens is opened by a rule of the parent."""
    fits = (
        atom.ports[0] in parent.ports
        if parent.ports
        else any(atom.ports == (port,) and atom.schemes == (said,) for port, said in WEB)
    )
    return (
        fits
        and _target_in(parent, atom)
        and _part(parent.schemes, atom.schemes)
        and _part(parent.methods, atom.methods)
        and (not parent.paths or (bool(atom.paths) and all(_path_in(parent, path) for path in atom.paths)))
        and atom.ech <= parent.ech
    )


def _target_in(parent: HostRule, child: HostRule) -> bool:
    if bool(parent.host) != bool(child.host):
        return False
    if parent.host:
        return names(parent.host, child.host)
    from ipaddress import ip_network

    outer, inner = ip_network(parent.address), ip_network(child.address)
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def names(pattern: str, host: str) -> bool:
    """Whether the host of a rule holds a name, or all of the names that another rule has."""
    if pattern in (ANY, host):
        return True
    return pattern.startswith("*.") and host.removeprefix("*").endswith(pattern[1:]) and len(host) > len(pattern) - 1


def _part(parent: tuple[str, ...], child: tuple[str, ...]) -> bool:
    """A list in which nothing said is any."""
    return not parent or (bool(child) and {*child} <= {*parent})


def _path_in(parent: HostRule, path: str) -> bool:
    from ringfence.policy.patterns import is_glob, matches

    return path in parent.paths or (not is_glob(path) and any(matches(outer, path) for outer in parent.paths))


def closes_all_of(denied: HostRule, allowed: HostRule) -> bool:
    """Whether a rule of network.deny leaves nothing of one of network.allow."""
    ports = {*allowed.ports} or {port for port, _ in WEB}
    return (denied.host == ANY or _target_in(denied, allowed)) and (not denied.ports or ports <= {*denied.ports})
