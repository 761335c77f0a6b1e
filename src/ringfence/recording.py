"""What a surface tells a recorder of one box: that it was made, each run, that it ended. A box without a recorder needs none of it.

A run is told as begun while it is under way, where a record is required before it is; a recorder with a `patience`, in seconds, is
told of one that ends within it by its end alone, which has its beginning. Its end is told before the caller has the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import ConfigError, RingfenceError, SandboxLostError, TraceError
from ringfence.outcome import Output, Result
from ringfence.process.command import Command
from ringfence.process.run import Run
from ringfence.process.wait import Readable, Waits
from ringfence.recorder import NOT_RECORDED, BoxEnded, BoxStarted, QuestionAsked, Recorder, RunEnded, RunStarted
from ringfence.values import replace
from ringfence.world.local import LocalWorld

if TYPE_CHECKING:
    from ringfence.permission.questions import Answer, Question
    from ringfence.policy.config import SandboxConfig
    from ringfence.trace import Trace

REQUIRE = "Give Trace(required=True, durability=...) what the policy says, or leave it to the policy."
KEPT_BYTES = 1 << 16
"""What is kept of the head, and of the tail, of a stream that the caller reads itself."""


def recorder_of(config: SandboxConfig, given: Recorder | None) -> tuple[Recorder, Trace | None]:
    """Who is told: what the caller gave, else the trace that the config asks for, which the box then has to close.

    Raises ConfigError where what was given promises less than the config asks for.
    """
    if given is None:
        from ringfence.trace import Trace

        made = Trace(durability=config.trace_durability, required=config.trace == "required")
        return made, made
    if config.trace == "required" and not given.required:
        raise ConfigError("the policy requires that runs are recorded, and what was given as trace does not.", hint=REQUIRE)
    if config.trace != "none" and config.trace_durability == "power" and getattr(given, "durability", "power") != "power":
        raise ConfigError(
            "the policy asks for a trace that survives a loss of power, and the one that was given does not.", hint=REQUIRE
        )
    return given, None


class Recording:
    """One box, and the recorder that is told of it."""

    def __init__(self, recorder: Recorder, world: LocalWorld, config: SandboxConfig, box: str | None, seconds: float) -> None:
        """Tell of the box. Raises TraceError where that is required and cannot be done."""
        self.recorder, self.world, self.enforcement = recorder, world, world.enforcement
        self._failed = ""
        self._open: list[_One] = []  # runs that were told of as begun
        made = BoxStarted(
            box=box,
            tier=world.prepared.backend,
            policy_hash=world.policy.hash,
            config=config,
            variables=dict(world.policy.environment),
            plan=world.prepared.plan,
            enforcement=world.enforcement,
            workdir=world.workdir,
            notes=world.prepared.notes,
            seconds=seconds,
        )
        self.number = self._told(lambda: recorder.box_started(made))

    def _told(self, tell: Callable[[], int | None]) -> int:
        try:
            found = tell()
        except Exception as error:  # a recorder can be anybody's, and what it raises is no reason to leave a run half done
            if not isinstance(error, TraceError):
                error = TraceError(f"the recorder failed with {type(error).__name__}: {error}.", kind="recorder")
            if self.recorder.required:
                raise error from None
            self._failed = error.message
            return 0
        self._failed = ""
        return found or 0

    def run(self, kind: str, command: Command, waits: Waits[Result]) -> Waits[Result]:
        """The same routine, told of. The result says so where it could not be recorded."""
        one = _One(self, kind, command)
        if self.recorder.required:
            one.begin()
        try:
            result = yield from one.begun_under_way(waits)
        except BaseException as error:
            one.failed(error)
            raise
        return one.ended(result)

    def further(
        self, world: LocalWorld, config: SandboxConfig, command: Command, waits: Waits[Result]
    ) -> tuple[Waits[Result], Callable[[], None]]:
        """A second box, for one run again with one right more; see ringfence.escalation."""
        inner = Recording(self.recorder, world, config, None, 0.0)
        kind = next((one.kind for one in self._open if one.command is command), "argv")
        return inner.run(kind, command, waits), inner.close

    def permitting(self, command: Command, waits: Waits[None]) -> Waits[None]:
        """The same routine, which permits a command that is started later; a refusal is told of, since nothing follows it."""
        try:
            yield from waits
        except RingfenceError as error:
            _One(self, "spawn", command).failed(error)
            raise

    def asked(self, question: Question, answer: Answer, seconds: float) -> None:
        """Tell of a question and its answer."""
        (run,) = under_way if len(under_way := self._open[:]) == 1 else (None,)
        if run is not None:
            run.begin()
        told = QuestionAsked(
            box_row=self.number,
            begun=run.number if run is not None else 0,
            kind=question.kind,
            what=question.what,
            rule=question.rule,
            grant=question.grant,
            choice=answer.choice,
            why=answer.why,
            seconds=seconds,
        )
        self._told(lambda: self.recorder.asked(told))

    def close(self) -> None:
        """Tell that the box is gone."""
        ended = BoxEnded(box_row=self.number, denials=self.world.untold)
        self._told(lambda: self.recorder.box_ended(ended))

    # What starts commands whose streams the caller reads itself: process.starting.Starts

    def begin(self, command: Command, *, drained: bool = True, ends: list[int] | None = None) -> Run:
        one = _One(self, "spawn", command)
        if self.recorder.required:
            one.begin()
        try:
            run = self.world.begin(command, drained=drained, ends=ends)
        except BaseException as error:
            one.failed(error)
            raise
        try:
            one.begin()
        except BaseException:
            run.release()  # which ends it
            raise
        run.observer = _Seen(one)
        return run

    def result(self, run: Run, command: Command) -> Result:
        seen, run.observer = run.observer, None
        try:
            result = self.world.result(run, command)
        except BaseException as error:
            if isinstance(seen, _Seen):
                seen.one.failed(error, seen.output())
            raise
        return seen.one.ended(result, seen.output()) if isinstance(seen, _Seen) else result


class _One:
    """One run."""

    def __init__(self, recording: Recording, kind: str, command: Command) -> None:
        self._recording, self._recorder = recording, recording.recorder
        self._begun, self.number, self._failed = False, 0, ""
        self._since = time.monotonic()
        self._lock = threading.Lock()  # a question about a host begins it from a thread of its own
        self.kind, self.command = kind, command
        recording._open.append(self)

    def begin(self) -> None:
        with self._lock:
            if self._begun:
                return
            self._begun = True
            begun = self._said()
            self.number = self._recording._told(lambda: self._recorder.run_started(begun))
            self._failed = self._recording._failed

    def _said(self) -> RunStarted:
        command, recording = self.command, self._recording
        source = command.request.get("code", command.request.get("script", b""))
        assert isinstance(source, bytes)
        language = command.shown[0].removeprefix("<").partition(" ")[0] if self.kind == "code" else ""
        return RunStarted(
            box_row=recording.number,
            kind=self.kind,
            argv=command.shown,
            text=source.decode("utf-8", "surrogateescape"),
            language=language,
            input=command.data,
            cwd=command.cwd,
            variables=command.environment,
            timeout=command.timeout,
        )

    def begun_under_way(self, waits: Waits[Result]) -> Waits[Result]:
        """Drive the routine, and tell of its beginning when it first waits."""
        try:
            wanted = next(waits)
            patience: float = getattr(self._recorder, "patience", 0.0)
            until = time.monotonic() + patience
            while True:
                try:
                    if self._begun or (patience and wanted.until is not None and wanted.until < until):
                        came = yield wanted
                    elif patience and (yield Readable(wanted.descriptor, until)):
                        came = True
                    else:
                        self.begin()
                        came = yield wanted
                except BaseException as error:
                    wanted = waits.throw(error)
                else:
                    wanted = waits.send(came)
        except StopIteration as stopped:
            return stopped.value  # type: ignore[no-any-return]

    def ended(self, result: Result, output: tuple[Output, Output] | None = None) -> Result:
        with self._lock:
            late = not self._begun and getattr(self._recorder, "patience", 0.0) > 0
            self._begun = self._begun or late
        unsaid = self._said() if late else None
        self._over(say=not late)
        held = result.enforcement
        ended = RunEnded(
            box_row=self._recording.number,
            begun=self.number,
            result=result,
            seconds=self._took(),
            output=output,
            enforcement=None if held is self._recording.enforcement else held,
            unsaid=unsaid,
        )
        try:
            self._recording._told(lambda: self._recorder.run_ended(ended))
        except TraceError as error:
            error.result = result  # it ran: whoever requires its record may still want to know how it ended
            raise
        if failed := self._recording._failed or self._failed:
            return replace(result, notes=(*result.notes, f"{NOT_RECORDED} {failed}"))
        return result

    def failed(self, error: BaseException, output: tuple[Output, Output] | None = None) -> None:
        """Tell of a run without a result. What that raises is no news beside the error itself."""
        code = error.code if isinstance(error, RingfenceError) else "callback" if isinstance(error, Exception) else "cancelled"
        message = error.message if isinstance(error, RingfenceError) else ""
        if output is None and isinstance(error, SandboxLostError):
            output = Output(error.stdout), Output(error.stderr)
        try:
            self._over()
            ended = RunEnded(
                box_row=self._recording.number,
                begun=self.number,
                result=None,
                error=code,
                message=message,
                seconds=self._took(),
                output=output,
            )
            self._recording._told(lambda: self._recorder.run_ended(ended))
        except TraceError:
            pass

    def _over(self, *, say: bool = True) -> None:
        try:
            if say:
                self.begin()
        finally:
            self._recording._open.remove(self)

    def _took(self) -> float:
        return time.monotonic() - self._since


class _Seen:
    """What went by on the streams of a command that the caller reads itself."""

    def __init__(self, one: _One) -> None:
        self.one = one
        self._kept = (_Kept(), _Kept())

    def saw(self, stream: int, data: bytes) -> None:
        """stream: 1 or 2."""
        self._kept[stream - 1].add(data)

    def output(self) -> tuple[Output, Output]:
        return self._kept[0].output(), self._kept[1].output()

    def given_up(self) -> None:
        """The caller closed the handle without a result."""
        self.one.failed(KeyboardInterrupt(), self.output())


class _Kept:
    def __init__(self) -> None:
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = KEPT_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room < len(data) else b""
        if len(self.tail) > 2 * KEPT_BYTES:
            del self.tail[:-KEPT_BYTES]

    def output(self) -> Output:
        tail = bytes(self.tail[-KEPT_BYTES:])
        return Output(bytes(self.head), tail, self.total - len(self.head) - len(tail))
