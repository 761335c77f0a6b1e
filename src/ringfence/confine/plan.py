"""The data that a box is made from. What is printed is the very object that runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from ringfence.errors import ConfigError
from ringfence.outcome import Enforcement
from ringfence.values import field, frozen

if TYPE_CHECKING:
    from ringfence.confine.protected.plan import Protected
    from ringfence.confine.ways import Network

RDONLY, NOSUID, NODEV, NOEXEC = 0x1, 0x2, 0x4, 0x8  # MOUNT_ATTR_*, linux/mount.h
READ_ONLY = RDONLY | NOSUID | NODEV
WRITABLE = NOSUID | NODEV


@frozen
class Tree:
    """A folder or file of the host, mounted at target. identity (device, inode) is checked unless it is (0, 0)."""

    target: str
    source: str
    attributes: int
    recursive: bool = False
    identity: tuple[int, int] = (0, 0)
    idmapped: bool = False
    optional: bool = False  # where it cannot be idmapped it is mounted as it is

    holds_more: ClassVar[bool] = True

    @property
    def writable(self) -> bool:
        return not self.attributes & RDONLY

    def __str__(self) -> str:
        access = "ro" if self.attributes & RDONLY else "rw"
        return f"mount {self.target}" + (f" from {self.source}" if self.source != self.target else "") + f" ({access})"


@frozen
class Step:
    """A step that needs no source: folder, private, link, file, replace, proc, devpts, cover, readonly; and what is done with a
    path of a workspace, whose identity is checked like a tree's: cover, pin, protect, private-file, private-folder."""

    kind: str
    target: str
    mode: int = 0
    content: bytes = b""
    identity: tuple[int, int] = (0, 0)

    @property
    def holds_more(self) -> bool:
        """Whether what is below the target is of this step too."""
        return self.kind not in ("link", "file", "folder", "replace")

    def __str__(self) -> str:
        leads = self.kind in ("link", "private-file", "private-folder")
        detail = f" -> {os.fsdecode(self.content)}" if leads else f" mode {self.mode:o}" if self.mode else ""
        return f"{self.kind} {self.target}{detail}"


@frozen
class View:
    """What a box sees: the steps that make it, in order, and the same as the guest reads them, in parts that boxes share."""

    steps: tuple[Tree | Step, ...] = ()
    parts: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, steps: Iterable[Tree | Step]) -> View:
        made = tuple(steps)
        return cls(made, (b"".join(_wire_step(step) for step in made),))

    def __add__(self, further: View) -> View:
        return View((*self.steps, *further.steps), (*self.parts, *further.parts))

    @property
    def wire(self) -> bytes:
        return b"".join(self.parts)


@frozen
class Ids:
    """The ids inside, and the maps of the user namespace as the kernel reads them (user_namespaces(7))."""

    uid: int
    gid: int
    uid_map: str
    gid_map: str
    deny_setgroups: bool


@frozen
class Beginning:
    """What the first process of a box is told ahead: who it is, what the boxes of this host all see, and how many bytes and files
    its private folders may hold together. It builds that while the caller looks for the rest.

    room: how many of the control groups that come with it have one of commands within (guest/room.py). shielded:
    the kernel picks what ends at the cap on memory, and commands come first.
    """

    ids: Ids | None = None
    view: View = View()  # nothing changes it
    scratch: tuple[int, int] = (0, 0)
    room: int = 0
    shielded: bool = False
    network: Network | None = None  # where it has a way out

    def wire(self) -> dict[str, object]:
        """As the guest's protocol carries it; trees that were made outside come beside it, in the order of the steps."""
        ids = self.ids
        return {
            "uid": ids.uid if ids else 0,
            "gid": ids.gid if ids else 0,
            "root_caller": int(ids is not None and not ids.deny_setgroups),
            "steps": self.view.wire,
            "scratch": list(self.scratch),
            "room": self.room,
            "shielded": int(self.shielded),
            **({"network": self.network.wire()} if self.network else {}),
        }


Ahead: TypeAlias = Callable[[Beginning, Sequence[int], Callable[[], Sequence[int]]], None]
"""Takes the beginning of a plan, its trees, and what opens the control groups that the first process enters before all else."""


@frozen(kw_only=True)
class LaunchPlan:
    """Everything the first process of a box is told."""

    flags: int
    beginning: Beginning
    view: View  # all of it: it begins with that of the beginning
    environment: Mapping[str, str]
    workdir: str
    private: str
    interpreters: tuple[str, ...]
    runner: str
    compiled_for: str = ""
    runners: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    preload: tuple[str, ...]
    limits: Mapping[str, int]
    exact: bool
    filter: bytes = b""
    added: tuple[int, int] = (0, 0)  # what may come to what is in the private folders at the start; 0 for no cap
    processors: tuple[int, ...] = ()
    protected: tuple[Protected, ...] = ()
    rules: tuple[str, ...] = field(default=(), compare=False)

    @property
    def ids(self) -> Ids | None:
        return self.beginning.ids

    @property
    def rest(self) -> tuple[Tree | Step, ...]:
        """The steps of the view that come after those of the beginning."""
        return self.view.steps[len(self.beginning.view.steps) :]

    def wire(self) -> dict[str, object]:
        """The rest of the plan as the guest's protocol carries it, with its trees beside it."""
        return {
            "steps": b"".join(self.view.parts[len(self.beginning.view.parts) :]),
            "environment": [[name, value] for name, value in self.environment.items()],
            "workdir": self.workdir,
            "private": self.private,
            "interpreters": list(self.interpreters),
            "runner": self.runner,
            "compiled_for": self.compiled_for,
            "runners": dict(self.runners),
            "preload": list(self.preload),
            "limits": dict(self.limits),
            "exact": int(self.exact),
            "filter": self.filter,
            "added": list(self.added),
            "processors": self.processors,
        }

    def describe(self) -> list[str]:
        """The plan as lines to read, in the order in which it is carried out."""
        lines = self.beginning.network.describe() if self.beginning.network else []
        lines += [str(step) for step in self.view.steps]
        lines += [str(each) for each in self.protected]
        lines += [f"set {name}={value}" for name, value in self.environment.items()]
        lines += [f"limit {name} {value}" for name, value in self.limits.items()]
        lines += [f"limit {name} {value}" for name, value in zip(("disk", "inodes"), self.added, strict=True) if value]
        lines += [f"run on processors {', '.join(map(str, self.processors))}"] if self.processors else []
        lines += [f"start in {self.workdir}", f"programs by {' or '.join(self.interpreters)}", *self.rules]
        return lines


FIELDS = 7


def _wire_step(step: Tree | Step) -> bytes:
    """A step as the guest reads it: seven fields, each ended by NUL (guest/view.py). A plan can have thousands."""
    device, inode = step.identity
    if isinstance(step, Tree):
        wire = os.fsencode(f"tree\0{step.target}\0{step.source}\0{step.attributes}\0{int(step.recursive)}\0{device}\0{inode}\0")
    else:
        wire = os.fsencode(f"{step.kind}\0{step.target}\0") + step.content + f"\0{step.mode}\00\0{device}\0{inode}\0".encode()
    if wire.count(b"\0") != FIELDS:
        raise ConfigError(f"{step.target!r} cannot be in a box: its path or content holds a NUL byte.")
    return wire


def _nothing() -> None:
    return None


@frozen
class Grouped:
    """What goes with the control groups of a box. given: opens what its watchers get, by name. counted: what the kernel counts,
    as the kind of a cap, a descriptor of the file, the name of the line, the cap, its mechanism. left: how the paths of groups
    begin, which are to be removed when the caller is killed.
    """

    given: Callable[[], dict[str, int]] = dict
    counted: tuple[tuple[str, int, str, int, str], ...] = ()
    left: tuple[str, ...] = ()


@frozen
class Prepared:
    """A plan that can be carried out: its descriptors, and what it enforces, dimension by dimension.

    enforcement is asked for while the box is being made, since a part of it can be a walk over the workspace. release gives
    back what was taken for it (an id of the host, folders of its own) when the box has ended. covered: the rule behind each path
    that is covered. watchers: who of the warden watches the box, by name, each with its settings (guest/warden/__init__.py).
    grouped: what its control groups are for beside holding it.
    """

    plan: LaunchPlan
    backend: str
    enforcement: Callable[[], Enforcement]
    trees: Sequence[int] = ()
    notes: tuple[str, ...] = ()
    release: Callable[[], None] = _nothing
    covered: Mapping[str, str] = field(default_factory=dict)
    watchers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    grouped: Grouped = Grouped()  # nothing changes it
