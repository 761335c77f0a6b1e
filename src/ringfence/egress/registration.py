"""What the server is told of one box, as the caller sends it and as the supervisor keeps it for the next worker."""

from __future__ import annotations

from typing import Any

from ringfence.egress.lookup import Outside

MOST_DESCRIPTORS = 250
"""In one packet; the kernel passes 253 (SCM_MAX_FD, net/scm.h)."""
MOST_GRANTS = 1024


class Registration:
    """policy: as policy.network.to_wire makes it. names, descriptors: of the listeners and the records, in one order.
    explicit: the names that had an address when the box was made. grants: what somebody allowed or refused for the box's life."""

    def __init__(self, said: dict[str, Any], descriptors: list[int]) -> None:
        self.said, self.descriptors = said, descriptors
        self.number: int = said["id"]
        self.policy: bytes = said["policy"]
        self.names = [name.decode() for name in said["listeners"]]
        self.redirected = bool(said["redirect"])
        self.explicit = [name.decode() for name in said["explicit"]]
        self.resolvers = [each.decode() for each in said["resolvers"]]
        self.hosts: str = said["hosts"].decode()
        self.no_proxy = tuple(each.decode() for each in said["no_proxy"])
        self.ask_seconds, self.hello_seconds = said["ask_ms"] / 1000, said["hello_ms"] / 1000
        self.grants: list[tuple[str, int, bool]] = []
        self.outside = Outside.heard(said) if "servers" in said else Outside()
        self.served = False  # by a worker, at any time

    def by_name(self) -> dict[str, int]:
        return dict(zip(self.names, self.descriptors, strict=True))

    def grant(self, host: str, port: int, allowed: bool) -> None:
        if len(self.grants) < MOST_GRANTS:
            self.grants.append((host, port, allowed))
