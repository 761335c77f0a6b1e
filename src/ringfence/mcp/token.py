"""The secret that a client over HTTP shows: a file that only its owner reads."""

from __future__ import annotations

import errno
import os
import secrets
import stat

from ringfence import state
from ringfence.errors import ArgumentError

LEAST, MOST = 16, 4096
"""Characters of a token: with less it could be guessed."""


def default_path() -> str:
    """mcp-token in the state folder, which no box ever has."""
    return f"{state.folder()}/mcp-token"


def token(path: str) -> str:
    """The token in the file, which is made where there is none. Raises ArgumentError for a file that others can read or write.

    No link is followed at its end; the folders above it are the caller's to choose.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(path)
    with os.fdopen(made, "w") as file:
        os.fchmod(made, 0o600)  # whatever the umask says
        file.write(f"{secrets.token_urlsafe(32)}\n")
    return _read(path)


def _read(path: str) -> str:
    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise ArgumentError(f"the token file {path!r} {'is a link' if link else f'cannot be read: {error.strerror}'}.") from None
    with os.fdopen(found, "rb") as file:
        info = os.fstat(found)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ArgumentError(
                f"the token file {path!r} is not a regular file of this user that nobody else can read or write.",
                hint="Remove it, and a new one is made; or chmod 600 it, if nobody else can have read it.",
            )
        said = file.read(MOST + 1).strip()
    if not LEAST <= len(said) <= MOST or not all(0x21 <= byte < 0x7F for byte in said):
        raise ArgumentError(f"the token file {path!r} has no token in it: {LEAST} to {MOST} visible ASCII characters.")
    return said.decode("ascii")
