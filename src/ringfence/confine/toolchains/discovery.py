"""From the caller's PATH and interpreter to the mounts, links and variables that make them work in a box."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringfence.confine.toolchains import table
from ringfence.confine.toolchains.hostfiles import Exhausted, HostFiles, Place, Refused, inside, inside_any
from ringfence.confine.toolchains.table import Row

MAX_NOTED_LINKS = 20


@dataclass(frozen=True, slots=True)
class Toolchains:
    """What a box needs beside the system folders so that the caller's tools run in it.

    `read_only` are host folders, and for a few tools single files, without links in their paths, to be mounted
    read-only at the same path; none lies in another. `path` is the box's PATH, in the caller's order. `environment`
    are variables that the tools need. `links` are (path, text) of links to recreate in the box; a link's own folder
    is never part of a mount. `covered` are files in `read_only` or in /usr that may hold credentials and must not be
    readable. `notes` say in one sentence each what was dropped and why.
    """

    read_only: tuple[str, ...]
    path: tuple[str, ...]
    environment: dict[str, str]
    links: tuple[tuple[str, str], ...]
    covered: tuple[str, ...]
    notes: tuple[str, ...]


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
    is the caller's; only names in `table.PASSED` and those of a tool's data folder are looked at.

    Not promised: that a tool which the table does not know works (its own PATH folder is mounted and nothing else),
    or that what is mounted now is still there later.
    """
    search = _Search(home, writable, environment or {})
    entries = list(dict.fromkeys(entry.rstrip("/") or entry[:1] for entry in path.split(":")))
    try:
        search.add_interpreter(interpreter, base_prefix)
        for entry in entries:
            search.add_entry(entry)
        search.pass_variables()
    except Exhausted:
        search.notes.append("PATH leads to too many files to look at, so what came after the last kept entry was dropped.")
    return search.result()


@dataclass
class _Search:
    home: str
    writable_named: Sequence[str]
    caller: Mapping[str, str]
    mounts: dict[str, None] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    covered: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = os.path.normpath(self.home)
        self.real_home = os.path.realpath(self.home)
        both = [f(root) for root in self.writable_named for f in (os.path.abspath, os.path.realpath)]
        self.writable = tuple(dict.fromkeys(both))
        self.files = HostFiles(self.writable)
        self.claimed: dict[str, bool] = {}
        self.noted_links = 0

    # What the caller named

    def add_entry(self, entry: str) -> None:
        """One PATH entry: kept with all that it needs, or dropped with a note."""
        try:
            if not entry.startswith("/"):
                raise Refused("is relative, so its meaning would depend on the folder that a command runs in")
            if "\0" in entry:
                raise Refused("holds a NUL")
            place = self.files.resolve(entry)
            if not stat.S_ISDIR(place.status.st_mode):
                raise Refused("is not a folder")
            self.claim(place.real, whole_entry=True)
        except Refused as refused:
            self.notes.append(f"PATH entry {entry!r} was dropped because it {refused}.")
            return
        self.path.append(entry if self.keep_links(place) and ".." not in entry.split("/") else place.real)
        self.add_companions(place.real)
        self.follow_programs(place.real)

    def add_interpreter(self, interpreter: str, base_prefix: str) -> None:
        """The caller's Python: the environment it lies in, the installation behind it, and what it says of itself."""
        if base_prefix:
            self.add_python(os.path.join(base_prefix, "bin"), "the interpreter's base installation")
        if not interpreter.startswith("/") or inside_any(os.path.normpath(interpreter), self.writable):
            if not base_prefix:
                self.notes.append(
                    f"Interpreter {interpreter!r} lies in a writable folder, whose links are not believed, and its base "
                    "installation was not named; it works inside only if that is a system folder."
                )
            return
        self.add_python(os.path.dirname(interpreter), "the interpreter")
        try:
            target = self.files.resolve(interpreter)
        except Refused as refused:
            self.notes.append(f"Interpreter {interpreter!r} may not work inside because it {refused}.")
            return
        self.keep_links(target)
        self.add_python(os.path.dirname(target.real), "the interpreter")

    def pass_variables(self) -> None:
        for name in table.PASSED:
            value = self.caller.get(name, "")
            if not value.startswith("/") or name in self.environment:
                continue
            try:
                place = self.files.resolve(value)
            except Refused:
                continue
            if self.visible(place.real) and self.keep_links(place):
                self.environment[name] = value

    # What these lead to

    def add_python(self, folder: str, what: str) -> None:
        """A folder that holds a Python; mounted only if it looks like one, whatever a pyvenv.cfg said."""
        try:
            place = self.files.resolve(folder)
            prefix = os.path.dirname(place.real)
            if not inside_any(place.real, table.SYSTEM) and not self.is_environment(prefix):
                if not any(self.files.expand(prefix, f"{lib}/python3*") for lib in ("lib", "lib64")):
                    raise Refused("holds no Python installation")
            self.claim(place.real)
        except Refused as refused:
            self.notes.append(f"The folder {folder!r} of {what} is not mounted because it {refused}.")
        else:
            self.keep_links(place)

    def add_companions(self, folder: str) -> None:
        for companion in table.COMPANIONS:
            if not self.files.exists(os.path.join(folder, companion.program)):
                continue
            named = self.caller.get(companion.variable, "")
            for where in (named,) if named.startswith("/") else companion.places:
                where = self.home + where[1:] if where.startswith("~") else where
                try:
                    place = self.files.resolve(os.path.normpath(os.path.join(folder, companion.program, where)))
                    self.take(companion.row, place.real)
                except Refused:
                    continue
                if self.keep_links(place):
                    self.environment.setdefault(companion.variable, place.real)
                break

    def follow_programs(self, folder: str) -> None:
        """Programs that are links out of their folder: what they lead to is mounted when the table knows it.

        /usr/bin and its like are left to the distribution, which links to /usr and /etc/alternatives only.
        """
        if inside_any(folder, table.SYSTEM) and not inside(folder, "/usr/local"):
            return
        self.follow_links(folder)

    def follow_links(self, folder: str) -> None:
        for entry in self.files.list(folder):
            if not entry.is_symlink():
                continue
            try:
                if "/" not in self.files.read_link(entry.path):
                    continue
                target = self.files.resolve(entry.path)
            except Refused:
                continue  # Dangling, or it leads into a writable folder, which the box sees anyway.
            if not self.visible(target.real):
                is_folder = stat.S_ISDIR(target.status.st_mode)
                found = f"{target.real}/bin" if is_folder else os.path.dirname(target.real)
                try:
                    self.claim(found)
                except Refused as refused:
                    self.note_link(entry.path, target.real, str(refused))
                    continue
            self.keep_links(target)

    def note_link(self, link: str, target: str, why: str) -> None:
        self.noted_links += 1
        if self.noted_links <= MAX_NOTED_LINKS:
            self.notes.append(f"{link!r} does not work inside: what it leads to, {target!r}, {why}.")

    # From a folder to what its tool needs

    def claim(self, folder: str, whole_entry: bool = False) -> None:
        """Mount what the tool that owns `folder` needs; for a PATH entry that no row knows, the folder alone.

        Raises Refused when no row knows it, or when what would be mounted is not allowed.
        """
        if folder in self.claimed and (self.claimed[folder] or not whole_entry):
            return
        if inside_any(folder, table.SYSTEM):
            self.cover(os.path.dirname(folder))
            for row in table.ROWS:
                self.set_variable(row, self.matched(row, folder))
            self.claimed[folder] = True
            return
        if self.claim_owner(folder):
            self.claimed[folder] = True
            return
        known = [(row, prefix) for row in table.SHARED if (prefix := self.matched(row, folder))]
        if not known and not whole_entry:
            raise Refused("belongs to no tool that is known here")
        if whole_entry:
            self.mount(folder, entry=True)
        for row, prefix in known:
            self.take(row, prefix)
        self.claimed[folder] = whole_entry

    def claim_owner(self, folder: str) -> bool:
        prefix = os.path.dirname(folder)
        if self.is_environment(prefix):
            self.take_environment(prefix)
            return True
        for row in table.ROWS:
            owner = self.matched(row, folder)
            if owner:
                self.take(row, owner)
                return True
        return False

    def matched(self, row: Row, folder: str) -> str:
        for prefix, marked in table.prefixes(row, folder, self.real_home):
            if not marked or all(
                any(self.files.exists(found) for found in self.files.expand(prefix, mark)) for mark in row.marks
            ):
                return prefix
        return ""

    def is_environment(self, prefix: str) -> bool:
        return self.files.exists(f"{prefix}/pyvenv.cfg")

    def take_environment(self, prefix: str) -> None:
        """A Python environment made by venv, virtualenv, uv or pipx, and the installation it was made from."""
        self.claimed[f"{prefix}/bin"] = True  # An environment can name itself as its base.
        self.refuse(prefix, entry=False)
        own = all(entry.name in table.VENV_OWN for entry in self.files.list(prefix))
        self.take(Row("venv", table.WHOLE if own else table.VENV_PARTS), prefix)
        settings = self.files.read_settings(self.files.resolve(f"{prefix}/pyvenv.cfg").real)
        if settings.get("home", "").startswith("/"):
            self.add_python(settings["home"], f"the base of the environment {prefix!r}")

    def take(self, row: Row, prefix: str) -> None:
        """Mount `row`'s parts of `prefix`, follow the links among the children of `each`, cover credentials."""
        self.set_variable(row, prefix)
        for part in row.parts:
            for path in self.files.expand(prefix, part):
                try:
                    place = self.files.resolve(path)
                except Refused:
                    continue  # Parts are optional.
                self.mount(place.real)
                self.keep_links(place)
        self.cover(prefix)
        for part in row.each:
            folder = os.path.normpath(os.path.join(prefix, part))
            for child in self.files.list(folder):
                self.cover(child.path)
            self.follow_links(folder)

    def set_variable(self, row: Row, prefix: str) -> None:
        if row.variable and prefix:
            self.environment.setdefault(row.variable, prefix)

    def cover(self, prefix: str) -> None:
        """Note the credential files of `prefix`, asking only for those whose first name its listing holds."""
        names = {entry.name for entry in self.files.list(prefix)}
        for name in table.CREDENTIALS:
            if name.split("/")[0] not in names:
                continue
            try:
                place = self.files.resolve(os.path.join(prefix, name))
            except Refused:
                continue
            if stat.S_ISREG(place.status.st_mode):
                self.covered[place.real] = None

    # What is allowed

    def mount(self, real: str, entry: bool = False) -> None:
        if not inside_any(real, table.SYSTEM):
            self.refuse(real, entry)
            self.mounts[real] = None

    def refuse(self, real: str, entry: bool) -> None:
        """Raise Refused unless the folder or file `real` may be mounted."""
        shown = "" if entry else f"needs {real!r}, which "
        homes = {self.home, self.real_home}
        if any(inside(home, real) for home in homes):
            raise Refused(f"{shown}is the home folder or contains it")
        if any(inside(root, real) or inside(real, root) for root in self.writable):
            raise Refused(f"{shown}contains a writable folder or lies in one")
        if real in table.BARE or os.path.dirname(real) == "/home" or inside_any(real, table.CLOSED):
            raise Refused(f"{shown}is no folder of one tool")
        if entry and os.path.dirname(real) in homes and os.path.basename(real).startswith("."):
            raise Refused("is a whole dot folder of the home")
        for home in homes:
            below = real[len(home) :].lstrip("/") if inside(real, home) else ""
            for name in table.SECRET if below else ():
                if inside(below, name) or inside(name, below):
                    raise Refused(f"{shown}is, contains or lies in the home's {name!r}, which holds secrets")
        status = self.files.resolve(real).status
        mode = status.st_mode
        if mode & stat.S_ISVTX and mode & stat.S_IWOTH:
            raise Refused(f"{shown}is a shared folder that every user can write")
        # A box of root has another uid, and what only a group can read must not depend on the caller's groups.
        need = 0o5 if stat.S_ISDIR(mode) else 0o4
        owner = os.geteuid() == status.st_uid != 0 and (mode >> 6) & need == need
        if not owner and mode & need != need:
            raise Refused(f"{shown}is not readable for the user that a box runs as")

    def visible(self, real: str) -> bool:
        return inside_any(real, table.SYSTEM) or inside_any(real, self.mounts)

    def keep_links(self, place: Place) -> bool:
        """Remember the links on the way to `place`; False when one cannot exist in a box."""
        kept = True
        for link, text in place.links:
            if inside_any(link, table.CLOSED) or any(inside(p, link) for p in (*self.writable, self.home, "/home")):
                kept = kept and inside(self.home, link)  # result() gives what lies in a linked home its other name.
            else:
                self.links[link] = text
        return kept

    def result(self) -> Toolchains:
        mounts = sorted(m for m in self.mounts if not any(inside(m, o) for o in self.mounts if o != m))
        links = {link: text for link, text in self.links.items() if not inside_any(link, (*table.SYSTEM, *mounts))}
        if self.home != self.real_home:
            for path in (*mounts, *links):
                if inside(path, self.real_home):
                    links.setdefault(self.home + path[len(self.real_home):], path)
        covered = sorted(c for c in self.covered if inside_any(c, (*mounts, *table.SYSTEM)))
        if self.noted_links > MAX_NOTED_LINKS:
            self.notes.append(f"{self.noted_links - MAX_NOTED_LINKS} more links lead to what is not mounted.")
        return Toolchains(tuple(mounts), tuple(self.path), dict(self.environment), tuple(sorted(links.items())),
                          tuple(covered), tuple(self.notes))  # fmt: skip
