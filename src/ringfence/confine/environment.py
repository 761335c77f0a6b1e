"""The environment of a box: made from nothing, never from the caller's."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ringfence.policy.resolve import ResolvedPolicy


def environment_for(policy: ResolvedPolicy, *, home: str, temporary: str, path: str, tools: Mapping[str, str]) -> dict[str, str]:
    """Names a program expects, then what the tools need, then what the caller set."""
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
    return {**made, **tools, **dict(policy.environment)}


def interpreters(policy: ResolvedPolicy) -> tuple[str, ...]:
    """Where programs may find their interpreter, best first; the guest takes the first that it can run inside."""
    if policy.python:
        return (policy.python,)
    own = [f"{policy.workdir}/{name}/bin/python" for name in (".venv", "venv")] if policy.workspace else []
    return (*own, sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
