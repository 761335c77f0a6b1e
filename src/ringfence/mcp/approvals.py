"""Approvals by the client: what a box asks is put to whoever sits at the client, by an elicitation of the call that asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import types

from ringfence import Answer, Question
from ringfence.for_model import plain

MOST_SHOWN = 4000
"""Characters of one part of a question; what is longer cannot be shown whole, and is refused."""

Elicit = Callable[[str, dict[str, Any]], Awaitable[types.ElicitResult | None]]


class ClientApprover:
    """Asks by elicit, which runs in the loop of the server; None of it is a client that cannot be asked, which is a no.

    What the client answers is an answer only where it is one of the choices that were offered. Not promised: that it was a person.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, elicit: Elicit) -> None:
        self._loop, self._elicit = loop, elicit
        self._guard = threading.Lock()
        self._open: dict[int, Any] = {}

    def ask(self, question: Question) -> Answer:
        """The client's answer. Called in a thread, never in the loop."""
        shown = message(question)
        if shown is None:
            return Answer("no", "it is too long to be shown whole to the client")
        asked = asyncio.run_coroutine_threadsafe(self._asked(shown, question), self._loop)
        with self._guard:
            self._open[id(question)] = asked
        try:
            return asked.result(question.deadline_seconds)
        finally:
            asked.cancel()
            with self._guard:
                self._open.pop(id(question), None)

    def withdraw(self, question: Question) -> None:
        """Nobody waits for the answer any more."""
        with self._guard:
            asked = self._open.get(id(question))
        if asked is not None:
            asked.cancel()

    async def _asked(self, shown: str, question: Question) -> Answer:
        found = await self._elicit(shown, _form(question))
        if found is None:
            return Answer("no", "the client cannot be asked")
        if found.action != "accept":
            return Answer("no", f"the client's answer was {found.action}")
        choice = (found.content or {}).get("answer")
        if choice in question.choices:
            return Answer(choice, "the client's answer")
        return Answer("no", "the client's answer was none of those that were offered")


def message(question: Question) -> str | None:
    """What the client shows: each part escaped, so that nothing of it ends a line; None where a part is too long for that."""
    titles = {
        "command": "ringfence: may this be started in the sandbox?",
        "host": "ringfence: may the sandbox reach this host?",
        "escalation": "ringfence: this was refused something. May it run again, from the start, with one more right?",
    }
    lines = [titles[question.kind], f"  {plain(question.what, MOST_SHOWN)}"]
    if not all(map(_fits, [question.what, *question.around, *map(str, question.acts), question.rule, question.grant])):
        return None
    lines += [f"started with: {plain(text, MOST_SHOWN)}" for text in question.around]
    if len(question.acts) > 1 or question.kind == "escalation":
        title = "it was refused" if question.kind == "escalation" else "as far as it can be read, it would"
        lines += [f"{title}: {plain(str(act), MOST_SHOWN)}" for act in question.acts]
    if question.rule:
        lines.append(f"asked by rule: {plain(question.rule, MOST_SHOWN)}")
    if question.grant:
        lines.append(f"a yes allows, and nothing else: {plain(question.grant, MOST_SHOWN)}")
    if question.wish:
        lines.append("Only the program says that this was refused; nothing else saw it. It is the program's wish.")
    whole = "\n".join(lines)
    return whole if len(whole) <= 4 * MOST_SHOWN else None


def _fits(text: str) -> bool:
    """Whether nothing of a text is cut; escaped, a character may be ten."""
    return len(text) <= MOST_SHOWN and len(plain(text, 10 * MOST_SHOWN)) <= MOST_SHOWN


def _form(question: Question) -> dict[str, Any]:
    answers = [*(choice for choice in question.choices if choice != "no"), "no"]
    said = "once: this time; session: whenever the same is asked, until the sandbox ends; no: not at all"
    return {
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Answer", "description": said, "enum": answers}},
        "required": ["answer"],
    }
