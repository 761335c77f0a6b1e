"""A box of this host: made by a local confinement, driven by whoever waits. Every method that waits is a Waits routine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ringfence import errors
from ringfence.confine import host, namespaces
from ringfence.confine.limits import asks_of_host
from ringfence.confine.limits import notes as cap_notes
from ringfence.confine.plan import Ahead, Beginning, Prepared
from ringfence.outcome import Change, Denial, Enforced, Enforcement, Level, NotStarted, Outcome, Result
from ringfence.policy.config import BUILT_TIERS, SandboxConfig
from ringfence.policy.resolve import ResolvedPolicy, resolve
from ringfence.process import box as boxes
from ringfence.process import classify
from ringfence.process.command import Command, checked_text
from ringfence.process.evidence import Counter
from ringfence.process.run import Run
from ringfence.process.space import Space
from ringfence.process.wait import Interrupted, Waits
from ringfence.values import replace

if TYPE_CHECKING:
    from ringfence.confine.protected.watch import Watch
    from ringfence.denials.inferred import Inference
    from ringfence.policy.network import HostRule
    from ringfence.world.egress import Egress
    from ringfence.world.files import FileWork
    from ringfence.world.published import Published
    from ringfence.world.register import Share

SPENT = "so many were refused in this box that further ones are refused, but not recorded"
Callback = Callable[[bytes], None]
T = TypeVar("T")

MAX_INFERRED = 1000
"""Of the life of a box."""


class LocalWorld:
    """One live box and its policy."""

    def __init__(
        self,
        policy: ResolvedPolicy,
        prepared: Prepared,
        box: boxes.Box,
        enforcement: Enforcement,
        watch: Watch | None,
        egress: Egress | None,
    ) -> None:
        self.policy, self.prepared, self.box, self.enforcement, self.watch = policy, prepared, box, enforcement, watch
        self.closed = False
        self.egress = egress
        self.published: Published | None = None
        self.space = Space(box.scratch, policy.limits, prepared.plan.beginning.scratch[0]) if box.scratch >= 0 else None
        self.share: Share | None = None  # of the host, where something was guaranteed
        if watch:
            watch.running = lambda: any(run.under_way for run in self._runs)
        self.told: list[Denial] = watch.told if watch else []  # everything observed, in order
        self.changed: tuple[Change, ...] = ()  # as it was last asked for
        self._runs: list[Run] = []
        self.untold: tuple[Denial, ...] = ()  # what the last look found, after the last result
        self.inferred: list[Denial] = []  # what all results have told of their own
        self._inference: Inference | None = None

    @property
    def workdir(self) -> str:
        return self.prepared.plan.workdir

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders that a command may be started in."""
        named = (*self.policy.read_only, *self.policy.writable)
        environment = self.prepared.plan.environment
        whole = ("/",) if self.policy.mode == "danger-full-access" else ()
        return (self.workdir, *(folder.path for folder in named), environment["HOME"], *whole)

    # Commands

    def run(self, command: Command, callbacks: tuple[Callback | None, Callback | None] = (None, None)) -> Waits[Result]:
        """Run one command to its end. Raises SandboxLostError when the box dies under it."""
        run = self.begin(command)
        run.on_chunk = callbacks
        try:
            yield from run.finish()
            return self.result(run, command)
        except Interrupted:
            yield from run.abort()
            raise
        except errors.RingfenceError:
            raise
        except BaseException:  # a callback raised: nothing may go on running for a call that has failed
            yield from run.abort()
            raise
        finally:
            run.release()

    def begin(self, command: Command, *, drained: bool = True, ends: list[int] | None = None) -> Run:
        """Start one command; ends receives the outside ends of its pipes where they are not drained here."""
        self.must_be_open()
        limits = self.policy.limits
        bounds = [bound for bound in (command.timeout, limits.wall_seconds) if bound is not None]
        run = Run(self.box, limits, min(bounds, default=None))
        request = {**command.request}
        if command.cwd is not None:
            request["cwd"] = self.folder_for(command.cwd)
        if command.environment:
            request["env"] = dict(command.environment)
        run.mark = self.before_run()
        if self.egress:
            self._told_between_runs(self.egress, idle=not self.box.under_way)
        pipes = run.start(request, command.data, drained=drained)
        if self.watch:
            self._runs = [run, *(each for each in self._runs if each.under_way)]
        if ends is not None:
            ends.extend(pipes)
        return run

    def result(self, run: Run, command: Command) -> Result:
        outcome = classify.of_breach(run.outcome(), run.caps, self.policy.limits.kills)
        output, error_output = run.output()
        caps = classify.denials(run.caps, outcome)
        if self.space:
            outcome, full = self.space.after_run(outcome, {denial.target for denial in caps})
            caps += full
        ending = (cap.kind for cap in run.caps if cap.kind in self.policy.limits.kills)
        for kind in {*(self.space.new if self.space else ()), *ending}:
            self.box.known(kind)
        caps += self._refused_calls(run)
        self.told += caps
        watched, notes, unprotected = self.watch.after_run(run.mark, idle=self._idle()) if self.watch else ((), (), "")
        reached = self._refused_hosts(run)
        denials = (*caps, *reached, *watched)
        said = tuple(part for part in (error_output.head, error_output.tail, run.said) if part)
        if said or isinstance(outcome, NotStarted):  # most commands complain of nothing, and nothing is looked at
            denials += self._inferred(outcome, said, command, denials)
        if dropped := self.box.evidence.take_dropped():
            notes += (f"{dropped} records of caps and of refused calls found no room: what is told of them is not all.",)
        if lost := self.box.evidence.lost:
            self.enforcement = self.enforcement.without_groups(lost)
        enforcement = self.enforcement.without(unprotected) if unprotected else self.enforcement
        notes += self.egress.take_notes() if self.egress else ()
        return Result(
            command.shown, outcome, output, error_output, run.usage(), enforcement,
            self.prepared.backend, self.policy.hash, run.created(), denials, (*self.prepared.notes, *notes),
        )  # fmt: skip

    def _inferred(
        self, outcome: Outcome, said: tuple[bytes, ...], command: Command, observed: tuple[Denial, ...]
    ) -> tuple[Denial, ...]:
        """What the command said it was refused, where the policy closes that and nothing else has told of it."""
        from ringfence.denials import may_tell, text_of

        text = text_of(said)
        if not may_tell(text) and not isinstance(outcome, NotStarted):
            return ()
        from ringfence.denials.inferred import Inference, unknown  # what it imports is more than most commands cost

        if self._inference is None:
            self._inference = Inference(self.policy, self.prepared.plan, self.prepared.backend, self.prepared.covered)
        told = self._inference.of_run(text, command.text, self.folder_for(command.cwd), outcome)
        told = unknown(told, observed)
        if self.egress:
            from ringfence.denials import network  # few boxes have a way out

            told = network.unknown(told, observed)
        self.inferred += told[: max(0, MAX_INFERRED - len(self.inferred))]
        return told

    def _refused_hosts(self, run: Run) -> tuple[Denial, ...]:
        if self.egress is None:
            return ()
        refused = self.egress.after_run(run.pids, alone=run.alone)
        self.told += refused
        return refused

    def _refused_calls(self, run: Run) -> tuple[Denial, ...]:
        """What the filter refused in a run; what it refused before to what earlier runs had left is told of the box."""
        evidence = self.box.evidence
        if evidence.unobserved_since and self.box.observed:
            self.box.observed = False
            self.enforcement = self.enforcement.unobserved(SPENT)
            self.prepared = replace(self.prepared, notes=(*self.prepared.notes, f"System calls: {SPENT}"))
        if not evidence.calls:
            return ()
        from ringfence.confine.seccomp.told import Told, denials  # few runs are refused any

        own, others = (
            denials(Told(call.number, call.first, call.second, call.count, whose) for call, whose in calls)
            for calls in run.refused_calls()
        )
        self.told += others
        return own

    def all_told(self) -> tuple[Denial, ...]:
        """Everything that was observed until now; what runs under way were refused is told with their results."""
        evidence = self.box.evidence
        evidence.read()
        if evidence.caps and not self.box.under_way:
            self.told += classify.denials(evidence.caps_of_none(), None)
        if evidence.calls and not self.box.under_way:
            from ringfence.confine.seccomp.told import Told, denials

            calls = evidence.calls_of_none(time.monotonic_ns())
            self.told += denials(Told(call.number, call.first, call.second, call.count, whose) for call, whose in calls)
        if self.egress and not self.closed and not self.box.under_way:
            self._told_between_runs(self.egress, idle=True)
        return (*self.told, *self.inferred)

    def _told_between_runs(self, egress: Egress, *, idle: bool) -> None:
        """What no run is told of that it was refused hosts: as for a run, each once and no more than can be read."""
        from ringfence.denials.network import once  # few boxes have a way out

        self.told += once(egress.before_run(idle=idle))

    def change_hosts(self, allow: Sequence[HostRule], deny: Sequence[HostRule]) -> None:
        """Add rules for hosts, of which deny wins."""
        self.must_be_open()
        if self.egress is None:
            raise errors.ArgumentError(
                "the box has no way out, and cannot get one while it lives.",
                hint="Make it with network_allow, allow_network or on_unknown_domain='ask'.",
            )
        from ringfence.confine.network import changed  # few boxes have a way out

        before = self.egress.policy
        policy = replace(before, allow=(*before.allow, *allow), deny=(*before.deny, *deny))
        self.egress.change(policy, changed(policy, self.egress.made.way))
        self.policy = replace(self.policy, network=policy)

    def before_run(self) -> int:
        """Whatever is about to run: what protects the workspace is in place, or ProtectionLostError is raised. Returns a mark."""
        return self.watch.before_run() if self.watch else 0

    def planted(self) -> tuple[Denial, ...]:
        if self.watch is None:
            return ()
        return tuple(self.watch.planted.reported) if self.closed else self.watch.look(idle=self._idle())

    def changes(self) -> Waits[tuple[Change, ...]]:
        """What the box has changed in its private copies until now."""
        self.must_be_open()
        private = [each for each in self.prepared.plan.protected if each.copy]
        if self.watch is None or not private:
            return ()
        from ringfence.confine.protected.changes import compare  # read at the end of a box, by those who ask
        from ringfence.confine.protected.plan import COPIES
        from ringfence.world.copies import read_copies

        copies = yield from read_copies(self.files, COPIES)
        self.changed = compare(private, copies.files, copies.links, self.watch.content_before)
        return self.changed

    def _idle(self) -> bool:
        """Whether no run of the box is under way. What a run left behind is not one."""
        self._runs = [run for run in self._runs if run.under_way]
        return not self._runs

    def must_be_open(self) -> None:
        if self.closed:
            raise errors.SandboxClosedError("the box is closed.")

    @property
    def files(self) -> FileWork:
        """Work on the files of the box."""
        from ringfence.world.files import FileWork  # a command alone needs none of it

        return FileWork(self)

    # Paths

    def folder_for(self, cwd: str | None) -> str:
        """Where a command starts: inside the workspace or another folder of the box. Never widens anything."""
        if cwd is None:
            return self.workdir
        path = os.path.normpath(os.path.join(self.workdir, checked_text(os.fspath(cwd), "cwd")))
        if not any(_inside(path, root) for root in self.roots):
            raise errors.OutsideError(
                f"the working directory {os.fspath(cwd)!r} lies outside the box's folders.",
                hint="Start in the workspace, a folder that the config names, or the home of the box.",
            )
        return path

    def resolve_path(self, path: str | os.PathLike[str], *, write: bool = False, entry: bool = False) -> str:
        """The absolute path of a file of the box; with entry its last name is meant itself, whatever it leads to.

        Raises OutsideError where it may not be read, or with write not written.
        """
        given = checked_text(os.fspath(path), "path")
        plain = os.path.normpath(os.path.join(self.workdir, given))
        candidates = [plain]
        if self._is_shared(plain):
            above, name = os.path.split(plain)
            candidates.append(os.path.join(_followed(above), name) if entry else _followed(plain))
        may_write = self.reach(plain)
        for candidate in candidates:
            root = max((root for root in may_write if _inside(candidate, root)), key=len, default=None)
            if root is None or (write and not may_write[root]):
                verb = "written" if write else "read"
                raise errors.OutsideError(f"{given!r} lies outside what may be {verb} in the box.")
            self._must_not_be_covered(candidate, given)
        return plain

    def _must_not_be_covered(self, path: str, given: str) -> None:
        while path != "/":
            if rule := self.prepared.covered.get(path):
                raise errors.FileRefusedError(
                    f"{given!r} is covered in this box, since it must not be read ({rule}).",
                    errno=13,  # EACCES
                    hint="Take it out of deny, where the config names it; the built-in list cannot be shortened.",
                )
            path = os.path.dirname(path)

    def reach(self, plain: str) -> dict[str, bool]:
        """Where a path may lead, and whether it may be written there."""
        environment = self.prepared.plan.environment
        # From the host's workspace no private folder can be reached: outside, its name leads to a folder of the host.
        if self.policy.mode == "danger-full-access":
            return {"/": True, **{folder.path: False for folder in self.policy.read_only}}
        may_write = {} if self._is_shared(plain) else {environment["HOME"]: True, environment["TMPDIR"]: True}
        may_write |= {folder.path: False for folder in self.policy.read_only}
        may_write |= {folder.path: True for folder in self.policy.writable}
        return may_write | {self.workdir: self.policy.mode != "read-only"}

    def _is_shared(self, plain: str) -> bool:
        """Whether a path is in a workspace of the host: its links are followed outside too, where the path may be opened."""
        whole = self.policy.mode == "danger-full-access"
        return whole or (self.policy.workspace is not None and _inside(plain, self.workdir))

    def close(self) -> Waits[None]:
        """End everything in the box and give back what it had. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        if self.watch:
            self.watch.ending()
        if self.egress:
            self._told_between_runs(self.egress, idle=not self.box.under_way)
            self.egress.close()
        if self.published:
            self.published.stop()
        try:
            yield from self.box.close()
        finally:
            if self.published:
                self.published.join()
            self.prepared.release()
            if self.share:
                self.share.release()
            self.untold = self.watch.end() if self.watch else ()


def _followed(path: str) -> str:
    """Where the links of path lead on the host; its root where they cannot be followed there, as /proc/1/root cannot."""
    try:
        return os.path.realpath(path)
    except OSError:
        return "/"


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def open_world(config: SandboxConfig) -> Waits[LocalWorld]:
    """Make the box that config asks for. Raises TierUnavailableError, ConfigError or WorkspaceError; then nothing is left."""
    return (yield from _by_tier(config, _open_tier))


def rehearse(config: SandboxConfig) -> Waits[tuple[ResolvedPolicy, Prepared, Enforcement]]:
    """What open_world would make, by the same way: the namespaces are made, the plan is not sent, and all is given back.

    Raises what open_world raises, but for a view that the kernel refuses to build.
    """
    return (yield from _by_tier(config, _rehearse_tier))


def _open_tier(tier: str, policy: ResolvedPolicy, notes: tuple[str, ...]) -> Waits[LocalWorld]:
    if not asks_of_host(policy.limits):
        return (yield from _make(tier, policy, notes))
    from ringfence.confine import capacity  # few boxes ask for any of it

    guarantee, more = capacity.guaranteed(policy)
    share = None
    if guarantee:
        from ringfence.world.admission import admitted

        try:
            share, waited = yield from admitted(*guarantee, policy.admission_seconds)
            more += (waited,) if waited else ()
        except errors.AdmissionError as error:
            if not capacity.excused(policy):
                raise
            more += (f"Nothing is guaranteed, as best_effort allows: {error.message}",)
            guarantee = None
    try:
        world = yield from _make(tier, policy, (*notes, *more))
    except BaseException:
        if share:
            share.release()
        raise
    if share:
        share.is_of(world.box.pid)
    world.share, world.enforcement = share, replace(world.enforcement, guaranteed=capacity.enforced(policy, guarantee))
    return world


def _by_tier(config: SandboxConfig, make: Callable[[str, ResolvedPolicy, tuple[str, ...]], Waits[T]]) -> Waits[T]:
    """What make returns for the tier that config asks for, or for the floor where the config allows it."""
    notes = _refuse(config)
    policy = resolve(config, home=os.path.expanduser("~"))
    tier = "process" if config.isolation == "host" else config.tier
    if tier == "auto" and config.minimum == "process":
        try:
            return (yield from make("namespaces", policy, notes))
        except errors.TierUnavailableError as error:
            notes += (f"The floor, tier 'process', confines nothing; it was used because {error.message}",)
            tier = "process"
    return (yield from make(tier, policy, notes))


def _refuse(config: SandboxConfig) -> tuple[str, ...]:
    """Raise for what this version cannot enforce; returns notes about what it cannot and best_effort excuses."""
    if config.tier not in BUILT_TIERS:
        raise errors.TierUnavailableError(
            f"tier {config.tier!r} is known but not built in this version.",
            hint=f"Built are {', '.join(BUILT_TIERS)}; nothing runs with less than what was asked for.",
        )
    if not config.asks_for_more:
        return ()
    from ringfence.policy.unbuilt import refuse  # only where there may be something to refuse: a cold start does without

    return refuse(config)


def _prepared(tier: str, policy: ResolvedPolicy, making: boxes.Making, notes: tuple[str, ...], ahead: Ahead) -> Prepared:
    try:
        if tier == "process":
            from ringfence.confine import process as floor  # what it imports is a tenth of a cold start without it

            prepared = floor.prepare(policy, making.begin, ahead)
        else:
            prepared = namespaces.prepare(policy, boxes.make_userns, making.begin, ahead)
    except BaseException as error:
        making.abandon()
        if isinstance(error, OSError) and not isinstance(error, errors.RingfenceError):
            raise errors.HostError(f"no box can be made: {error}.", errno=error.errno or 0) from None
        raise
    return replace(prepared, notes=(*notes, *policy.notes, *prepared.notes))


def _make(tier: str, policy: ResolvedPolicy, notes: tuple[str, ...]) -> Waits[LocalWorld]:
    making = boxes.Making(lifetime=policy.limits.lifetime_seconds, idle=policy.limits.idle_seconds, network=policy.network.open)
    watch: Watch | None = None
    egress: Egress | None = None
    since = time.monotonic_ns()
    prepared = _prepared(tier, policy, making, notes, making.ahead)
    try:
        making.send(prepared.plan, prepared.trees, prepared.grouped.left)
        enforcement = prepared.enforcement()
        prepared = replace(prepared, notes=(*prepared.notes, *cap_notes(policy, enforcement)))
        watch = _watch_for(policy, prepared, making, since)
        box = yield from making.complete(
            host.why_no_namespaces, prepared.watchers, prepared.grouped.given, prepared.plan.beginning.network
        )
        for counted in prepared.grouped.counted:
            box.evidence.count(Counter(*counted))
        if "syscalls" in prepared.watchers and not box.observed:
            enforcement = enforcement.unobserved("refusals are not observed here")
        if box.network and (network := prepared.plan.beginning.network):
            from ringfence.confine.network import enforced  # few boxes have a way out
            from ringfence.world.egress import Egress

            enforcement = replace(enforcement, network=enforced(box.network.way))
            egress = Egress.begin(network, box.network, box.pid)
        if watch:
            watch.begin(box.pid)
    except BaseException:
        making.abandon()
        prepared.release()
        if watch:
            watch.close()
        if egress:
            egress.close()
        raise
    world = LocalWorld(policy, prepared, box, enforcement, watch, egress)
    if policy.network.publish and tier != "process":
        from ringfence.world.published import Published  # few boxes publish anything

        try:
            world.published = Published(world)
        except BaseException:
            yield from world.close()
            raise
    return world


def _rehearse_tier(
    tier: str, policy: ResolvedPolicy, notes: tuple[str, ...]
) -> Waits[tuple[ResolvedPolicy, Prepared, Enforcement]]:
    guaranteed = Enforced(Level.NONE)
    if asks_of_host(policy.limits):
        from ringfence.confine import capacity  # as above

        guarantee, more = capacity.guaranteed(policy)
        guaranteed, notes = capacity.enforced(policy, guarantee), (*notes, *more)
    making = boxes.Making()
    prepared = _prepared(tier, policy, making, notes, _not_sent)
    try:
        yield from making.rehearse(host.why_no_namespaces)
        enforcement = replace(prepared.enforcement(), guaranteed=guaranteed)
        return policy, replace(prepared, notes=(*prepared.notes, *cap_notes(policy, enforcement))), enforcement
    finally:
        making.abandon()
        for tree in prepared.trees:
            os.close(tree)
        prepared.release()


def _not_sent(beginning: Beginning, trees: Sequence[int], groups: Callable[[], Sequence[int]]) -> None:
    """What becomes of the beginning of a box that is not made."""
    for tree in trees:
        os.close(tree)


def _watch_for(policy: ResolvedPolicy, prepared: Prepared, making: boxes.Making, since: int) -> Watch | None:
    if not (policy.workspace or policy.writable or policy.read_only):
        return None
    from ringfence.confine.protected.watch import Watch  # a box without a folder of the host needs none of it

    return Watch(policy, prepared, making.remount, since)
