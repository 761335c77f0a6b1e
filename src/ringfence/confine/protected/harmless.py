"""Settings of git that a box made and that may be taken over into the host's: those whose values git neither runs nor obeys.

Offered is a key of this list that the host's file does not have, with a value of the form that stands here:

- `user.name`, `user.email`: one line of text.
- `remote.NAME.url`: an https or ssh address with a host name, or `user@host:path`. Not offered are other transports (`ext::` runs
  a command), paths of this host, and whatever begins with a dash.
- `remote.NAME.fetch`: branches or tags into the tracking branches of the same remote, nothing else.
- `branch.NAME.remote`, `branch.NAME.pushRemote`: the name of a remote that the host has or that is offered, or `.`.
- `branch.NAME.merge`: a branch. `branch.NAME.rebase`: true, false or merges. `branch.NAME.description` is not: an editor opens it.

NAME is of letters, digits and `._/-`. Everything else is shown in the diff and left there: `url.*.insteadOf` leads every
address elsewhere, and `remote.*.uploadpack`, `receivepack`, `vcs` and `proxy` name programs or hosts.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence

from ringfence.confine.protected.gitconfig import parse
from ringfence.errors import HostError
from ringfence.guest import kernel

MAX_OFFERED = 200
LOCK_SECONDS = 2.0
"""How long another program may hold the lock of the settings."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]{1,200}")
_URL = re.compile(
    rf"(?:https|ssh)://(?:[A-Za-z0-9._-]+@)?{_HOST}(?::\d{{1,5}})?(?:/[A-Za-z0-9._~/+%-]*)?|(?:[A-Za-z0-9._]+@){_HOST}:[A-Za-z0-9_~][A-Za-z0-9._~/+-]*"
)
_KEY = re.compile(rf"(user)\.(name|email)|(remote)\.({_NAME})\.(url|fetch)|(branch)\.({_NAME})\.(remote|pushremote|merge|rebase)")
_SPELLED = {"pushremote": "pushRemote"}


def offered(old: bytes, new: bytes) -> tuple[tuple[str, str], ...]:
    """(key, value) of what may be taken over from settings that were old and are new. Empty where they cannot be read."""
    try:
        had = {key for key, _ in parse(os.fsdecode(old))}
        entries = [entry for entry in parse(os.fsdecode(new)) if entry[0] not in had]
    except (ValueError, IndexError, RuntimeError):
        return ()
    plain = [(key, value) for key, value in entries if is_harmless(key, value)]
    # A key with a value that is not harmless is not offered at all: what is left of it would mean something else.
    bad = {key for key, value in entries if not is_harmless(key, value)}
    plain = [(key, value) for key, value in plain if key not in bad]
    known = (*had, *(key for key, _ in plain))
    remotes = {key.split(".", 1)[1].rpartition(".")[0] for key in known if re.fullmatch(r"remote\..*\.url", key)}
    found = [(key, value) for key, value in plain if not _names_a_remote(key) or value in remotes or value == "."]
    return tuple(found[:MAX_OFFERED])


def _names_a_remote(key: str) -> bool:
    return key.startswith("branch.") and key.endswith((".remote", ".pushremote"))


def is_harmless(key: str, value: str) -> bool:
    """Whether a setting is one of the list above, by its key (lower case but for the middle) and the form of its value."""
    match = _KEY.fullmatch(key)
    if match is None or ".." in key or "//" in key or value.startswith("-"):
        return False
    name = match[4] or match[7] or ""
    match match[2] or match[5] or match[8]:
        case "name" | "email":
            return _TEXT.fullmatch(value) is not None
        case "url":
            return "/" not in name and _URL.fullmatch(value) is not None
        case "fetch":
            there, _, here = value.removeprefix("+").partition(":")
            tracked = re.escape(name)
            return _ref(there, "heads|tags") and re.fullmatch(rf"refs/remotes/{tracked}/(?:\*|{_NAME})", here) is not None
        case "remote" | "pushremote":
            return value == "." or ("/" not in value and re.fullmatch(_NAME, value) is not None)
        case "merge":
            return _ref(value, "heads") and "*" not in value
        case "rebase":
            return value in ("true", "false", "merges")
    return False


def _ref(value: str, kinds: str) -> bool:
    return ".." not in value and re.fullmatch(rf"refs/(?:{kinds})/(?:\*|{_NAME})", value) is not None


def take_over(path: str, settings: Sequence[tuple[str, str]]) -> None:
    """Add settings to a file of the host, under the lock that git takes (`config.lock` beside it).

    They are appended by one write to the file itself: a box may write the folder, and could exchange a file that is about to be
    renamed over it. Raises HostError where the file is none, is locked, or cannot be written.
    """
    folder, name = os.path.split(path)
    try:
        above = kernel.open_path(os.fsencode(folder), follow=False, flags=os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _locked_append(above, name, settings)
        finally:
            os.close(above)
    except OSError as error:
        if isinstance(error, HostError):
            raise
        raise HostError(f"{path} cannot be changed: {error.strerror}.", errno=error.errno or 0) from None


def _locked_append(above: int, name: str, settings: Sequence[tuple[str, str]]) -> None:
    lock = _lock(above, f"{name}.lock")
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=above)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise HostError(f"{name} is no regular file of one name.", hint="Change the settings by hand.")
            ends = not found.st_size or os.pread(file, 1, found.st_size - 1) == b"\n"
            os.write(file, (b"" if ends else b"\n") + _text(settings).encode("utf-8", "surrogateescape"))
        finally:
            os.close(file)
    finally:
        found, there = os.fstat(lock), os.stat(f"{name}.lock", dir_fd=above, follow_symlinks=False)
        os.close(lock)
        if (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino):
            os.unlink(f"{name}.lock", dir_fd=above)


def _lock(above: int, name: str) -> int:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=above)
        except FileExistsError:
            if time.monotonic() > until:
                raise HostError(f"another program holds {name}.", hint="Wait for it, or remove the lock if it is gone.") from None
            time.sleep(0.02)


def _text(settings: Sequence[tuple[str, str]]) -> str:
    """Settings as a file holds them (git-config(1), syntax)."""
    said = ""
    for key, value in settings:
        section, _, rest = key.partition(".")
        middle, _, last = rest.rpartition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        said += f'[{section}{f" {chr(34)}{middle}{chr(34)}" if middle else ""}]\n\t{_SPELLED.get(last, last)} = "{quoted}"\n'
    return said
