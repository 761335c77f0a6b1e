"""Which addresses are not of the public internet, and what they are: reached only where a policy names them.

From the IANA special-purpose address registries (RFC 6890) and, for IPv6, from what is given out at all (2000::/3). An IPv6 address
that carries an IPv4 one is judged by both: a gateway on the way makes one of the other.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

SPECIAL = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("169.254.169.254/32", "metadata"),  # of most clouds
        ("168.63.129.16/32", "metadata"),  # of Azure, a public address that only its machines reach
        ("100.100.100.200/32", "metadata"),  # of Alibaba Cloud
        ("192.0.0.192/32", "metadata"),  # of Oracle's older machines
        ("0.0.0.0/8", "loopback"),  # "this network": Linux connects 0.0.0.0 to itself
        ("127.0.0.0/8", "loopback"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("100.64.0.0/10", "shared"),  # of a carrier's customers (RFC 6598)
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # broadcast among them
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("fd00:ec2::254/128", "metadata"),  # of Amazon
        ("fd20:ce::254/128", "metadata"),  # of Google
        ("::/127", "loopback"),  # ::1, and the unspecified address, which Linux connects to it
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),  # site-local, of old
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # of protocols; Teredo tunnels among them (RFC 4380)
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
GIVEN_OUT = ip_network("2000::/3")
CARRIERS = tuple(
    (ip_network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # mapped (RFC 4291, section 2.5.5.2)
        ("::ffff:0:0:0/96", 0),  # translated (RFC 7915)
        ("::/96", 0),  # compatible (RFC 4291, section 2.5.5.1)
        ("64:ff9b::/96", 0),  # NAT64 (RFC 6052)
        ("2002::/16", 80),  # 6to4 (RFC 3056)
    )
)
"""Networks whose addresses carry an IPv4 address, with how many bits are behind it."""
ISATAP = (0x00005EFE, 0x02005EFE)
"""The middle of an address whose end is an IPv4 one (RFC 5214, section 6.1)."""


@lru_cache(maxsize=1024)
def special(address: str) -> str:
    """What an address is that is not public: 'private', 'loopback', 'link-local', 'metadata', 'multicast', 'shared' or 'reserved'.

    '' for a public one. Raises ValueError for what is no address.
    """
    return next((kind for each in faces(address) if (kind := _kind(each))), "")


@lru_cache(maxsize=4096)
def _parsed(network: str) -> tuple[int, int, int]:
    """A network as its version, its number without the bits of hosts, and how many those are."""
    parsed = ip_network(network)
    return parsed.version, int(parsed.network_address), parsed.max_prefixlen - parsed.prefixlen


@lru_cache(maxsize=1024)
def _number(address: str) -> tuple[int, int]:
    parsed = ip_address(address)
    return parsed.version, int(parsed)


def holds(network: str, address: str) -> bool:
    """Whether an address is in a network, both as text. Raises ValueError for what is none."""
    (version, base, bits), (of, number) = _parsed(network), _number(address)
    return version == of and number >> bits == base >> bits


@lru_cache(maxsize=1024)
def faces(address: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """An address and the IPv4 one that it carries, the latter alone where the kernel would connect to that."""
    whole = ip_address(address)
    if isinstance(whole, IPv4Address):
        return (whole,)
    if whole.ipv4_mapped:
        return (whole.ipv4_mapped,)
    return (whole, *_carried(whole))


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    number = int(address)
    carried = [IPv4Address(number >> shift & 0xFFFFFFFF) for network, shift in CARRIERS if address in network]
    if number >> 32 & 0xFFFFFFFF in ISATAP:
        carried.append(IPv4Address(number & 0xFFFFFFFF))
    return tuple(carried)


def _kind(address: IPv4Address | IPv6Address) -> str:
    kind = next((kind for network, kind in SPECIAL if address in network), "")
    if kind or address.version == 4 or address in GIVEN_OUT or any(address in network for network, _ in CARRIERS):
        return kind
    return "reserved"


def all_public(network: str) -> bool:
    """Whether no address of a network is special. One that is larger than a registry's entry, or carries others, is not."""
    whole = ip_network(network)
    held = [each for each, _ in (*SPECIAL, *CARRIERS) if each.version == whole.version]
    return not any(whole.overlaps(each) for each in held) and (whole.version == 4 or whole.subnet_of(GIVEN_OUT))  # type: ignore[arg-type]
