"""The messages between the outside and a guest: bencode, as BitTorrent's BEP 3 describes it.

Four types (integers, byte strings, lists, dictionaries with sorted keys), one spelling for every value, nothing that
belongs to Python: a guest in any language can speak it. Locally one message is one packet of a SOCK_SEQPACKET socket;
over a byte stream the same bytes are preceded by their length. The decoder trusts nobody: it accepts the canonical
spelling alone, bounds depth and size, and its only failure is WireError.
"""

import _socket
import os
import sys

GRACE_NS = 2_000_000_000
"""What a guest has to end a tree after a deadline before the zygote ends the whole box."""
MAX_MESSAGE = 64 * 1024
"""Bytes of one packet. Larger payloads travel as a memfd beside the message."""

MOST_DESCRIPTORS = 253
"""That one packet can carry (SCM_MAX_FD, net/scm.h)."""

CARRIED = b"m"
"""A packet of this one byte says: the message is in the memfd that comes first."""

SO_PASSRIGHTS = 83  # asm-generic/socket.h, Linux 6.16

MAX_DEPTH = 6
MAX_DIGITS = 20


class WireError(ValueError):
    """The bytes are not one message of this protocol."""


def encode(value: object) -> bytes:
    """The canonical bytes of value; str is sent as UTF-8 with surrogateescape, so that any file name survives."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: object, parts: list[bytes]) -> None:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        parts.append(b"%d:" % len(value))
        parts.append(value)
    elif isinstance(value, int):
        parts.append(b"i%de" % value)
    elif isinstance(value, (list, tuple)):
        parts.append(b"l")
        for item in value:
            _write(item, parts)
        parts.append(b"e")
    elif isinstance(value, dict):
        parts.append(b"d")
        for key in sorted(value):
            parts.append(b"%d:%b" % (len(key), key.encode("ascii")))
            _write(value[key], parts)
        parts.append(b"e")
    else:
        raise TypeError(f"{type(value).__name__} has no wire form")


def decode(data: bytes) -> object:
    """The value of one whole message. Raises WireError for anything but the canonical spelling of one value."""
    value, end = _read(data, 0, 0)
    if end != len(data):
        raise WireError("bytes after the message")
    return value


def _read(data: bytes, at: int, depth: int) -> tuple[object, int]:
    if depth > MAX_DEPTH:
        raise WireError("nested too deeply")
    lead = data[at : at + 1]
    if lead.isdigit():
        return _read_bytes(data, at)
    if lead == b"i":
        end = data.find(b"e", at, at + MAX_DIGITS + 3)
        return _integer(data[at + 1 : end] if end > 0 else b""), end + 1
    if lead == b"l":
        items: list[object] = []
        at += 1
        while data[at : at + 1] != b"e":
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at + 1
    if lead == b"d":
        return _read_dict(data, at + 1, depth)
    raise WireError("not a value")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    # Once for every value that is read: the checks of _integer, without its calls.
    colon = data.find(b":", at, at + MAX_DIGITS)
    digits = data[at:colon]
    if colon < 0 or not digits.isdigit() or (digits[0] == 0x30 and colon > at + 1):
        raise WireError("a byte string without its length")
    colon += 1
    end = colon + int(digits)
    if end > len(data):
        raise WireError("a byte string that is longer than its message")
    return data[colon:end], end


def _read_dict(data: bytes, at: int, depth: int) -> tuple[dict[str, object], int]:
    entries: dict[str, object] = {}
    last = b""
    first = True
    while data[at : at + 1] != b"e":
        if not data[at : at + 1].isdigit():
            raise WireError("a key that is not a byte string")
        key, at = _read_bytes(data, at)
        if key <= last and not first:
            raise WireError("keys out of order")
        last, first = key, False
        if not key.isascii():
            raise WireError("a key that is not ASCII")
        entries[key.decode("ascii")], at = _read(data, at, depth + 1)
    return entries, at + 1


def _integer(digits: bytes) -> int:
    if digits.isdigit() and digits[0] != 0x30 and len(digits) <= MAX_DIGITS:
        return int(digits)
    body = digits[1:] if digits[:1] == b"-" else digits
    if not body or len(body) > MAX_DIGITS or not body.isdigit() or (body[:1] == b"0" and digits != b"0"):
        raise WireError("not an integer")
    return int(digits)


def receive(channel: "_socket.socket", most: int) -> tuple[bytes, list[int]]:
    """One packet of a SEQPACKET socket and its descriptors, at most `most`; b"" when the peer is gone.

    Raises WireError for a packet that was cut or that brought more descriptors than allowed; none of them stays open.
    """
    space = _socket.CMSG_SPACE(4 * (most + 1))
    data, ancillary, flags, _ = channel.recvmsg(MAX_MESSAGE, space, _socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = len(content) - len(content) % 4
            descriptors += [int.from_bytes(content[at : at + 4], sys.byteorder) for at in range(0, whole, 4)]
    if len(descriptors) > most or flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
        for descriptor in descriptors:
            close_unasked(descriptor)
        raise WireError("a packet larger than this protocol allows")
    return data, descriptors


def refuse_descriptors(channel: "_socket.socket") -> None:
    """Let the peer's sendmsg fail where it brings descriptors; on kernels without the option they arrive and are closed."""
    try:
        channel.setsockopt(_socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    except OSError:
        pass


def close_unasked(descriptor: int) -> None:
    """Close what a peer sent and nobody asked for."""
    # Whoever closes a socket last waits for what it has not sent, as long as its SO_LINGER says (socket(7)): a peer could
    # stop us with one of its own. Nothing but a socket has that option.
    try:
        channel = _socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return
    try:
        channel.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, bytes(8))
    except OSError:
        pass  # the others of the packet must be closed all the same
    finally:
        channel.close()


def send(channel: "_socket.socket", message: object, descriptors: "list[int] | None" = None) -> None:
    """Send one message as one packet; a message larger than a packet travels as the memfd that comes first."""
    data = encode(message)
    if len(data) < MAX_MESSAGE:
        _sendmsg(channel, data, descriptors or [])
        return
    carrier = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(carrier, view) :]
        _sendmsg(channel, CARRIED, [carrier, *(descriptors or [])])
    finally:
        os.close(carrier)


def _sendmsg(channel: "_socket.socket", data: bytes, descriptors: "list[int]") -> None:
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if descriptors else []
    channel.sendmsg([data], ancillary, _socket.MSG_NOSIGNAL)


def carried(data: bytes, descriptors: "list[int]") -> bytes:
    """The message of a packet from a peer that is trusted: itself, or what the memfd in front of the descriptors holds."""
    if data != CARRIED:
        return data
    carrier = descriptors.pop(0)
    try:
        return os.pread(carrier, os.fstat(carrier).st_size, 0)
    finally:
        os.close(carrier)


def send_to(descriptor: int, message: object, descriptors: "list[int] | None" = None) -> None:
    """Send to a socket that is known by its descriptor; a peer that is gone is no error."""
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)
    try:
        send(channel, message, descriptors)
    except OSError:
        pass  # nobody is left to be told
    finally:
        channel.detach()
