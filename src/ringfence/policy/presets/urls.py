"""The URL of a setting, of which only scheme, host, port and path are taken. What could be read in two ways is not used."""

from __future__ import annotations

from ringfence.policy.addresses import special
from ringfence.policy.hosts import Address, BadHostError, Name, normalise
from ringfence.values import field, frozen

SCHEMES = {"https": (443, "tls"), "http": (80, "http")}
"""Schemes that are taken, with their port and what a connection then carries."""
MAX_URL = 2048
UNOPENED = ("loopback", "metadata", "multicast")
"""What no setting opens: a box has a loopback of its own, and the others serve no packages."""


class NotUsed(ValueError):
    """A setting that names no place that a preset opens. Its message never repeats what may be a credential."""


@frozen
class Place:
    """Where packages are. credential: whether something that may be one was left out."""

    scheme: str
    host: Name | Address
    port: int
    path: str
    credential: bool = field(default=False, compare=False)

    @property
    def is_name(self) -> bool:
        return isinstance(self.host, Name)

    @property
    def network(self) -> str:
        """An address as the network that holds it alone."""
        return f"{self.host}/{128 if ':' in self.host.text else 32}"

    @property
    def carries(self) -> str:
        return SCHEMES[self.scheme][1]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host.text else self.host.text
        port = "" if self.port == SCHEMES[self.scheme][0] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def place(url: str) -> Place:
    """The place that a URL names. Raises NotUsed for any other scheme, a variable in it, and what is no plain URL."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in SCHEMES:
        raise NotUsed("it is no http or https URL")
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or {*" \\<>\"'`{}|^$"} & {*url}:
        raise NotUsed("it has a character that no plain URL has, or a variable in it")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, behind = rest[:end], rest[end:]
    user, at, host = authority.rpartition("@")
    if "@" in user:
        raise NotUsed("it has more than one @")
    path = behind.partition("#")[0].partition("?")[0]
    return Place(scheme, *_host(host, SCHEMES[scheme][0]), path, bool(at) or path != behind)


def _host(text: str, default: int) -> tuple[Name | Address, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    try:
        found = normalise(host)
    except BadHostError as error:
        raise NotUsed(f"its host is none: {error}") from None
    if port and not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536):
        raise NotUsed("its port is none")
    kind = special(found.text) if isinstance(found, Address) else "loopback" if found.text == "localhost" else ""
    if kind in UNOPENED:
        raise NotUsed(f"its host is a {kind} address, which no preset opens")
    return found, int(port) if port else default
