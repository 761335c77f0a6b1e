"""What a run was refused, as far as its own words tell: read from stderr, checked against what the policy really closes."""

from __future__ import annotations

OF_FILES = (
    "denied", "read-only", "no such file", "nonexistent", "busy", "cross-device", "accessdenied", "nosuchfile", "too many open",
    "too large", "no space", "temporarily", "new thread", "native thread",
)  # fmt: skip
OF_HOSTS = (
    "resolv", "resolution", "eai_again", "enotfound", "lookup", "unknownhost", "unreach", "refused", "connect", "host name",
    "not known", "max retries",
)  # fmt: skip
"""One of these is in every text that tells of a refusal, in lower case. What has none is not looked into, at no cost."""


def may_tell(said: str) -> bool:
    """Whether a text can tell of a refusal at all."""
    lower = said.lower()
    return any(word in lower for word in OF_FILES) or any(word in lower for word in OF_HOSTS)


MAX_BYTES = 64 * 1024
"""Of the end of what was kept."""


def text_of(parts: tuple[bytes, ...]) -> str:
    """The end of what was kept of a stream, as text; where bytes were left out between two parts a line ends."""
    return b"\n".join(parts)[-MAX_BYTES:].decode("utf-8", "surrogateescape")
