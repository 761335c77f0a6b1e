"""The floor: no confinement at all. Chosen only by name; the control of every test that something is refused.

What holds without a boundary still holds: a made environment, closed descriptors, deadlines, bounded output, and the
end of the whole tree with the box.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable

from ringfence.confine import disk
from ringfence.confine.environment import environment_for, interpreters
from ringfence.confine.groups import caps
from ringfence.confine.groups.places import Groups
from ringfence.confine.limits import asked_for, limits_enforced, processors_of, rlimits
from ringfence.confine.plan import Ahead, Beginning, Ids, LaunchPlan, Prepared, View
from ringfence.errors import HostError, UnenforceableError
from ringfence.outcome import Enforced, Enforcement, Level
from ringfence.policy.resolve import ResolvedPolicy

NAME = "process"
OURS = re.compile(r"ringfence-(\d+)-")


def prepare(policy: ResolvedPolicy, begin: Callable[[int, Ids | None], None], ahead: Ahead) -> Prepared:
    """A plan that runs on the host as the caller, with private home, temp and (without a workspace) work folders."""
    _refuse(policy)
    processors = processors_of(policy)
    groups = Groups([], {})
    folder = ""

    def release() -> None:
        groups.release()
        if processors:
            processors.release()
        if folder:
            remove(folder)

    try:
        folder = _private_folder()
        begin(0, None)
        groups = caps.groups_for(policy, floor=True)
        beginning = Beginning(room=groups.room, shielded=groups.shielded)
        ahead(beginning, (), groups.entries)
        held = limits_enforced(
            policy,
            disk.floor_offer(policy),
            caps.offer(policy, groups, floor=True),
            caps.with_quota(processors.offer(confined=False, quota=groups.of("cpu") is not None), groups, floor=True)
            if processors
            else {},
            observed=disk.observed(policy, floor=True) | caps.observed(policy, groups),
        )
    except BaseException:
        release()
        raise
    runner = os.path.join(os.path.dirname(os.path.dirname(__file__)), "guest", "template.py")
    plan = LaunchPlan(
        flags=0,
        beginning=beginning,
        view=View(),
        environment=environment_for(
            policy, home=f"{folder}/home", temporary=f"{folder}/tmp", path=os.environ.get("PATH", os.defpath), tools={}
        ),
        workdir=policy.workspace.path if policy.workspace else f"{folder}/workspace",
        private=f"{folder}/programs",
        interpreters=interpreters(policy),
        runner=runner,
        preload=policy.preload,
        limits=rlimits(policy, floor=True),
        exact=asked_for(policy),
        processors=processors.chosen if processors else (),
    )
    enforcement = Enforcement(
        environment=Enforced(Level.FULL, "execve", "made from nothing"),
        descriptors=Enforced(Level.FULL, "close_range", "closed before the box is made"),
        **held,
    )
    notes = ("deny closes nothing in tier 'process', which confines nothing.",) if policy.deny else ()
    watched, grouped = caps.watchers(policy, groups) | disk.watchers(policy, folder), caps.grouped(policy, groups)
    return Prepared(plan, NAME, lambda: enforcement, notes=notes, release=release, watchers=watched, grouped=grouped)


def _refuse(policy: ResolvedPolicy) -> None:
    """Raise UnenforceableError for what a policy closes and nothing here would hold."""
    if policy.mode == "read-only":
        raise UnenforceableError("mode read-only cannot be enforced by tier 'process', which confines nothing.")
    if policy.network.ruled:
        from ringfence.policy.unbuilt import is_excused  # few boxes have rules

        if ruled := [key for key in policy.network.ruled if not is_excused(key, policy.best_effort)]:
            raise UnenforceableError(f"{', '.join(ruled)} cannot be enforced by tier 'process', which has the host's network.")


def _private_folder() -> str:
    try:
        _reclaim(tempfile.gettempdir())
        folder = tempfile.mkdtemp(prefix=f"ringfence-{os.getpid()}-")
        for name in ("home", "tmp", "programs", "workspace"):
            os.mkdir(f"{folder}/{name}", 0o700)
    except OSError as error:
        raise HostError(f"no private folder can be made in {tempfile.gettempdir()}: {error}.", errno=error.errno or 0) from None
    return folder


def _reclaim(parent: str) -> None:
    """Remove the folders that callers which were killed left here: their names begin with a process that is no more."""
    for entry in os.scandir(parent):
        owner = OURS.match(entry.name)
        if owner is None or os.path.exists(f"/proc/{owner[1]}"):
            continue
        try:
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                remove(entry.path)
        except FileNotFoundError:
            continue  # another caller removes it at this moment


def remove(folder: str) -> None:
    """Remove a folder whatever modes its content was left with; links are removed, never followed."""

    def open_up(function: object, path: str, problem: object) -> None:
        if not os.path.lexists(path):
            return  # another caller removes it at this moment
        # What lies above the folder is the host's, and is as it was even where the folder itself cannot be removed.
        for closed in (path,) if path == folder else (os.path.dirname(path), path):
            if not os.path.islink(closed) and os.path.isdir(closed):
                os.chmod(closed, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, onerror=open_up)
        elif os.path.lexists(path):
            os.unlink(path)

    shutil.rmtree(folder, onerror=open_up)
