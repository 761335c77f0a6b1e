"""Boxes and runs as spans of OpenTelemetry, by its semantic conventions for generative AI: the extra `otel`.

A run is a span `execute_tool`, a child of the span that is current where the call is made, which is the agent's, else of its box's.
A box is a span of its own, `create_box`, for as long as it lives: the conventions have none for that. Commands, variables and
output are in no span, as the conventions leave content out by default; the trace has them.
"""

from __future__ import annotations

import threading
import time

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from ringfence.outcome import CapHit, Exited, NotStarted, Signaled
from ringfence.recorder import BoxEnded, BoxStarted, QuestionAsked, Recorder, RunEnded, RunStarted
from ringfence.values import replace

__all__ = ["Spans"]

TOOLS = {"argv": "run", "command": "execute_command", "code": "execute", "spawn": "spawn"}
"""What a run is called: the method of Sandbox that a model's tool was made of."""


class Spans:
    """A recorder that tells a tracer: `Sandbox(trace=Spans())`. also: a further recorder that is told the same, such as a Trace.

    tracer: None is the one of the global provider. What the further recorder requires is required; a tracer cannot fail.
    """

    def __init__(self, tracer: Tracer | None = None, *, also: Recorder | None = None) -> None:
        self._tracer = trace.get_tracer("ringfence") if tracer is None else tracer
        self._also = also
        self._guard = threading.Lock()
        self._open: dict[int, tuple[Span, int]] = {}  # by our number: the span, and the number of the further recorder
        self._last = 0

    @property
    def required(self) -> bool:
        return self._also is not None and self._also.required

    @property
    def durability(self) -> str:
        """That of the further recorder; a policy that asks for one is compared with it."""
        return getattr(self._also, "durability", "process")

    def box_started(self, made: BoxStarted) -> int:
        theirs = self._also.box_started(made) if self._also else 0
        attributes: dict[str, str] = {"ringfence.tier": made.tier}
        if made.box is not None:
            attributes["ringfence.box"] = made.box
        if not made.variables:  # the hash is made of their values too
            attributes["ringfence.policy_hash"] = made.policy_hash
        began = time.time_ns() - int(made.seconds * 1e9)
        return self._keep(self._tracer.start_span("create_box", attributes=attributes, start_time=began), theirs)

    def run_started(self, begun: RunStarted) -> int:
        box, in_theirs = self._open.get(begun.box_row, (None, 0))
        theirs = self._also.run_started(replace(begun, box_row=in_theirs)) if self._also else 0
        tool = TOOLS.get(begun.kind, begun.kind)
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
        if begun.language:
            attributes["ringfence.language"] = begun.language
        parent, links = contexts.get_current(), []
        if box is not None and not trace.get_current_span().get_span_context().is_valid:
            parent = trace.set_span_in_context(box)
        elif box is not None:
            links = [Link(box.get_span_context())]
        span = self._tracer.start_span(
            f"execute_tool {tool}", context=parent, kind=SpanKind.INTERNAL, attributes=attributes, links=links
        )
        return self._keep(span, theirs)

    def run_ended(self, ended: RunEnded) -> None:
        span, theirs = self._take(ended.begun)
        try:
            if self._also:
                self._also.run_ended(replace(ended, box_row=self._theirs(ended.box_row), begun=theirs))
        finally:
            if span is not None:
                _say(span, ended)
                span.end()

    def asked(self, asked: QuestionAsked) -> None:
        span, theirs = self._open.get(asked.begun or asked.box_row, (None, 0))
        if span is not None:
            span.add_event("ringfence.asked", {"ringfence.question.kind": asked.kind, "ringfence.question.choice": asked.choice})
        if self._also:
            begun = theirs if asked.begun else 0
            self._also.asked(replace(asked, box_row=self._theirs(asked.box_row), begun=begun))

    def box_ended(self, ended: BoxEnded) -> None:
        span, theirs = self._take(ended.box_row)
        if span is not None:
            span.end()
        if self._also:
            self._also.box_ended(replace(ended, box_row=theirs))

    def _keep(self, span: Span, theirs: int) -> int:
        with self._guard:
            self._last += 1
            self._open[self._last] = (span, theirs)
            return self._last

    def _take(self, number: int) -> tuple[Span | None, int]:
        with self._guard:
            return self._open.pop(number, (None, 0))

    def _theirs(self, number: int) -> int:
        return self._open.get(number, (None, 0))[1]


def _say(span: Span, ended: RunEnded) -> None:
    """How a run ended: its error in the words of the conventions, its exit status, what was refused."""
    result = ended.result
    if result is None:
        span.set_attribute("error.type", ended.error)
        span.set_status(Status(StatusCode.ERROR))
        return
    span.set_attribute("ringfence.tier", result.backend)
    if result.denials:
        span.set_attribute("ringfence.denials", len(result.denials))
    match result.outcome:
        case Exited(code=code):
            span.set_attribute("process.exit.code", code)
            failed = f"exit_{code}" if code else ""
        case Signaled(signal=number):
            failed = f"signal_{number}"
        case CapHit(kind=kind):
            failed = f"cap_{kind}"
        case NotStarted():
            failed = "not_started"
        case _:
            failed = "cancelled"
    if failed:
        span.set_attribute("error.type", failed)
        span.set_status(Status(StatusCode.ERROR))
