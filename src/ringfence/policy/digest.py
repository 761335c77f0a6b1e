"""One hash for names and policies. Not OpenSSL's: loading that is a tenth of a cold start of the command line."""

from __future__ import annotations

try:
    from _sha256 import sha256  # type: ignore[import-not-found]  # what hashlib itself falls back to, until Python 3.12
except ImportError:
    from hashlib import sha256

__all__ = ["digest", "sha256"]


def digest(data: bytes) -> str:
    """SHA-256 of data, in hexadecimal digits."""
    return str(sha256(data).hexdigest())
