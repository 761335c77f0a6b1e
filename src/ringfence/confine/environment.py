"""The environment of a box: made from nothing, never from the caller's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ringfence.policy.resolve import ResolvedPolicy


def environment_for(
    policy: ResolvedPolicy, *, home: str, temporary: str, path: str, tools: Mapping[str, str], proxy: str = ""
) -> dict[str, str]:
    """Names a program expects, then what the tools need, then what the caller set. proxy: the URL of one that is announced."""
    made = {
        "PATH": path,
        "HOME": home,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",  # built into glibc since 2.35 and shipped by Debian and Fedora before; musl takes any name
        "TMPDIR": temporary,
        "TERM": "dumb",
    }
    reached = {**(_announced(proxy) if proxy else {}), **_authorities()} if policy.network.open else {}
    return {**made, **tools, **reached, **dict(policy.environment)}


AUTHORITIES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT",
    "AWS_CA_BUNDLE",
)  # fmt: skip
"""Variables by which a machine says whom its tools are to believe."""
OF_THE_SYSTEM = ("/usr/", "/etc/ssl/", "/etc/pki/", "/etc/ca-certificates/", "/var/lib/ca-certificates/")


def _authorities() -> dict[str, str]:
    """Those of the caller's that lead to a file or folder of the system, which the box has too."""
    said = {name: os.environ[name] for name in AUTHORITIES if name in os.environ}
    return {
        name: path
        for name, path in said.items()
        if path.startswith(OF_THE_SYSTEM) and os.path.realpath(path).startswith(OF_THE_SYSTEM) and os.access(path, os.R_OK)
    }


PROXIED = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
"""Some tools read them in lower case alone (curl the first, against headers of CGI that would set it), others in capitals."""
NOT_PROXIED = "localhost,.localhost,127.0.0.1,127.0.0.0/8,::1,ringfence"


def _announced(proxy: str) -> dict[str, str]:
    """The variables by which tools find a proxy. All say HTTP: clients fail on `socks5h:` where they lack a library for it."""
    lower = {**dict.fromkeys(PROXIED, proxy), "no_proxy": NOT_PROXIED}
    return {**lower, **{name.upper(): value for name, value in lower.items()}}


def interpreters(policy: ResolvedPolicy) -> tuple[str, ...]:
    """Where programs may find their interpreter, best first; the guest takes the first that it can run inside."""
    if policy.python:
        return (policy.python,)
    own = [f"{policy.workdir}/{name}/bin/python" for name in (".venv", "venv")] if policy.workspace else []
    return (*own, sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
