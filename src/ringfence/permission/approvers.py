"""Approvers that need no terminal: a function of the caller's, one that always agrees, one that never does."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ringfence.errors import ArgumentError
from ringfence.permission.questions import DEADLINE_SECONDS, Answer, Question

Given: TypeAlias = "Answer | str | bool"


class CallbackApprover:
    """Asks a function of the caller's, or a coroutine function, which runs under an asyncio loop of its own.

    callback is called with a Question, in a thread of ours, for up to three questions of a box at once. It returns an Answer, one
    of the question's choices, or True (once) or False (no). deadline_seconds: how long it is waited for. Raises TypeError for
    what cannot be called. Not promised: that a function which is still at work at the deadline is ended; its thread is left alone.
    """

    def __init__(
        self, callback: Callable[[Question], Given | Awaitable[Given]], *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        if not callable(callback):
            raise TypeError(f"an approver calls a function with a Question; {callback!r} cannot be called.")
        self.deadline_seconds = checked_deadline(deadline_seconds)
        self._callback = callback

    def ask(self, question: Question) -> Answer:
        """What the callback answers."""
        given = self._callback(question)
        if inspect.isawaitable(given):
            import asyncio  # only coroutine functions need a loop

            given = asyncio.run(_awaited(given))
        if isinstance(given, Answer):
            return given
        if isinstance(given, bool):
            return Answer("once" if given else "no", "the callback said so")
        if given in question.choices or given == "no":
            return Answer(given, "the callback said so")  # type: ignore[arg-type]
        raise TypeError(f"a callback returns an Answer, True, False or one of {', '.join(question.choices)}, not {given!r}")


class AlwaysApprover:
    """Grants everything that it is asked, once: for a place where being asked is only recorded.

    wishes: also what rests on nothing but a program's own words; else that is refused, since a program could ask for anything.
    """

    def __init__(self, *, wishes: bool = False) -> None:
        self.wishes = wishes

    def ask(self, question: Question) -> Answer:
        """once; no for a wish."""
        if question.wish and not self.wishes:
            return Answer("no", "only the program's own words ask for it")
        return Answer("once", "everything is granted here")


class NeverApprover:
    """Refuses everything that it is asked: for a place where nobody is there to answer."""

    def ask(self, question: Question) -> Answer:
        """no."""
        return Answer("no", "nothing is granted here")


async def _awaited(given: Awaitable[Given]) -> Given:
    return await given


def checked_deadline(seconds: object) -> float:
    """seconds, a positive and finite number. Raises ArgumentError."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds <= 0:
        raise ArgumentError(f"deadline_seconds must be a positive number of seconds, not {seconds!r}.")
    return float(seconds)
