"""What a box changed in its private copies, as text to read, and the settings of it that may be taken over.

All of it was written by the box. The text is shown, so what a terminal would act on is spelled out; of the settings only those
are offered that no program runs, and that the host's file says nothing about.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping

from ringfence.confine.protected.plan import COPIES, Protected
from ringfence.outcome import Change
from ringfence.policy.settings import SAMPLE

MAX_SHOWN = 64 * 1024
"""Bytes of a file that are compared line by line."""
MAX_DIFF = 20_000
"""Characters of one diff."""
MAX_FILES = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def compare(
    protected: Iterable[Protected],
    files: Mapping[str, bytes],
    links: Mapping[str, str],
    before: Callable[[str], object],
) -> tuple[Change, ...]:
    """The changes of the private paths among protected. files, links: what the copies hold. before(path): what the host's held."""
    changes: list[Change] = []
    for each in protected:
        if not each.copy:
            continue
        name = each.copy[len(COPIES) + 1 :]
        if each.is_dir:
            changes += _in_folder(each.path, name, files, links)
        else:
            content = before(each.path)
            old = content if isinstance(content, bytes) else _host_file(each.path)
            changes += _of_file(each.path, old, files.get(name), links.get(name))
    return tuple(changes)


def _in_folder(path: str, name: str, files: Mapping[str, bytes], links: Mapping[str, str]) -> Iterator[Change]:
    old = dict(_host_files(path))
    inside = {key[len(name) + 1 :] for key in (*files, *links) if key.startswith(name + "/")}
    for inner in sorted(inside | set(old)):
        if inner.endswith(SAMPLE):
            continue  # not copied and never run: `git init` brings them again
        yield from _of_file(f"{path}/{inner}", old.get(inner), files.get(f"{name}/{inner}"), links.get(f"{name}/{inner}"))


def _of_file(path: str, old: bytes | None, new: bytes | None, link: str | None) -> Iterator[Change]:
    if link is not None:
        yield Change(path, f"a link to {shown(link)}\n")
    elif new is None and old is not None:
        yield Change(path, "removed\n")
    elif new is not None and new != old:
        from ringfence.confine.protected.harmless import offered  # where nothing changed, which is nearly always, neither is read

        settings = offered(old or b"", new) if os.path.basename(path) == "config" else ()
        yield Change(path, _diff(path, old, new), settings)


def _diff(path: str, old: bytes | None, new: bytes) -> str:
    if len(new) > MAX_SHOWN or len(old or b"") > MAX_SHOWN:
        return f"{len(old or b'')} bytes became {len(new)}: too large to be shown\n"
    if b"\0" in new or b"\0" in (old or b""):
        return f"{len(old or b'')} bytes became {len(new)}: not text\n"
    import difflib  # as above

    was, now = (shown((side or b"").decode("utf-8", "backslashreplace")).splitlines(keepends=True) for side in (old, new))
    name = shown(path)
    diff = difflib.unified_diff(was, now, name if old is not None else "/dev/null", f"{name} in the box")
    lines = "".join(line if line.endswith("\n") else line + "\n" for line in diff)
    return lines if len(lines) <= MAX_DIFF else lines[:MAX_DIFF] + "\n[...]\n"


def shown(text: str) -> str:
    """Text with everything spelled out that a terminal would act on or not show."""
    return "".join(each if each in "\n\t" or each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _host_file(path: str) -> bytes | None:
    """What a protected file of the host holds now; None where it is none, or too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, MAX_SHOWN + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _host_files(path: str) -> Iterator[tuple[str, bytes]]:
    """The regular files below a protected folder of the host that are copied into a box, by their path in it."""
    pending, left = [""], MAX_FILES
    while pending:
        above = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(path, above)))
        except OSError:
            continue
        for entry in entries:
            left -= 1
            inner = os.path.join(above, entry.name)
            if left < 0:
                return
            if entry.is_dir(follow_symlinks=False):
                pending.append(inner)
            elif not entry.name.endswith(SAMPLE) and (content := _host_file(entry.path)) is not None:
                yield inner, content
