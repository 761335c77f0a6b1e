"""Messages to the kernel that make routes and packet rules, as bytes: a few of rtnetlink(7) and of nf_tables, and no more.

Made outside and carried out by the first process of a box, like the program of its filter: nothing is decided there. Numbers are
from linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h, linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink_log.h.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Network, IPv6Network

ROUTE, NETFILTER = 0, 12  # NETLINK_ROUTE, NETLINK_NETFILTER
REQUEST, ACK, REPLACE, EXCLUSIVE, CREATE, APPEND = 0x1, 0x4, 0x100, 0x200, 0x400, 0x800  # NLM_F_*
LO = 1  # the first interface of every network namespace
TABLE = b"ringfence\0"
INET = 1  # NFPROTO_INET: IPv4 and IPv6 in one table, since Linux 4.10; its nat chains since 5.2
ACCEPT = 1  # NF_ACCEPT
ESTABLISHED, RELATED = 0x2, 0x4  # NF_CT_STATE_BIT
LOGGED_BYTES = 80
"""Of a refused packet: the headers, which tell address and port."""

Net = IPv4Network | IPv6Network


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def _nested(kind: int, *attributes: bytes) -> bytes:
    return _attribute(kind | 0x8000, b"".join(attributes))  # NLA_F_NESTED


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, 0, 0) + body


def _be32(value: int) -> bytes:
    return struct.pack(">I", value & 0xFFFFFFFF)


# Routes


def address(own: str, prefix: int) -> bytes:
    """Give lo an address whose whole network is local, as 127.0.0.1/8 is (fib_add_ifaddr, net/ipv4/fib_frontend.c)."""
    packed = socket.inet_aton(own)
    head = struct.pack("=BBBBI", socket.AF_INET, prefix, 0x80, 0, LO)  # IFA_F_PERMANENT, RT_SCOPE_UNIVERSE
    return _message(20, ACK | CREATE | EXCLUSIVE, head + _attribute(1, packed) + _attribute(2, packed))  # RTM_NEWADDR


def local(net: Net, source: str = "") -> bytes:
    """Let every address of net be local to the box, with source as the address that is connected from."""
    return _message(24, ACK | CREATE | REPLACE, _route(net, source))  # RTM_NEWROUTE


def local_removed(net: Net) -> bytes:
    return _message(25, ACK, _route(net, ""))  # RTM_DELROUTE


def _route(net: Net, source: str) -> bytes:
    family = socket.AF_INET if net.version == 4 else socket.AF_INET6
    scope = 254 if net.version == 4 else 0  # RT_SCOPE_HOST; IPv6 has no scopes of routes
    head = struct.pack("=BBBBBBBBI", family, net.prefixlen, 0, 0, 255, 3, scope, 2, 0)  # table local, protocol boot, type local
    attributes = _attribute(1, net.network_address.packed) if net.prefixlen else b""
    attributes += _attribute(4, struct.pack("=I", LO))
    return head + attributes + (_attribute(7, socket.inet_aton(source)) if source else b"")


# Packet rules. Each expression writes or reads the first register.


def _expression(name: bytes, *attributes: bytes) -> bytes:
    return _nested(1, _attribute(1, name + b"\0"), _nested(2, *attributes))


def _equals(value: bytes, *, different: bool = False) -> bytes:
    return _expression(b"cmp", _attribute(1, _be32(1)), _attribute(2, _be32(int(different))), _nested(3, _attribute(1, value)))


def _meta(key: int, value: int) -> bytes:
    return _expression(b"meta", _attribute(1, _be32(1)), _attribute(2, _be32(key))) + _equals(bytes((value,)))


def _payload(base: int, offset: int, length: int) -> bytes:
    fields = (1, base, offset, length)  # register, header, and where in it
    return _expression(b"payload", *(_attribute(kind, _be32(value)) for kind, value in enumerate(fields, 1)))


def _masked(mask: bytes) -> bytes:
    length = len(mask)
    sizes = (_attribute(1, _be32(1)), _attribute(2, _be32(1)), _attribute(3, _be32(length)))
    return _expression(b"bitwise", *sizes, _nested(4, _attribute(1, mask)), _nested(5, _attribute(1, bytes(length))))


def to(net: Net) -> bytes:
    """A packet for an address of net."""
    family, offset, length = (2, 16, 4) if net.version == 4 else (10, 24, 16)  # NFPROTO_*, and where daddr is
    masked = _masked(net.netmask.packed) if net.prefixlen < net.max_prefixlen else b""
    one = _meta(15, family)  # NFT_META_NFPROTO
    return one + (_payload(1, offset, length) + masked + _equals(net.network_address.packed) if net.prefixlen else b"")


def tcp(port: int | None = None) -> bytes:
    """A packet of TCP, to a port where one is named."""
    return _meta(16, socket.IPPROTO_TCP) + (_payload(2, 2, 2) + _equals(struct.pack(">H", port)) if port else b"")


def known() -> bytes:
    """A packet of a connection that was let through, or an error that is about one."""
    state = _expression(b"ct", _attribute(2, _be32(0)), _attribute(1, _be32(1)))  # NFT_CT_STATE
    return state + _masked(struct.pack("=I", ESTABLISHED | RELATED)) + _equals(bytes(4), different=True)


def accept() -> bytes:
    verdict = _nested(2, _nested(2, _attribute(1, _be32(ACCEPT))))
    return _expression(b"immediate", _attribute(1, _be32(0)), verdict)


def redirect(port: int) -> bytes:
    """To a port of 127.0.0.1 or ::1; the socket there tells what was asked for (SO_ORIGINAL_DST)."""
    loaded = _expression(b"immediate", _attribute(1, _be32(1)), _nested(2, _attribute(1, struct.pack(">H", port))))
    return loaded + _expression(b"redir", _attribute(1, _be32(1)))


def log(group: int) -> bytes:
    """Tell whoever listens to group of each packet at once."""
    return _expression(
        b"log", _attribute(1, struct.pack(">H", group)), _attribute(3, _be32(LOGGED_BYTES)), _attribute(4, struct.pack(">H", 1))
    )


def reset() -> bytes:
    return _expression(b"reject", _attribute(1, _be32(1)), _attribute(2, b"\0"))  # NFT_REJECT_TCP_RST


def unreachable() -> bytes:
    return _expression(b"reject", _attribute(1, _be32(2)), _attribute(2, b"\1"))  # NFT_REJECT_ICMPX_UNREACH, port


def table() -> bytes:
    return _rules(0, CREATE, _attribute(1, TABLE))


def chain(name: bytes, kind: bytes, priority: int) -> bytes:
    """A chain of what leaves a process: all packets of a box do, since it has lo alone."""
    hook = _nested(4, _attribute(1, _be32(3)), _attribute(2, _be32(priority)))  # NF_INET_LOCAL_OUT
    return _rules(3, CREATE, _attribute(1, TABLE), _attribute(3, name + b"\0"), hook, _attribute(7, kind + b"\0"))


def flush(name: bytes) -> bytes:
    """Remove the rules of a chain."""
    return _rules(8, 0, _attribute(1, TABLE), _attribute(2, name + b"\0"))


def remove_table() -> bytes:
    return _rules(2, 0, _attribute(1, TABLE))


def rule(chain: bytes, *expressions: bytes) -> bytes:
    return _rules(6, CREATE | APPEND | ACK, _attribute(1, TABLE), _attribute(2, chain + b"\0"), _nested(4, *expressions))


def _rules(kind: int, flags: int, *attributes: bytes) -> bytes:
    head = struct.pack(">BBH", INET, 0, 0)
    return _message(10 << 8 | kind, flags, head + b"".join(attributes))  # NFNL_SUBSYS_NFTABLES


def batch(*messages: bytes) -> bytes:
    """All of messages, or none of them."""
    head = struct.pack(">BBH", 0, 0, 10)
    return _message(0x10, 0, head) + b"".join(messages) + _message(0x11, 0, head)  # NFNL_MSG_BATCH_BEGIN, END


def listen_to(group: int) -> bytes:
    """Have what is logged to group sent to the socket that this is sent on."""
    head = struct.pack(">BBH", 0, 0, group)
    bind = _message(4 << 8 | 1, ACK, head + _attribute(1, b"\1"))  # NFNL_SUBSYS_ULOG, NFULNL_CFG_CMD_BIND
    return bind + _message(4 << 8 | 1, ACK, head + _attribute(2, struct.pack(">IBB", LOGGED_BYTES, 2, 0)))  # copy the packet
