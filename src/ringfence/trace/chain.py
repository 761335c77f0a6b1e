"""What a row is hashed as. The bytes that are stored are the bytes that are hashed: nothing is put into a form first.

The hash of a row is SHA-256 of one line of ASCII, the hash before it, and its three byte strings. The line holds the row's number,
its time, its kind, the row that it belongs to and the length of each string, -1 for one that is not there, so that no two
rows have the same bytes.
"""

from __future__ import annotations

from ringfence.policy.digest import sha256

NOTHING = bytes(32)
"""What stands before the first row."""


def row_hash(
    before: bytes, number: int, at: int, kind: str, about: int, body: bytes, out: bytes | None = None, err: bytes | None = None
) -> bytes:
    """The hash of a row after the row with the hash `before`. at: nanoseconds since the epoch."""
    sizes = (len(body), -1 if out is None else len(out), -1 if err is None else len(err))
    line = f"ringfence trace 1 {number} {at} {kind} {about} {' '.join(map(str, sizes))}\n"
    return bytes(sha256(b"".join((line.encode(), before, body, out or b"", err or b""))).digest())
