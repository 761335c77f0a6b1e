"""Lines of stderr in which a program says that it reached no network: a name that has no address, a network that is not there.

Text only, as in reading.py: whether the policy closes it is decided by others. Each expression begins with fixed words and has
no repetition within another one, so that a search is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ringfence.denials import OF_HOSTS

MAX_LINE = 4096
MAX_HOSTS = 20
PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418, "ftp": 21, "ldap": 389, "postgres": 5432, "postgresql": 5432}
"""Where a URL says no port (RFC 3986, and the registry of service names)."""

_HOST = r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))"
_ADDRESS = r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}|\[?[0-9a-fA-F:]{2,45}\]?|[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
_PORT = r"(?P<port>\d{1,5})"
_NAMES = re.compile(
    rf"(?:could not|couldn't|unable to|failed to) resolve (?:host name|hostname|host address|host|name)?:? ?['\"\u2018]?{_HOST}",
    re.IGNORECASE,
)
_FORMS = (
    _NAMES,
    re.compile(rf"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) {_HOST}"),
    re.compile(rf"(?:dial tcp|dial udp): lookup {_HOST}"),
    re.compile(rf"UnknownHostException: {_HOST}"),
    re.compile(rf"could not translate host name \"{_HOST}\""),
    re.compile(rf"Failed to resolve '{_HOST}'"),
    re.compile(rf"Temporary failure resolving '{_HOST}'"),
    re.compile(rf"host='{_HOST}', port={_PORT}\): Max retries exceeded"),
    re.compile(rf"(?<![^\s'\"]){_HOST}: (?:Temporary failure in name resolution|Name or service not known)"),
    re.compile(rf"Failed to connect to {_ADDRESS} port {_PORT}"),
    re.compile(rf"connect (?:ECONNREFUSED|ENETUNREACH|EHOSTUNREACH) {_ADDRESS}:{_PORT}"),
    re.compile(rf"dial tcp {_ADDRESS}:{_PORT}: connect: (?:network is unreachable|connection refused)"),
    re.compile(rf"connect to (?:host )?{_ADDRESS} port {_PORT}(?: \(tcp\) failed)?: (?:Network is unreachable|Connection refused)"),
    re.compile(rf"/dev/(?:tcp|udp)/{_ADDRESS}/{_PORT}: (?:Network is unreachable|Connection refused)"),
    re.compile(rf"unable to connect to {_ADDRESS}"),
    re.compile(rf"\({_ADDRESS}\):? (?:Network is unreachable|Connection refused)"),
)
_NO_HOST = re.compile(
    r"\[Errno -[23]\] (?:Temporary failure in name resolution|Name or service not known)"
    r"|\[Errno 101\] Network is unreachable"
    r"|failed to lookup address information: "
    r"|ConnectException: Network is unreachable"
    r"|connect: Network is unreachable"
)
"""Where a program does not say what it looked for."""
_URL = re.compile(
    r"\b(?P<scheme>[a-z]{2,10})://(?:[^\s/@'\"]{1,200}@)?(?P<host>\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})(?::(?P<port>\d{1,5}))?"
)


class Unreached(NamedTuple):
    """A host that a program did not reach; port is 0 where nothing tells it. An empty host: it did not say which."""

    host: str
    port: int


def unreached(text: str, command: str) -> Iterator[Unreached]:
    """The hosts that text tells of, each once. command: what was run, as text; URLs in both tell ports.

    Where a program does not say which host, and the command has one URL, that is it. A command that has a line's words in itself
    proves nothing by printing them.
    """
    lines = [line[:MAX_LINE] for line in re.split(r"[\n\r]", text) if any(word in line.lower() for word in OF_HOSTS)]
    lines = [line for line in lines if line.strip() not in command]
    if not lines:
        return
    found: dict[str, int] = {}
    for line in lines:
        for form in _FORMS:
            for match in form.finditer(line):
                if line[: match.start()].endswith(("'", '"')):
                    continue  # a text about it
                host = match["host"].strip("[]").rstrip(".").lower()
                port = _port(match["port"]) if "port" in match.groupdict() else PORTS["ssh"] if line.startswith("ssh: ") else 0
                if host not in ("", "host", "hostname", "name"):  # the words before what is no host
                    found[host] = found.get(host) or port
        if len(found) >= MAX_HOSTS:
            break
    urls = _urls(f"{command}\n{text}")
    for host, port in found.items():
        yield Unreached(host, port or urls.get(host, 0))
    if not found and any(_NO_HOST.search(line) for line in lines):
        asked = _urls(command)
        yield Unreached(*next(iter(asked.items()))) if len(asked) == 1 else Unreached("", 0)


def _urls(text: str) -> dict[str, int]:
    """Hosts of URLs, with their ports."""
    found = {}
    for match in _URL.finditer(text):
        port = _port(match["port"]) if match["port"] else PORTS.get(match["scheme"], 0)
        found[match["host"].strip("[]").rstrip(".").lower()] = port
    return found


def _port(said: str) -> int:
    """A port as it is written; 0 for what is none."""
    return int(said) if 0 < int(said) < 65536 else 0
