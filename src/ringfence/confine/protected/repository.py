"""The git directories of a writable folder: what in each of them git outside would read or run, and how it is held."""

from __future__ import annotations

import os
import stat

from ringfence.confine.protected import gitconfig, stubs
from ringfence.confine.protected.look import Look, look
from ringfence.confine.protected.plan import COPIES, Protected, Wanted
from ringfence.errors import WorkspaceError
from ringfence.policy import settings as names
from ringfence.policy.resolve import SYSTEM, Folder, mounts_below

MAX_GIT_DIRECTORIES = 400
"""Git directories that one box may write: each takes a descriptor of this process and about ten mounts of the box."""
MAX_WORKTREES = 1000
MAX_WORKTREES_COPIED = 4
"""Linked worktrees elsewhere of which the box has a copy, a quarter of a millisecond each; more are read-only, and gc refuses."""
MAX_MODULES = 2000
"""Entries that are looked at for the git directories of submodules."""
MAX_LINK_BYTES = 8192


class Repositories:
    """The repositories of one look, each held once. folders: git directories outside that a linked worktree works in."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.folders: list[Folder] = []
        self._held: set[tuple[str, str]] = set()
        self._directories: set[str] = set()

    def at(self, worktree: str) -> None:
        """Hold the repository whose worktree is this folder, if it is one; or the folder itself, if it is a git directory."""
        link = f"{worktree}/{names.GIT}"
        path, found = self.look.resolve(link) or (link, look(link))
        if found is None:
            if is_git_directory(worktree):
                self._directory(worktree, worktree)
        elif stat.S_ISDIR(found.st_mode):
            self._directory(path, worktree)
        elif stat.S_ISREG(found.st_mode):
            self.look.hold(path, found, "read-only")
            self._linked(path, worktree)

    def above(self, folder: str) -> None:
        """Hold what the repositories that a writable folder lies in name inside it; they themselves are not in the box."""
        at = os.path.dirname(folder)
        alone = look(f"{folder}/{names.GIT}") is not None or is_git_directory(folder)
        while at != "/":
            link = f"{at}/{names.GIT}"
            found = look(link)
            if found is not None:
                if not alone and self.look.root_of(link) is None:
                    self.look.notes.append(
                        f"git does not work in {folder}: its repository {at} lies around it and is not in the box."
                    )
                alone = True
                git = link if stat.S_ISDIR(found.st_mode) else os.path.join(at, _read_link(link, "gitdir:") or "")
                shared = _read_link(f"{git}/{names.COMMON}", "")
                self._named_by_settings(os.path.join(git, shared or ""), at, f"{COPIES}/above-{at.count('/')}")
            at = os.path.dirname(at)

    def _linked(self, link: str, worktree: str) -> None:
        """A `.git` file: what it leads to, where that is inside, or outside and says itself that it belongs here."""
        admin = _read_link(link, "gitdir:")
        if admin is None:
            return
        admin = os.path.realpath(os.path.join(worktree, admin))
        shared = _read_link(f"{admin}/{names.COMMON}", "")
        common = os.path.realpath(os.path.join(admin, shared)) if shared is not None else admin
        if not is_git_directory(common):
            return
        if common not in self.look.named and self.look.root_of(common) is None:
            folder = self._outside(admin, common, link, worktree)
            if folder is None:
                return
            self.folders.append(folder)
            self.look.named[common] = self.look.policy.mode == "workspace-write"
        self._directory(common, worktree)

    def _outside(self, admin: str, common: str, link: str, worktree: str) -> Folder | None:
        """The git directory outside, if it may be given to the box: only git, there, can have written the way back to this link."""
        if admin == common:
            back = gitconfig.settings_of((f"{common}/{names.CONFIG}",), common, self.look.home).worktree
            returns = bool(back) and os.path.realpath(os.path.join(common, back)) == worktree
        else:
            back = _read_link(f"{admin}/{names.LINK}", "") or ""
            returns = os.path.realpath(os.path.join(admin, back)) == link and os.path.dirname(admin) == f"{common}/worktrees"
        found = os.stat(common)
        owner = self.look.policy.workspace.owner[0] if self.look.policy.workspace else os.geteuid()
        home = os.path.realpath(self.look.home)
        if not returns or found.st_uid != owner or common in SYSTEM or f"{home}/".startswith(f"{common}/") or mounts_below(common):
            self.look.notes.append(
                f"git does not work in {worktree}: its repository {common} lies outside and cannot be shown to belong to it; "
                "name it in writable to give it to the box."
            )
            return None
        self.look.notes.append(f"{common}, the repository of the linked worktree {worktree}, is in the box, its settings apart.")
        return Folder(common, found.st_dev, found.st_ino, True, (found.st_uid, found.st_gid))

    def _directory(self, git: str, worktree: str) -> None:
        """Hold one git directory, and those of its submodules and linked worktrees."""
        found = look(git)
        if (git, worktree) in self._held or found is None or not stat.S_ISDIR(found.st_mode):
            return
        copies = f"{COPIES}/{len(self._held)}"
        first = git not in self._directories
        self._held.add((git, worktree))
        self._directories.add(git)
        folders = self._named_by_settings(git, worktree, copies)
        if not first:
            return  # another worktree of it, in which relative paths are others
        self.look.hold(git, found, "pin")
        self._private(f"{git}/{names.CONFIG}", f"{copies}/{names.CONFIG}")
        lacks = self._own(git, copies)
        if lacks is not None and self.look.is_writable(f"{git}/{names.COMMON}"):
            self.look.wanted.append(Wanted(git, found.st_dev, found.st_ino, (found.st_uid, found.st_gid), *lacks, folders))
            if len(self.look.wanted) > MAX_GIT_DIRECTORIES:
                raise WorkspaceError(
                    f"the box could write more than {MAX_GIT_DIRECTORIES} repositories, those of submodules counted.",
                    hint="Name a folder that holds fewer of them, or set mode='read-only'.",
                )
        self._worktrees(f"{git}/worktrees", copies)
        for module in _modules(f"{git}/modules"):
            self.look.resolve(module)
            self._directory(module, worktree)

    def _named_by_settings(self, git: str, worktree: str, copies: str) -> tuple[str, ...]:
        """Hold what the settings name in a writable folder; returns the folders of hooks that are to be made."""
        files = (f"{git}/{names.CONFIG}", f"{git}/{names.WORKTREE_CONFIG}")
        settings = gitconfig.settings_of((*_of_the_user(self.look.home), *files), worktree, self.look.home)
        folders = [self._hooks(path, f"{copies}/hooks-{at}") for at, path in enumerate(settings.hooks)]
        for path in settings.included:
            self.look.protect(path, missing=True)
        for path in settings.run:
            if os.path.isfile(path):
                self.look.protect(path, missing=False)
        if self.look.is_writable(f"{worktree}/-") and self._runs_hooks([f"{git}/{names.HOOKS}", *settings.hooks]):
            self.look.settings(worktree, names.HOOK_MANAGERS, missing=False)
        return tuple(folder for folder in folders if folder)

    def _own(self, git: str, copies: str) -> tuple[bool, bool] | None:
        """Hold commondir, config.worktree and hooks; (is the second lacking, is the third), None where commondir is git's own."""
        common = look(f"{git}/{names.COMMON}")
        ours = common is None or stubs.is_ours(f"{git}/{names.COMMON}", common)
        if not ours:
            self.look.protect(f"{git}/{names.COMMON}", missing=True)
        elif self.look.is_writable(f"{git}/{names.COMMON}"):
            self.look.found[f"{git}/{names.COMMON}"] = Protected(f"{git}/{names.COMMON}", "stub", False)
        lacking = [
            self._to_be_made(f"{git}/{name}", f"{copies}/{name}", name == names.HOOKS, ours)
            for name in (names.WORKTREE_CONFIG, names.HOOKS)
        ]
        return (lacking[0], lacking[1]) if ours else None

    def _to_be_made(self, path: str, copy: str, is_dir: bool, may_make: bool) -> bool:
        """Hold path by a private copy; where it is not there, by one of what is to be made there. Returns whether it is."""
        found = look(path)
        if found is not None and not stubs.is_ours(path, found):
            self._private(path, copy)
            if is_dir:
                self._targets_of(path)
            return False
        if not self.look.is_writable(path):
            return False
        self.look.found[path] = Protected(path, "private" if may_make else "watch", is_dir, copy=copy if may_make else "")
        return may_make

    def _private(self, path: str, copy: str) -> None:
        entry = self.look.private(path, copy)
        if entry is not None and entry[1] is None:
            self.look.found.setdefault(entry[0], Protected(entry[0], "watch", False))

    def _hooks(self, path: str, copy: str) -> str:
        """Hold the folder that core.hooksPath names. Returns its path where it is to be made, else the empty string."""
        whole = os.path.realpath(path)
        if self.look.named.get(whole):  # all of a writable folder: then each hook that git knows
            for name in names.HOOK_NAMES:
                self.look.protect(f"{whole}/{name}", missing=True)
            return ""
        entry = self.look.resolve(path)
        if entry is None:
            return ""
        real, found = entry
        if found is not None and not stubs.is_ours(real, found):
            self.look.private(real, copy)
            self._targets_of(real)
            return ""
        if look(os.path.dirname(real)) is None:
            self.look.found.setdefault(real, Protected(real, "watch", True))
            return ""
        self.look.found[real] = Protected(real, "private", True, copy=copy)
        return real

    def _targets_of(self, hooks: str) -> None:
        """Hold what links among the hooks lead to in a writable folder: that is what git runs."""
        for path, found in self.look.below(hooks) if os.path.isdir(hooks) else ():
            if stat.S_ISLNK(found.st_mode):
                self.look.protect(os.path.join(os.path.dirname(path), os.readlink(path)), missing=True)

    def _runs_hooks(self, folders: list[str]) -> bool:
        """Whether any of these folders holds a hook that git would run."""
        files: list[os.stat_result] = []
        for folder in folders:
            if os.path.isdir(folder) and os.path.realpath(folder) not in self.look.named:
                try:
                    files += [found for _, found in self.look.below(folder)]
                except WorkspaceError:
                    return True  # one that this caller may not look into
        return any(stat.S_ISLNK(each.st_mode) or (stat.S_ISREG(each.st_mode) and each.st_mode & 0o111) for each in files)

    def _worktrees(self, folder: str, copies: str) -> None:
        try:
            linked = sorted(os.listdir(folder))
        except OSError:
            return
        if len(linked) > MAX_WORKTREES:
            raise WorkspaceError(
                f"{folder} lists {len(linked)} linked worktrees; {MAX_WORKTREES} can be protected.",
                hint="`git worktree prune` removes those that are gone.",
            )
        elsewhere = 0
        for name in linked:
            admin = f"{folder}/{name}"
            if not self._is_of_the_box(admin):
                # git in the box takes a worktree that it does not see for gone, and would prune the host's; gc writes there too.
                elsewhere += 1
                if elsewhere <= MAX_WORKTREES_COPIED:
                    self.look.private(admin, f"{copies}/elsewhere-{elsewhere}")
                else:
                    self.look.protect(admin, missing=False)
                continue
            for part in (names.COMMON, names.LINK):
                self.look.protect(f"{admin}/{part}", missing=True)
            self._private(f"{admin}/{names.WORKTREE_CONFIG}", f"{copies}/worktrees/{len(self.look.found)}")

    def _is_of_the_box(self, admin: str) -> bool:
        """Whether the worktree that a folder of git is about lies in the box, where it can be worked in."""
        link = _read_link(f"{admin}/{names.LINK}", "")
        if link is None:
            return False
        worktree = os.path.dirname(os.path.realpath(os.path.join(admin, link)))
        return self.look.named.get(worktree, False) or self.look.is_writable(worktree)


def is_git_directory(path: str) -> bool:
    """Whether git would take path for a git directory (its setup.c: HEAD, objects and refs)."""
    return all(look(f"{path}/{name}") is not None for name in ("HEAD", "objects", "refs"))


def _of_the_user(home: str) -> tuple[str, ...]:
    """The settings that git reads outside for every repository: a relative core.hooksPath there names a folder in each."""
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return (
        os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"),
        f"{config}/git/config",
        os.environ.get("GIT_CONFIG_GLOBAL", f"{home}/.gitconfig"),
    )


def _read_link(path: str, prefix: str) -> str | None:
    """The one line of a file of git that holds a path, without its prefix."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(descriptor, MAX_LINK_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
    line = os.fsdecode(content).rstrip("\r\n")
    return line.removeprefix(prefix).strip() if line.startswith(prefix) and line != prefix and "\0" not in line else None


def _modules(folder: str) -> list[str]:
    """The git directories of submodules below a folder; a name may have slashes in it, so they lie at any depth."""
    found: list[str] = []
    pending, left = [folder], MAX_MODULES
    while pending:
        path = pending.pop()
        try:
            listing = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        left -= len(listing)
        if left < 0:
            raise WorkspaceError(
                f"{folder} holds more than {MAX_MODULES} folders: its git directories cannot all be protected.",
                hint="Use a workspace with fewer submodules, or set mode='read-only'.",
            )
        for inner in listing:
            if is_git_directory(inner):
                found.append(inner)
            else:
                pending.append(inner)
    return sorted(found)
