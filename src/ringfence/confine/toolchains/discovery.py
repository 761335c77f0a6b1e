"""From the caller's PATH and interpreter to the mounts, links and variables that make them work in a box."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from ringfence.confine.toolchains import table
from ringfence.confine.toolchains.claims import Claims
from ringfence.confine.toolchains.hostfiles import Exhausted, Refused, inside, inside_any
from ringfence.values import frozen


@frozen
class Toolchains:
    """What a box needs beside the system folders so that the caller's tools run in it.

    `read_only`: host folders, and for a few tools single files, to be mounted read-only at the same path. No link is
    in their paths and none lies in another. `path`: the box's PATH, in the caller's order. `environment`: variables
    that the tools need. `links`: (path, text) of links to recreate; a link's own folder is never part of a mount.
    `covered`: files in `read_only` or /usr that may hold credentials and must not be readable. `home_files`: (path
    below the box's private home, content). `notes`: what was dropped and why, one sentence each.
    """

    read_only: tuple[str, ...]
    path: tuple[str, ...]
    environment: dict[str, str]
    links: tuple[tuple[str, str], ...]
    covered: tuple[str, ...]
    notes: tuple[str, ...]
    home_files: tuple[tuple[str, str], ...] = ()


def discover(
    *,
    path: str,
    home: str,
    interpreter: str,
    writable: Sequence[str],
    base_prefix: str = "",
    environment: Mapping[str, str] | None = None,
) -> Toolchains:
    """Find what the caller's tools need. Runs nothing; a few hundred lstat calls, never in or behind `writable`.

    `path` is the caller's PATH, `home` its home folder, `interpreter` its Python (`sys.executable`), `writable` the
    folders that the box may write. `base_prefix` is what that Python itself reports as `sys.base_prefix`: needed when
    the interpreter is an environment inside a writable folder, since the files there are not believed. `environment`
    is the caller's; only the names in `table.PASSED` and those of a tool's data folder are looked at.

    Raises ValueError when `home` is not absolute.

    Not promised: that a tool which the table does not know works (its own PATH folder is mounted and nothing else),
    or that what is mounted now is still there later.
    """
    if not home.startswith("/"):
        raise ValueError(f"The home folder {home!r} is not an absolute path; pass the caller's own, as Path.home() gives it.")
    claims = Claims(home, writable)
    caller = environment or {}
    kept: list[str] = []
    try:
        _add_interpreter(claims, interpreter, base_prefix)
        for entry in dict.fromkeys(entry.rstrip("/") or entry[:1] for entry in path.split(":")):
            kept.extend(_add_entry(claims, entry, caller))
        _pass_variables(claims, caller)
    except Exhausted:
        system = [e for e in path.split(":") if e not in kept and e in table.SYSTEM_PATH]
        kept.extend(dict.fromkeys(system))
        claims.notes.append(
            "PATH leads to too many files to look at, so the rest of its entries were dropped but for the system's."
        )
    mounts = claims.outermost()
    return Toolchains(
        read_only=mounts,
        path=tuple(kept),
        environment=dict(claims.environment),
        links=claims.needed_links(mounts),
        covered=tuple(sorted(path for path in claims.covered if inside_any(path, (*mounts, *table.SYSTEM)))),
        notes=tuple(claims.notes),
        home_files=tuple(_user_sites(claims, mounts)),
    )


def _add_entry(claims: Claims, entry: str, caller: Mapping[str, str]) -> list[str]:
    """One PATH entry: [its name inside], with all that it needs mounted, or [] and a note."""
    try:
        if not entry.startswith("/"):
            raise Refused("is relative, so its meaning would depend on the folder that a command runs in")
        place = claims.files.resolve(entry)
        if not stat.S_ISDIR(place.status.st_mode):
            raise Refused("is not a folder")
        claims.claim_entry(place.real)
    except Refused as refused:
        claims.notes.append(f"PATH entry {entry!r} was dropped because it {refused}.")
        return []
    _add_companions(claims, place.real, caller)
    # /usr/bin and its like are left to the distribution, which links to /usr and /etc/alternatives only.
    if not inside_any(place.real, table.SYSTEM) or inside(place.real, "/usr/local"):
        claims.follow_links(place.real)
    return [entry if claims.keep_links(place) and ".." not in entry.split("/") else place.real]


def _add_companions(claims: Claims, folder: str, caller: Mapping[str, str]) -> None:
    for companion in table.COMPANIONS:
        if not claims.files.exists(f"{folder}/{companion.program}"):
            continue
        named = caller.get(companion.variable, "")
        for where in (named,) if named.startswith("/") else companion.places:
            where = claims.home + where[1:] if where.startswith("~") else os.path.join(folder, where)
            try:
                place = claims.files.resolve(where)
                claims.take(companion.row, place.real)
            except Refused:
                continue
            claims.keep_links(place)
            claims.environment.setdefault(companion.variable, place.real)
            break


def _add_interpreter(claims: Claims, interpreter: str, base_prefix: str) -> None:
    """The caller's Python: what it says of itself, the environment it lies in, the installation its links lead to."""
    if base_prefix:
        claims.claim_python(os.path.join(base_prefix, "bin"), "the interpreter's base installation")
    if inside_any(os.path.normpath(interpreter), claims.writable):
        if not base_prefix:
            claims.notes.append(
                f"Interpreter {interpreter!r} lies in a writable folder, whose links are not believed, and its base "
                "installation was not named, so it works inside only if that is a system folder."
            )
        return
    try:
        if not interpreter.startswith("/"):
            raise Refused("is not an absolute path")
        place = claims.files.resolve(interpreter)
    except Refused as refused:
        claims.notes.append(f"Interpreter {interpreter!r} may not work inside because it {refused}.")
        return
    claims.keep_links(place)
    for folder in dict.fromkeys((os.path.dirname(interpreter), os.path.dirname(place.real))):
        claims.claim_python(folder, "the interpreter")


def _pass_variables(claims: Claims, caller: Mapping[str, str]) -> None:
    for name in table.PASSED:
        value = caller.get(name, "")
        if value.startswith("/") and name not in claims.environment:
            try:
                place = claims.files.resolve(value)
            except Refused:
                continue
            if claims.visible(place.real):
                claims.environment[name] = value if claims.keep_links(place) else place.real


def _user_sites(claims: Claims, mounts: Sequence[str]) -> list[tuple[str, str]]:
    # HOME is private inside, so a program that `pip install --user` made would not find its packages. PYTHONUSERBASE
    # would make pip install into a read-only folder; a .pth file in the private one leaves it writable.
    found = []
    for mount in mounts:
        folder, name = os.path.split(mount)
        site = f"{mount}/site-packages"
        if folder == f"{claims.real_home}/.local/lib" and claims.files.exists(site):
            line = f"import site; site.addsitedir({site!r})\n"
            found.append((f".local/lib/{name}/site-packages/host-user-site.pth", line))
    return found
