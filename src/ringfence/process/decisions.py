"""What the egress server says of one box: each decision, before the program in the box can see it. Its words are checked, since it
reads what boxes write."""

from __future__ import annotations

import _socket
import os
from collections.abc import Mapping
from typing import NamedTuple

from ringfence.errors import ProtocolError
from ringfence.guest import wire

MOST = 5000
"""Messages that are read at a time."""
MOST_TEXT = 2000


class Decision(NamedTuple):
    """One connection, question to the resolver or request that was decided. at: nanoseconds of the monotonic clock."""

    allowed: bool
    host: str
    port: int
    scheme: str
    via: str
    rule: str
    remedy: str | None
    why: str
    source: int
    address: str
    at: int


class Named(NamedTuple):
    """A name that was given an address of the range."""

    name: str
    address: str


class Asks(NamedTuple):
    """A connection that is held until somebody answers, or the deadline has come."""

    question: int
    host: str
    port: int
    deadline: int


class Spent(NamedTuple):
    """So many decisions found no room."""

    decisions: int


class Noted(NamedTuple):
    """Something that went wrong there, in words."""

    text: str


RESTARTED = "the server of its network died and was started again, which broke the connections that were open"
Said = Decision | Named | Asks | Spent | Noted


def read(channel: _socket.socket) -> tuple[list[Said], bool]:
    """Take what has been said, without waiting; and whether the server is still there. Raises ProtocolError."""
    found: list[Said] = []
    channel.setblocking(False)
    for _ in range(MOST):
        try:
            packet, _ = wire.receive(channel, 0)
        except BlockingIOError:
            return found, True
        except OSError:
            return found, False
        if not packet:
            return found, False
        if said := _said(packet):
            found.append(said)
    return found, True


def _said(packet: bytes) -> Said | None:
    try:
        fields = wire.decode(packet)
    except wire.WireError as error:
        raise ProtocolError(f"the egress server sent bytes that are no message: {error}.") from None
    if not isinstance(fields, dict):
        raise ProtocolError("the egress server sent something that is no message.")
    match fields.get("op"):
        case b"decision":
            return Decision(
                bool(_number(fields, "allowed")), _text(fields, "host"), _number(fields, "port"), _text(fields, "scheme"),
                _text(fields, "via"), _text(fields, "rule"), _text(fields, "remedy") or None, _text(fields, "why"),
                _number(fields, "source_port"), _text(fields, "address"), _number(fields, "at_ns"),
            )  # fmt: skip
        case b"name":
            return Named(_text(fields, "name"), _text(fields, "address"))
        case b"ask":
            return Asks(_number(fields, "question"), _text(fields, "host"), _number(fields, "port"), _number(fields, "deadline_ns"))
        case b"ready":
            return None
        case b"restarted":
            return Noted(RESTARTED)
        case b"note" | b"failed" as kind:
            return Noted(_text(fields, "text" if kind == b"note" else "why"))
        case b"spent":
            return Spent(_number(fields, "count"))
    raise ProtocolError("the egress server sent a message that is not known.")


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ProtocolError(f"the egress server sent a {name} that is out of bounds.")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, bytes) or len(value) > MOST_TEXT:
        raise ProtocolError(f"the egress server sent a {name} that is out of bounds.")
    return os.fsdecode(value)
