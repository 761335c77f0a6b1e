"""What the kernel refused a box's programs and told of: headers of packets that nothing in the box can write by itself (NFLOG).

Only sockets of TCP and UDP make them, since none in a box is raw; so the addresses and ports are what was asked for.
"""

from __future__ import annotations

import errno
import os
import struct
from ipaddress import ip_address
from typing import NamedTuple

NFULNL_MSG_PACKET = 0x400  # NFNL_SUBSYS_ULOG << 8, linux/netfilter/nfnetlink_log.h
NFULA_PAYLOAD = 9
PACKET_BYTES = 1 << 16
MOST = 1000
"""Packets that are read at a time: a program can make them faster than they are read."""
PROTOCOLS = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}


class Refused(NamedTuple):
    """One packet: where it was for, of which protocol, and the port that it was sent from (both 0 where there is none)."""

    address: str
    port: int
    protocol: str
    source: int


def read(descriptor: int) -> tuple[list[Refused], bool]:
    """Take what has been told, without waiting; and whether some of it was dropped, since more came than the kernel holds."""
    found: list[Refused] = []
    dropped = False
    os.set_blocking(descriptor, False)
    for _ in range(MOST):
        try:
            packet = os.read(descriptor, PACKET_BYTES)
        except BlockingIOError:
            return found, dropped
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            dropped = True
            continue
        found += _packets(packet)
    return found, True


def _packets(data: bytes) -> list[Refused]:
    found = []
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        if kind == NFULNL_MSG_PACKET and (refused := _refused(_payload(data[20:length]))):
            found.append(refused)
        data = data[max(16, length + -length % 4) :]
    return found


def _payload(attributes: bytes) -> bytes:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind & 0x7FFF == NFULA_PAYLOAD:
            return attributes[4:length]
        attributes = attributes[max(4, length + -length % 4) :]
    return b""


def _refused(packet: bytes) -> Refused | None:
    """From a header of IP (RFC 791, RFC 8200) and the ports behind it."""
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        protocol, address, ports = packet[9], packet[16:20], packet[(packet[0] & 15) * 4 :][:4]
    elif len(packet) >= 40 and packet[0] >> 4 == 6:
        protocol, address, ports = packet[6], packet[24:40], packet[40:44]
    else:
        return None
    name = PROTOCOLS.get(protocol, f"protocol {protocol}")
    source, port = struct.unpack(">HH", ports) if name in ("tcp", "udp") and len(ports) == 4 else (0, 0)
    return Refused(str(ip_address(address)), port, name, source)
