"""What one look-up has decided to mount so far, and how a folder leads to the rest of its tool."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ringfence.confine.toolchains import allowed, table
from ringfence.confine.toolchains.hostfiles import HostFiles, Place, Refused, inside, inside_any
from ringfence.confine.toolchains.table import Row

MAX_NOTED_LINKS = 20
"""Links that do not work inside and are named in notes."""
MAX_FOLLOWED = 300
"""Links among programs that are followed; those that stay in what is mounted anyway do not count."""


class Claims:
    """The mounts, links, variables, covers and notes of one `discover`."""

    def __init__(self, home: str, writable: Sequence[str]) -> None:
        self.home, self.real_home = os.path.normpath(home), os.path.realpath(home)
        self.writable = tuple(dict.fromkeys(f(root) for root in writable for f in (os.path.abspath, os.path.realpath)))
        self.files = HostFiles(self.writable)
        self.environment: dict[str, str] = {}
        self.covered: dict[str, None] = {}
        self.notes: list[str] = []
        self._mounts: dict[str, None] = {}
        self._links: dict[str, str] = {}
        self._renamed: dict[str, str] = {}  # links that cannot exist in a box, and where they lead
        self._claimed: set[str] = set()
        self._taken: set[tuple[tuple[str, ...], str]] = set()
        self._looked_into: set[str] = set()
        self._followed: set[str] = set()
        self._followed_links = 0
        self._dead_links = 0

    # From a folder to what its tool needs

    def claim_entry(self, folder: str) -> None:
        """Mount what a resolved PATH entry needs; at least the folder itself. Raises Refused."""
        try:
            self.claim(folder)
        except Unknown:
            pass
        if not self.visible(folder):
            self._mount(self.files.resolve(folder), entry=True)

    def claim(self, folder: str) -> None:
        """Mount what the tool that owns `folder` needs.

        Raises Unknown when no row knows the folder, Refused when what it needs may not be mounted.
        """
        if folder in self._claimed:
            return
        if inside_any(folder, table.SYSTEM):
            self._cover(os.path.dirname(folder))
            for row in table.ROWS:
                if row.variable and (prefix := self._prefix(row, folder)):
                    self.environment.setdefault(row.variable, prefix)
        elif self._is_environment(os.path.dirname(folder)):
            self._take_environment(os.path.dirname(folder))
        else:
            owners = ((row, prefix) for row in table.ROWS if (prefix := self._prefix(row, folder)))
            sharers = ((row, prefix) for row in table.SHARED if (prefix := self._prefix(row, folder)))
            found = [owner] if (owner := next(owners, None)) else list(sharers)
            if not found:
                raise Unknown("belongs to no tool that is known here")
            for row, prefix in found:
                self.take(row, prefix)
        self._claimed.add(folder)

    def claim_python(self, folder: str, what: str) -> None:
        """Mount the Python installation or environment whose programs are in `folder`, or leave a note.

        A pyvenv.cfg may have been written by anything, so what it names must look like an installation.
        """
        try:
            place = self.files.resolve(folder)
            prefix = os.path.dirname(place.real)
            if not inside_any(place.real, table.SYSTEM) and not self._is_environment(prefix):
                if prefix in ("/", self.home, self.real_home):
                    raise Refused(f"has {prefix!r} as its prefix")
                if not any(self.files.expand(prefix, f"{lib}/python3*") for lib in ("lib", "lib64")):
                    raise Refused("holds no Python installation")
            self.claim(place.real)
        except Refused as refused:
            self.notes.append(f"The folder {folder!r} of {what} is not mounted because it {refused}.")
        else:
            self.keep_links(place)

    def take(self, row: Row, prefix: str) -> None:
        """Mount `row`'s parts of `prefix`, follow the links among the children of `each`, cover credentials.

        Raises Refused when the prefix as a whole is needed and may not be mounted; a part is left out with a note.
        """
        if (row.parts, prefix) in self._taken:
            return
        self._taken.add((row.parts, prefix))
        for part in row.parts:
            for path in self.files.expand(prefix, part):
                if not self.files.exists(path):
                    continue
                place = self.files.resolve(path)
                try:
                    self._mount(place)
                except Refused as refused:
                    if not part:
                        self._taken.discard((row.parts, prefix))
                        raise
                    self.notes.append(f"The folder {prefix!r} of {row.tool} is not complete inside because it {refused}.")
                self.keep_links(place)
        self._cover(prefix)
        if row.variable:
            self.environment.setdefault(row.variable, prefix)
        for part in row.each:
            folder = f"{prefix}/{part}" if part else prefix
            if self.files.exists(folder):
                real = self.files.resolve(folder).real
                for child in self.files.entries(real):
                    self._cover(child.path)
                self.follow_links(real)

    def follow_links(self, folder: str) -> None:
        """Links that lead out of a resolved folder: what they lead to is mounted when the table knows it."""
        if folder in self._followed:
            return
        self._followed.add(folder)
        for entry in self.files.entries(folder):
            if not entry.is_symlink():
                continue
            try:
                text = self.files.read_link(entry.path)
                if "/" not in text or inside_any(os.path.normpath(os.path.join(folder, text)), self._mounts):
                    continue
                self._followed_links += 1
                if self._followed_links > MAX_FOLLOWED:
                    self.notes.append(f"{folder!r} holds too many links to follow, so some of its programs may not work.")
                    return
                target = self.files.resolve(entry.path)
            except Refused:
                continue  # It dangles, or leads into a writable folder, which the box sees anyway.
            if not self.visible(target.real):
                is_folder = stat.S_ISDIR(target.status.st_mode)
                try:
                    self.claim(f"{target.real}/bin" if is_folder else os.path.dirname(target.real))
                except Refused as refused:
                    self._note_dead_link(entry.path, target.real, refused)
                    continue
            self.keep_links(target)

    def _prefix(self, row: Row, folder: str) -> str:
        """The prefix below which `folder` belongs to `row`'s tool, or ''."""
        for prefix, marked in table.prefixes(row, folder, self.real_home):
            if marked and prefix in (self.home, self.real_home):
                continue  # What lies beside ~/bin is the user's.
            found = (self.files.expand(prefix, mark) for mark in row.marks)
            if not marked or all(any(map(self.files.exists, paths)) for paths in found):
                return prefix
        return ""

    def _is_environment(self, prefix: str) -> bool:
        return self.files.exists(f"{prefix}/pyvenv.cfg")

    def _take_environment(self, prefix: str) -> None:
        """A Python environment made by venv, virtualenv, uv or pipx, and the installation it was made from."""
        self._claimed.add(f"{prefix}/bin")  # An environment can name itself as its base.
        allowed.check(self.files.resolve(prefix), (self.home, self.real_home), self.writable, entry=False)
        own = all(entry.name in table.VENV_OWN for entry in self.files.entries(prefix))
        self.take(Row("venv", table.WHOLE if own else table.VENV_PARTS), prefix)
        base = self.files.read_settings(self.files.resolve(f"{prefix}/pyvenv.cfg").real).get("home", "")
        if base.startswith("/"):
            self.claim_python(base, f"the base of the environment {prefix!r}")
        self.follow_links(f"{prefix}/bin")

    def _cover(self, prefix: str) -> None:
        """Note the credential files of `prefix`, asking only for those whose first name its listing holds."""
        if prefix in self._looked_into:
            return
        self._looked_into.add(prefix)
        names = {entry.name for entry in self.files.entries(prefix)}
        for name in table.CREDENTIALS:
            path = f"{prefix}/{name}"
            if name.partition("/")[0] in names and self.files.exists(path):
                place = self.files.resolve(path)
                if stat.S_ISREG(place.status.st_mode):
                    self.covered[place.real] = None

    def _note_dead_link(self, link: str, target: str, refused: Refused) -> None:
        self._dead_links += 1
        if self._dead_links <= MAX_NOTED_LINKS:
            self.notes.append(f"{link!r} does not work inside because {target!r}, to which it leads, {refused}.")
        elif self._dead_links == MAX_NOTED_LINKS + 1:
            self.notes.append("More links lead to what is not mounted; they are not named.")

    # What the box will see

    def _mount(self, place: Place, *, entry: bool = False) -> None:
        if not self.visible(place.real):
            allowed.check(place, (self.home, self.real_home), self.writable, entry=entry)
            self._mounts[place.real] = None

    def visible(self, real: str) -> bool:
        """Whether a path without links is in the box."""
        return inside_any(real, table.SYSTEM) or inside_any(real, self._mounts)

    def keep_links(self, place: Place) -> bool:
        """Remember the links on the way to `place`; False when one cannot exist in a box under its own name."""
        kept = True
        for link, text in place.links:
            if inside_any(link, table.CLOSED):
                kept = False
            elif any(inside(folder, link) for folder in (*self.writable, self.home, *table.HOMES)):
                self._renamed[link] = self.files.resolve(link).real
            else:
                self._links[link] = text
        return kept

    def outermost(self) -> tuple[str, ...]:
        """The mounts, without those that lie in another."""
        return tuple(sorted(m for m in self._mounts if not any(inside(m, o) for o in self._mounts if o != m)))

    def needed_links(self, mounts: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """The links to recreate: those kept, and other names for what lies behind a link that cannot exist.

        /home, the home and what leads to a writable folder must be folders in a box. Where the host has a link there,
        each mount behind it gets a link of its own instead.
        """
        links = {link: text for link, text in self._links.items() if not inside_any(link, (*table.SYSTEM, *mounts))}
        for link, target in self._renamed.items():
            for path in (*mounts, *self._links):
                if path != target and inside(path, target):
                    links.setdefault(link + path[len(target.rstrip("/")) :], path)
        return tuple(sorted(links.items()))


class Unknown(Refused):
    """No row of the table knows the folder."""
