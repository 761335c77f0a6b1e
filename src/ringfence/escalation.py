"""One-time escalation: a run that was refused something is carried out once more, with exactly the right that the denial named.

Somebody agrees first, and is told that the command runs again from the start. The second run has a box of its own, made from the
same config with one entry more, over the same workspace; what the first box has in its private folders is carried over, and what
the second run changed there is carried back. What no entry opens cannot be asked for: what a policy closes by name, the built-in
secrets, protected settings and limits stay as they are, since the second box is held by the same rules as every other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from ringfence import errors
from ringfence.confine.plan import LaunchPlan, Step
from ringfence.for_model import plain
from ringfence.outcome import Denial, Exited, NotStarted, Result, Signaled
from ringfence.permission.acts import KINDS, Act
from ringfence.permission.questions import NOT_AGAIN, TWICE, Question
from ringfence.policy.config import SandboxConfig
from ringfence.policy.patterns import covers
from ringfence.policy.resolve import resolve
from ringfence.process.wait import Waits
from ringfence.values import frozen, replace
from ringfence.world.local import LocalWorld, open_world
from ringfence.world.trees import carry

if TYPE_CHECKING:
    from ringfence.process.command import Command
    from ringfence.world.local import Callback

    Recorded: TypeAlias = Callable[[LocalWorld, SandboxConfig, Command, Waits[Result]], tuple[Waits[Result], Callable[[], None]]]
    """Told of a second box with its config, and of the run in it: the same run, told of, and what tells that the box is gone."""

COPIES = "/.ringfence/copies"
"""Where a box has its own copies of protected settings (confine/protected/plan.py)."""
NOT_CARRIED = ("/.ringfence", "/dev/")
"""What of a box is for ringfence itself, and what programs share only while they run."""


@frozen
class Offer:
    """What may be asked: the denial, and the config that is wider by what it named, which for files is a path."""

    denial: Denial
    config: SandboxConfig
    path: str = ""

    @property
    def grant(self) -> str:
        return self.denial.remedy or ""

    def question(self, shown: str, deadline_seconds: float, box: str | None) -> Question:
        """What somebody is asked before shown is run again."""
        denial = self.denial
        acts = (Act(denial.kind, denial.target),) if denial.kind in KINDS and denial.target else ()
        return Question(
            "escalation",
            shown,
            acts,
            denial.rule,
            self.grant,
            wish=denial.evidence != "observed",
            choices=("once", "no"),
            deadline_seconds=deadline_seconds,
            box=box,
        )

    def again(
        self,
        world: LocalWorld,
        command: Command,
        callbacks: tuple[Callback | None, Callback | None],
        first: Result,
        recorded: Recorded | None = None,
    ) -> Waits[Result]:
        """The second run of command, after the first. Where it cannot be had, the first result, with a note.

        recorded: tells of the second box, and makes of its run one that is told of.
        """
        try:
            wider = yield from widened(world, self)
        except errors.RingfenceError as error:
            said = f"{NOT_AGAIN} with {self.grant}, though that was granted: {plain(error.message)}"
            return replace(first, notes=(*first.notes, said))
        notes: tuple[str, ...] = ()
        over: Callable[[], None] | None = None
        try:
            waits = wider.run(command, callbacks)
            if recorded is not None:
                waits, over = recorded(wider, self.config, command, waits)
            result = yield from waits
            notes = yield from back(world, wider)
        finally:
            yield from wider.close()
            told(world, wider)
            if over is not None:
                over()
        refused = f"the first run ({_how(first)}) was refused {plain(self.denial.target)}"
        said = f"{TWICE}: {refused}; this is the second, with {self.grant}."
        created = _union(first.files_created, result.files_created)
        return replace(result, notes=(said, *result.notes, *notes), files_created=created)


def offer(config: SandboxConfig, world: LocalWorld, result: Result, ceiling: SandboxConfig | None) -> Offer | None:
    """What may be granted for a run that was refused something, so that it is worth another try; None where nothing may.

    Of several denials the first that was observed, then the first that was inferred. A run that was ok, or that a limit or its
    caller ended, is not tried again.
    """
    if result.ok or not isinstance(result.outcome, (Exited, Signaled, NotStarted)) or world.prepared.backend == "process":
        return None
    if ceiling is not None and config.network_remember is not None:
        from ringfence.policy.remembered import under  # few boxes have both

        config = under(ceiling, config)
    for denial in sorted(result.denials, key=lambda each: each.evidence != "observed"):
        found = granted(config, denial)
        if found is not None and _may_be_made(config, found.config, ceiling):
            return found
    return None


def granted(config: SandboxConfig, denial: Denial) -> Offer | None:
    """config with the entry that denial names as its remedy; None for what is no single right. Limits are no rights."""
    if denial.kind not in ("read", "write", "exec", "net", "syscall") or not denial.remedy:
        return None
    from ringfence.policy.yaml_text import parse  # the line is one of a policy file

    try:
        value, _ = parse(denial.remedy, "remedy")
    except errors.ConfigError:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((key, given),) = value.items()
    changes = _changes(config, key, given)
    try:
        path = given[0] if key.startswith("filesystem.") and isinstance(given, list) else ""
        return Offer(denial, replace(config, **changes), str(path)) if changes else None
    except errors.ConfigError:
        return None


def _changes(config: SandboxConfig, key: str, given: object) -> dict[str, Any]:
    if key == "mode" and given == "workspace-write" and config.mode == "read-only":
        return {"mode": given}
    if key.startswith("syscalls.") and given is True:
        return {"syscalls": (*config.syscalls, key.removeprefix("syscalls."))}
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str):
        return {}
    if key == "network.allow":
        return {"network_allow": (*config.network_allow, given[0])}
    if os.path.isabs(given[0]) and any(covers(f"/{each}", given[0]) for each in config.deny if each.startswith("**/")):
        return {}  # a name that is denied at any depth of what a box shares
    if key == "filesystem.read_only" and os.path.isabs(given[0]):
        return {"read_only": (*config.read_only, given[0])}
    if key == "filesystem.writable" and os.path.isabs(given[0]):
        # What was readable is named once: the same folder may not be both.
        read_only = tuple(path for path in config.read_only if os.path.realpath(path) != given[0])
        return {"writable": (*config.writable, given[0]), "read_only": read_only}
    return {}


def _may_be_made(config: SandboxConfig, wider: SandboxConfig, ceiling: SandboxConfig | None) -> bool:
    """Whether a box of the wider config may be had: within the ceiling, and by every check that a box goes through."""
    try:
        if ceiling is not None:
            from ringfence.policy.compose import compose, differing

            compose(ceiling, wider, differing(wider, config))
        from ringfence.policy.unbuilt import refuse

        refuse(wider)
        resolve(wider, home=os.path.expanduser("~"))
    except (errors.RingfenceError, OSError):
        return False
    return True


def widened(world: LocalWorld, found: Offer) -> Waits[LocalWorld]:
    """A box that is wider by what was granted, with what the first one has in its private folders. Raises RingfenceError."""
    limits = replace(found.config.limits, cpu_guaranteed=None, memory_guaranteed_bytes=None)  # the first box has these, and lives
    wider = yield from open_world(replace(found.config, limits=limits))
    try:
        if wider.prepared.backend != world.prepared.backend or not _is_as_named(wider, found):
            raise errors.OutsideError("what was granted is not any more what it was when it was asked about.")
        for folder in _private(world, wider):
            held = yield from carry.take(world.files, folder)
            with held.spool:
                yield from carry.put(wider.files, held, folder)
    except BaseException:
        yield from wider.close()
        raise
    return wider


def _is_as_named(wider: LocalWorld, found: Offer) -> bool:
    """Whether a path that was granted is the very path that was opened: a link may have been put there since."""
    return not found.path or any(found.path == each.path for each in (*wider.policy.read_only, *wider.policy.writable))


def told(world: LocalWorld, wider: LocalWorld) -> None:
    """What was seen in the second box, which has ended, is told of the first one too."""
    world.told += [*wider.told, *wider.untold]
    world.inferred += wider.inferred


def _private(world: LocalWorld, wider: LocalWorld) -> Iterator[str]:
    """The folders that only a box has, and that both have alike."""
    plan, other = world.prepared.plan, wider.prepared.plan
    if world.policy.mode == "danger-full-access":
        return
    alike = {*_private_steps(other)}
    yield from dict.fromkeys(each for each in _private_steps(plan) if each in alike and not each.startswith(NOT_CARRIED))
    copies = [(each.path, each.copy) for each in plan.protected if each.copy]
    if copies and copies == [(each.path, each.copy) for each in other.protected if each.copy]:
        yield COPIES


def _private_steps(plan: LaunchPlan) -> Iterator[str]:
    return (step.target for step in plan.view.steps if isinstance(step, Step) and step.kind == "private")


def back(world: LocalWorld, wider: LocalWorld) -> Waits[tuple[str, ...]]:
    """Carry back what the second run changed in private folders; a note for each that could not be."""
    notes = []
    for folder in _private(world, wider):
        try:
            new = yield from carry.take(wider.files, folder)
            with new.spool:
                old = yield from carry.take(world.files, folder)
                old.spool.close()
                if new.names != old.names:
                    yield from carry.remove(world.files, folder, carry.gone(old.names, new.names))
                    yield from carry.put(world.files, new, folder)
            notes += [f"{folder}: {len(new.refused)} entries of the second run were left out."] if new.refused else []
        except (errors.PathError, errors.SandboxLostError, errors.ProtocolError) as error:
            notes.append(f"What the second run changed in {folder} is not, or not all, in this box: {plain(error.message)}")
    return tuple(notes)


def _how(result: Result) -> str:
    match result.outcome:
        case Exited(code=code):
            return f"exit code {code}"
        case Signaled(signal=number):
            return f"signal {number}"
    return "not started"


def _union(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if one is None or other is None else tuple(sorted({*one, *other}))
