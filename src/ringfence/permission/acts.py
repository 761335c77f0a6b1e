"""What can be decided, and a decision: values, of which a question, a trace and an explanation are made."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from ringfence.errors import ArgumentError
from ringfence.values import frozen

KINDS = ("exec", "read", "write", "net")
EFFECTS = ("allow", "ask", "deny")
"""From what lets an act happen to what closes it: of several that apply to one act the last in this order holds."""

ADVICE = "advice: the box is the boundary"
"""What is said beside every decision about a command: it is made by its words, and words can be spelled another way."""


@frozen
class Act:
    """One thing that a command would do. kind: exec, read, write or net.

    target: a command as a shell would take it, a path, or HOST:PORT. argv: the words of an exec, when they are known.
    """

    kind: str
    target: str
    argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError(f"{self.kind!r} is not a kind of act: it is one of {', '.join(KINDS)}.")
        if not self.target:
            raise ArgumentError(f"an act of kind {self.kind} needs a target.")

    @classmethod
    def of(cls, argv: Sequence[str]) -> Act:
        """The act of starting argv."""
        words = tuple(argv)
        if not words or not all(isinstance(word, str) for word in words):
            raise ArgumentError(f"a command is a list of words, the first of them the program, not {argv!r}.")
        return cls("exec", shlex.join(words), words)

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"


@frozen
class Decision:
    """allow, ask or deny; the rule that decides, as it was written, or 'default', 'built in' or 'confined'; and why.

    act: the one that the decision is about, of a line the act that is decided most strictly. parts: the decision of each act of
    a line, where there is more than one.
    """

    effect: str
    rule: str
    why: str
    act: Act | None = None
    parts: tuple[Decision, ...] = ()

    @property
    def acts(self) -> tuple[Act, ...]:
        """Every act that was decided, in the order of the line."""
        found = (part.act for part in self.parts) if self.parts else (self.act,)
        return tuple(act for act in found if act is not None)

    @property
    def advice(self) -> str:
        """What is to be said beside it: that a decision about a command is advice; nothing of one about a path or a host."""
        return ADVICE if any(act.kind == "exec" for act in self.acts) else ""

    def __str__(self) -> str:
        return f"{self.effect} by {self.rule}: {self.why}"


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The decision that holds of several, the first of those alike, with all of them as its parts. Raises ValueError of none."""
    found = tuple(decisions)
    worst = max(found, key=lambda each: EFFECTS.index(each.effect))
    return worst if len(found) == 1 else Decision(worst.effect, worst.rule, worst.why, worst.act, found)
