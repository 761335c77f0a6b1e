"""One meaning for every spelling of a host, applied once, before any rule and any dial.

What is an address in any notation that some resolver takes for one is an address and never a name: decimal, octal, hexadecimal and
short forms of IPv4 (inet_aton(3)), IPv6 with or without brackets and zone. All else is a name: mapped by UTS 46, in lower case,
ASCII, without a trailing dot, of letters, digits, `-` and `_`. What is neither is refused, and so is what two readers would take
for different hosts. No look-up is made here.
"""

from __future__ import annotations

from ringfence.values import frozen

MAX_TEXT = 1024
"""Characters of a host before it is mapped; a name has at most 253 after it (RFC 1035, section 2.3.4, without the last dot)."""
MAX_NAME, MAX_LABEL = 253, 63
LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
DIGITS = {8: frozenset("01234567"), 10: frozenset("0123456789"), 16: frozenset("0123456789abcdef")}
ZONE = LABEL | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ.~%")


class BadHostError(ValueError):
    """A text that is no host, or that readers take for different ones."""


@frozen
class Name:
    """A name to be looked up: ASCII, lower case, without a trailing dot."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Address:
    """An address in its one spelling: IPv4 with dots, IPv6 in its short form (RFC 5952), without brackets and zone."""

    text: str

    def __str__(self) -> str:
        return self.text


def normalise(text: str) -> Name | Address:
    """The host that text means. Raises BadHostError, a ValueError, which says why it means none."""
    if not text or len(text) > MAX_TEXT:
        raise BadHostError("it is empty" if not text else f"it has more than {MAX_TEXT} characters")
    if text[0] == "[" or text[-1] == "]":
        if text[0] != "[" or text[-1] != "]":
            raise BadHostError("a bracket has no other one")
        if ":" not in text:
            raise BadHostError("brackets hold an IPv6 address")
        return _version_6(text[1:-1])
    if ":" in text:
        return _version_6(text)
    mapped = text.lower() if text.isascii() else _mapped(text)
    labels = mapped.removesuffix(".").split(".")
    if _is_number(labels[-1]):
        return _version_4(labels)
    return _name(labels)


def _mapped(text: str) -> str:
    """Text by UTS 46, section 4, non-transitional: the dots of other scripts and wide digits among what is mapped."""
    import idna  # nearly every name is ASCII

    if "\u1e9e" in text:
        raise BadHostError("a capital sharp s is ss for some readers and a sharp s for others")  # since Unicode 15.1
    try:
        return idna.uts46_remap(text, std3_rules=False)
    except (idna.IDNAError, UnicodeError) as error:
        raise BadHostError(f"it has a character that no name has: {error}") from None


def _name(labels: list[str]) -> Name:
    plain = [_label(label) for label in labels]
    name = ".".join(plain)
    if len(name) > MAX_NAME:
        raise BadHostError(f"it has more than {MAX_NAME} characters")
    return Name(name)


def _label(label: str) -> str:
    if not label:
        raise BadHostError("it has an empty label")
    if not label.isascii() or label.startswith("xn--"):
        label = _punycoded(label)
    if not LABEL.issuperset(label):
        odd = next(character for character in label if character not in LABEL)
        raise BadHostError(f"{odd!a} is no part of a name")
    if label[0] == "-" or label[-1] == "-":
        raise BadHostError("a label begins or ends with '-'")  # RFC 952; and tools take it for an option
    if len(label) > MAX_LABEL:
        raise BadHostError(f"a label has more than {MAX_LABEL} characters")
    return label


def _punycoded(label: str) -> str:
    """A label as an A-label. One that is said to be one has to be what its text encodes to (RFC 5891, section 5.4)."""
    import idna  # as above

    try:
        return (idna.alabel(label) if not label.isascii() else label.encode() if idna.ulabel(label) else b"").decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise BadHostError(f"it has a label that is none of an internationalised name: {error}") from None


def _is_number(label: str) -> bool:
    """Whether a last label makes its name an address (URL Standard, "ends in a number"): then it is that or nothing."""
    return bool(label) and (DIGITS[10].issuperset(label) or (label.startswith("0x") and DIGITS[16].issuperset(label[2:])))


def _version_4(parts: list[str]) -> Address:
    """An address as inet_aton(3) reads it: one to four parts, the last of which fills what the others leave."""
    if len(parts) > 4:
        raise BadHostError("an IPv4 address has at most four parts")
    *high, last = (_number(part) for part in parts)
    if any(number > 255 for number in high) or last >= 256 ** (5 - len(parts)):
        raise BadHostError("a part of an IPv4 address is too large")
    octets = [*high, *last.to_bytes(5 - len(parts), "big")]
    return Address(".".join(map(str, octets)))


def _number(part: str) -> int:
    digits, base = (
        (part[2:], 16) if part.startswith("0x") else (part[1:], 8) if part.startswith("0") and part != "0" else (part, 10)
    )
    # "0x" alone is zero for some readers and nothing for others.
    if not digits or not DIGITS[base].issuperset(digits):
        raise BadHostError(f"{part!a} is no part of an IPv4 address")
    return int(digits, base)


def _version_6(text: str) -> Address:
    """An IPv6 address. A zone names an interface of the machine that wrote it, so it is dropped; one that is IPv4 is that."""
    import ipaddress  # nearly every host is a name

    plain, percent, zone = text.partition("%")
    if percent and (not zone or not ZONE.issuperset(zone)):
        raise BadHostError("an address has a zone that is none")
    try:
        address = ipaddress.IPv6Address(plain)
    except ValueError:
        raise BadHostError("it has a colon and is no IPv6 address") from None
    return Address(str(address.ipv4_mapped or address))
