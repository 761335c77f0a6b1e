"""The local Linux boundary that needs no other program: namespaces, a view of its own, no rights, a system call filter."""

from __future__ import annotations

import errno
import marshal
import os
import stat
import sys
import time
from _frozen_importlib_external import MAGIC_NUMBER  # what importlib.util names, without its imports
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from ringfence.confine import disk, processes, seccomp
from ringfence.confine import ids as box_ids
from ringfence.confine.covers import Covers, covers_for
from ringfence.confine.environment import environment_for, interpreters
from ringfence.confine.groups import caps
from ringfence.confine.groups.places import Groups
from ringfence.confine.limits import asked_for, limits_enforced, processors_of, rlimits
from ringfence.confine.owners import note_of
from ringfence.confine.plan import Ahead, Beginning, Ids, LaunchPlan, Prepared, Step, Tree, View
from ringfence.confine.protected.plan import NOTHING_FOUND, Found, Protected, steps_for, with_made
from ringfence.confine.toolchains import Toolchains, discover
from ringfence.confine.view import FULL_ACCESS, HOME, PRIVATE, RUNNER, SYSTEM, beginning_for, view_for
from ringfence.errors import HostError, UnenforceableError, WorkspaceError
from ringfence.guest import kernel
from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.policy.resolve import Folder, ResolvedPolicy
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.confine.processors import Processors
    from ringfence.confine.protected.planted import Taken
    from ringfence.confine.protected.stubs import Held
    from ringfence.confine.ways import Network
    from ringfence.policy.walk import Along

FLAGS = (
    kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
)  # fmt: skip
NAME = "namespaces"
FULL = Enforced(Level.FULL, NAME)

MAX_TREES = 200
"""Descriptors of one packet, which are the mounts of a root caller's box: the kernel passes 253 (SCM_MAX_FD, net/scm.h)."""
TOOLS_SECONDS = 2.0
"""A folder of tools that appears on PATH is in every box made this much later; most programs make boxes in bursts."""

IDMAPS_KEPT = 16
"""Namespaces kept as descriptors; blocks of ids are given out lowest first, so these serve the boxes that come and go."""

_last_tools: list[tuple[object, float, Toolchains]] = []
_idmaps: dict[tuple[int, tuple[int, int]], int] = {}


def prepare(
    policy: ResolvedPolicy,
    make_userns: Callable[[str, str], int],
    begin: Callable[[int, Ids | None], None],
    ahead: Ahead,
) -> Prepared:
    """A plan for this host and its descriptors. make_userns(uid map, gid map) gives the descriptor of a user namespace.

    begin(flags, ids) is called as soon as the ids are known, so that the fork is made while the plan is; ahead with what it can
    build of it meanwhile.

    Raises UnenforceableError for what this boundary cannot hold yet, WorkspaceError where the file system cannot be idmapped.
    """
    root_caller = box_ids.has_blocks()
    owner = policy.workspace.owner if policy.workspace else (0, 0)
    block = box_ids.BLOCKS_OF_THIS_HOST.take() if root_caller else -1

    processors = processors_of(policy)
    held: list[Held | Taken | Processors] = [processors] if processors else []
    groups = Groups([], {})

    def release() -> None:
        groups.release()
        for each in held:
            each.release()
        if root_caller:
            box_ids.BLOCKS_OF_THIS_HOST.give_back(block)

    try:
        if root_caller:
            _refuse_closed_devices(policy)
        ids = box_ids.of_block(block, owner) if root_caller else box_ids.own(os.getuid(), os.getgid())
        begin(FLAGS, ids)
        groups = caps.groups_for(policy, floor=False)
        network = _network(policy)
        view = beginning_for(ids.uid, ids.gid, whole=policy.mode == FULL_ACCESS, resolver=network.own if network else "")
        beginning = Beginning(ids, view, disk.scratch(policy), groups.room, groups.shielded, network)
        clone = partial(_privileged_trees, block=block, owner=owner, make_userns=make_userns)
        ahead(beginning, clone(view.steps) if root_caller else [], groups.entries)
        tools = _tools(policy)
        seen = (*SYSTEM, "/etc", *tools.read_only)
        covers = covers_for(policy, os.path.expanduser("~"), seen, count_owners=root_caller, along=_readers(policy, held))
        found, protected = _protected(policy, covers, held)
        plan = _plan(policy, beginning, tools, covers, found.folders, protected, groups, processors, root_caller=root_caller)
        trees = clone(plan.rest) if root_caller else []
    except BaseException:
        release()
        raise
    notes = (*tools.notes, *covers.notes, *found.notes)
    watched = caps.watchers(policy, groups) | processes.watchers(policy, counted=groups.of("pids") is not None)
    watched |= disk.watchers(policy) | {"syscalls": {"answers": seccomp.answers()}}
    enforced = partial(_enforcement, policy, covers, protected, root_caller, groups, processors)
    grouped = caps.grouped(policy, groups)
    return Prepared(plan, NAME, enforced, trees, notes, release, covers.rules, watchers=watched, grouped=grouped)


def _network(policy: ResolvedPolicy) -> Network | None:
    if not policy.network.open:
        return None
    from ringfence.confine import network  # few boxes have a way out

    return network.network_for(policy.network, network.WAYS)


def _readers(policy: ResolvedPolicy, held: list[Held | Taken | Processors]) -> Mapping[str, Along]:
    """Who looks through the writable folders for repositories, so that one walk serves both; held receives them."""
    if policy.workspace is None and not policy.writable:
        return {}
    from ringfence.confine.protected.planted import Taken  # as below

    taken = Taken(policy)
    held.append(taken)
    return {path: tree for path, tree in taken.trees.items() if not tree.version}  # else it is known what they hold


def _protected(
    policy: ResolvedPolicy, covers: Covers, held: list[Held | Taken | Processors]
) -> tuple[Found, tuple[Protected, ...]]:
    """What is protected in the folders of the host, with what was made for it; held receives what is to be released."""
    if policy.workspace is None and not policy.writable:
        return NOTHING_FOUND, ()
    from ringfence.confine.protected.find import find, nested_in  # a box without a folder of the host needs none of it
    from ringfence.confine.protected.stubs import Held, sweep

    sweep()
    try:
        nested, unseen = nested_in(policy)
        found = find(policy, os.path.expanduser("~"), covers.rules, nested)
    except OSError as error:
        raise WorkspaceError(f"the workspace changed while it was looked at: {error}.", hint="Try again.") from None
    made = Held()
    held.append(made)
    made.take(found.wanted)
    return found._replace(notes=(*found.notes, *unseen)), with_made(found.protected, made.made)


def _refuse_closed_devices(policy: ResolvedPolicy) -> None:
    """A root caller's box is nobody on the host, and a device's mode is judged by that: raise where it would never open."""
    for device in policy.devices:
        mode = os.stat(device.path).st_mode
        if not mode & (stat.S_IROTH | stat.S_IWOTH):
            raise UnenforceableError(
                f"devices names {device.path}, which a box of a root caller cannot open: its mode {stat.S_IMODE(mode):04o} is for "
                "its owner and group.",
                hint="Run ringfence as a user who may open it, or open its mode to others.",
            )


def _plan(
    policy: ResolvedPolicy,
    beginning: Beginning,
    tools: Toolchains,
    covers: Covers,
    folders: tuple[Folder, ...],
    protected: tuple[Protected, ...],
    groups: Groups,
    processors: Processors | None,
    *,
    root_caller: bool,
) -> LaunchPlan:
    mounted, covering = view_for(
        policy,
        tools.read_only,
        tools.links,
        tools.covered,
        root_caller=root_caller,
        home_files=tools.home_files,
        secrets=covers.steps,
        resolver=beginning.network.own if beginning.network else "",
        folders=folders,
    )
    home = os.path.expanduser("~") if policy.mode == FULL_ACCESS else HOME
    pinned = processors is not None and groups.of("cpu") is None
    counted = View.of(processors.steps() if processors else ())
    return LaunchPlan(
        flags=FLAGS,
        beginning=beginning,
        view=beginning.view + mounted + View.of(steps_for(protected)) + covering + counted,
        environment=environment_for(
            policy,
            home=home,
            temporary="/tmp",
            path=":".join(tools.path),
            tools=tools.environment,
            proxy=beginning.network.proxy if beginning.network and policy.network.announce else "",
        ),
        workdir=policy.workdir,
        private=PRIVATE,
        interpreters=interpreters(policy),
        runner=RUNNER,
        compiled_for=sys.executable,
        runners=_runners(),
        preload=policy.preload,
        limits=rlimits(policy) | ({} if groups.of("pids") else processes.rlimits(policy)),
        exact=asked_for(policy),
        filter=seccomp.build_filter(
            debug="debug" in policy.syscalls, nested="nested" in policy.syscalls, observed=True, pinned=pinned
        ),
        added=(policy.limits.disk_bytes or 0, policy.limits.inodes or 0),
        processors=processors.chosen if processors else (),
        protected=protected,
        rules=_filter_rules(policy.syscalls, pinned),
    )


@cache
def _filter_rules(opened: tuple[str, ...], pinned: bool) -> tuple[str, ...]:
    return tuple(seccomp.describe(debug="debug" in opened, nested="nested" in opened, pinned=pinned))


@cache
def _runners() -> dict[str, bytes]:
    """The template's source, and the same compiled for the interpreter that runs this: compiling is a tenth of its start."""
    with open(os.path.join(os.path.dirname(kernel.__file__), "template.py"), "rb") as file:
        source = file.read()
    code = marshal.dumps(compile(source, RUNNER, "exec", dont_inherit=True))
    # The header of a .pyc whose source is never looked at: PEP 552, flags 0b01.
    return {RUNNER: source, RUNNER + "c": MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code}


def _tools(policy: ResolvedPolicy) -> Toolchains:
    """What the caller's PATH needs; looked at again when the answer is older than TOOLS_SECONDS or the question differs."""
    writable = [folder.path for folder in policy.writable]
    if policy.workspace:
        writable.append(policy.workspace.path)
    question = (policy.python, tuple(writable), tuple(os.environ.items()))
    now = time.monotonic()
    if _last_tools and _last_tools[-1][0] == question and now - _last_tools[-1][1] < TOOLS_SECONDS:
        return _last_tools[-1][2]
    tools = discover(
        path=os.environ.get("PATH", os.defpath),
        home=os.path.expanduser("~"),
        interpreter=policy.python or sys.executable,
        writable=writable,
        base_prefix="" if policy.python else sys.base_prefix,
        environment=os.environ,
    )
    _last_tools[:] = [(question, now, tools)]
    return tools


def _privileged_trees(
    steps: Sequence[Tree | Step], *, block: int, owner: tuple[int, int], make_userns: Callable[[str, str], int]
) -> list[int]:
    """Clone every source here, with the caller's rights: the box's own id could not open them."""
    count = sum(isinstance(step, Tree) for step in steps)
    if count > MAX_TREES:
        raise HostError(f"a box of a root caller can have {MAX_TREES} mounts, not {count}.", hint="Name fewer folders.")
    trees: list[int] = []
    try:
        for step in steps:
            if isinstance(step, Tree):
                trees.append(_privileged_tree(step, block, owner, make_userns))
    except BaseException:
        for tree in trees:
            os.close(tree)
        raise
    return trees


def _privileged_tree(step: Tree, block: int, owner: tuple[int, int], make_userns: Callable[[str, str], int]) -> int:
    try:
        path = kernel.open_path(os.fsencode(step.source), follow=False)
    except OSError as error:
        raise HostError(f"{step.source} cannot be opened for a box: {error.strerror}.", errno=error.errno or 0) from None
    try:
        found = os.fstat(path)
        if step.identity not in ((0, 0), (found.st_dev, found.st_ino)):
            raise WorkspaceError(f"{step.source} was replaced while the box was made.", hint="Try again.")
        tree = kernel.clone_tree(path, recursive=step.recursive)
    except OSError as error:
        raise HostError(f"{step.source} cannot be cloned for a box: {error}.", errno=error.errno or 0) from None
    finally:
        os.close(path)
    try:
        if step.idmapped:
            kernel.set_mount_attributes(
                tree, step.attributes | kernel.MOUNT_ATTR_IDMAP, recursive=False, userns=_idmap(block, owner, make_userns)
            )
        else:
            kernel.set_mount_attributes(tree, step.attributes, recursive=step.recursive)
    except OSError as error:
        os.close(tree)
        if step.optional:
            return _privileged_tree(replace(step, idmapped=False, optional=False), block, owner, make_userns)
        if step.idmapped and error.errno in (errno.EINVAL, errno.EPERM):
            raise WorkspaceError(
                f"{step.source} lies on a file system that cannot be idmapped (overlay, network and pseudo file systems).",
                hint="Use a workspace on ext4, xfs, btrfs or tmpfs, or run as its owner instead of root.",
            ) from None
        raise HostError(f"{step.source} cannot be mounted: {error.strerror}.", errno=error.errno or 0) from None
    return tree


def _idmap(block: int, owner: tuple[int, int], make_userns: Callable[[str, str], int]) -> int:
    """The namespace that maps this block's ids to the disk's; kept, since making one costs a fork."""
    key = (block, owner)
    if key not in _idmaps:
        while len(_idmaps) >= IDMAPS_KEPT:
            os.close(_idmaps.pop(next(iter(_idmaps))))
        _idmaps[key] = make_userns(box_ids.disk_map(block, owner[0]), box_ids.disk_map(block, owner[1]))
    return _idmaps[key]


def _enforcement(
    policy: ResolvedPolicy,
    covers: Covers,
    protected: tuple[Protected, ...],
    root_caller: bool,
    groups: Groups,
    processors: Processors | None,
) -> Enforcement:
    partly = Enforced(
        Level.PARTIAL, NAME, "supplementary groups cannot be dropped by an ordinary user; nothing only they may read is mounted"
    )
    others = note_of(policy.workspace, covers.tree) if policy.workspace and root_caller else ""
    return Enforcement(
        filesystem=Enforced(Level.FULL, NAME, "all of the host's files, as asked for") if policy.mode == FULL_ACCESS else FULL,
        secrets=Enforced(Level.FULL, NAME, covers.said),
        protected=_enforced(protected, policy.mode),
        network=_reach(policy),
        processes=FULL,
        syscalls=Enforced(Level.FULL, "seccomp", f"opened by name: {', '.join(policy.syscalls)}" if policy.syscalls else ""),
        ids=Enforced(Level.FULL, NAME, others) if root_caller else partly,
        environment=Enforced(Level.FULL, "execve", "made from nothing"),
        descriptors=Enforced(Level.FULL, "close_range", "closed before the box is made"),
        **limits_enforced(
            policy,
            caps.offer(policy, groups, floor=False),
            *(() if groups.of("pids") else (processes.offer(policy),)),
            caps.with_quota(processors.offer(confined=True, quota=groups.of("cpu") is not None), groups, floor=False)
            if processors
            else {},
            disk.offer(policy),
            observed=disk.observed(policy) | caps.observed(policy, groups),
        ),
    )


def _reach(policy: ResolvedPolicy) -> Enforced:
    if not policy.network.open:
        return Enforced(Level.FULL, NAME, "no interface but loopback")
    from ringfence.confine import network  # as above

    return network.enforced(network.WAYS[0])


def _enforced(protected: tuple[Protected, ...], mode: str) -> Enforced:
    """What holds the settings that something outside would run; see SECURITY.md for what no mount can."""
    if not protected and mode != FULL_ACCESS:
        return Enforced(Level.FULL, NAME, "no folder of the host is writable")
    counts = {how: sum(each.how == how for each in protected) for how in ("private", "read-only", "stub", "watch")}
    note = f"{counts['private']} private, {counts['read-only'] + counts['stub']} read-only"
    where = "in the shared folders alone, while all of the host can be written; " if mode == FULL_ACCESS else ""
    return Enforced(Level.PARTIAL, NAME, f"{where}{note}; {counts['watch']} names that are not there are watched for")
