"""Questions that a box puts to somebody, and the bounds of that. What is not answered is refused.

An approver is called in a thread of ours, so that it may take its time and may block: the caller's thread, or its event loop, waits
for a descriptor. A question ends with its answer, at its deadline, when everybody who waits for it has given up, or with the box;
the thread of an approver that goes on after that is left alone, and counts as open until it returns.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from ringfence.values import frozen

if TYPE_CHECKING:
    from ringfence.permission.acts import Act

DEADLINE_SECONDS = 300.0
"""Time for an answer, where the approver says nothing else: a person who is at the machine, and does something else just now."""
MOST_OPEN = 3
MOST_OF_RUN = 20
MOST_REMEMBERED = 10_000
"""Refusals that a box remembers. A box that was refused so much is refused the rest unasked."""

TWICE, NOT_AGAIN = "It ran twice", "It was not run again"
"""How the notes of a result begin that tell of a second run after a refusal, and why there was none."""

Kind: TypeAlias = Literal["command", "escalation", "host"]
Choice: TypeAlias = Literal["once", "session", "always", "no"]


@frozen
class Question:
    """What somebody is asked. Its text may come from a model or from inside a box: it is for eyes, once it is escaped.

    kind: what is asked for, a command before it is started, a further right for one that was refused something, or a host.
    what: the command, or the host with its port. acts: the acts that it would be, as far as they are known. rule: what says that
    it is asked. grant: what yes allows, in words. wish: whether that rests on nothing but what a program in the box says.
    choices: the answers that are offered, 'no' always among them. deadline_seconds: after that it is refused. box: the box's id.
    around: what a command is started with beside its words: its folder, variables that the call adds, its input.
    """

    kind: Kind
    what: str
    acts: tuple[Act, ...] = ()
    rule: str = ""
    grant: str = ""
    wish: bool = False
    choices: tuple[Choice, ...] = ("once", "session", "no")
    deadline_seconds: float = DEADLINE_SECONDS
    box: str | None = None
    around: tuple[str, ...] = ()

    @property
    def same(self) -> tuple[object, ...]:
        """What two questions have alike that are one."""
        return (self.kind, self.what, self.acts, self.rule, self.grant, self.wish, self.around)


@frozen
class Answer:
    """once: this time. session: whenever the same is asked, until the box ends. always: as long as what decides lives. no: never.

    why: who or what gave it, where that is not a person who was asked. asked: False where nobody could be asked.
    """

    choice: Choice
    why: str = ""
    asked: bool = True

    @property
    def granted(self) -> bool:
        return self.choice != "no"


class Approver(Protocol):
    """Somebody, or something, that answers questions.

    ask() is called in a thread of ours, never in an event loop, and for up to three questions of each box at once; it may be a
    coroutine function, which then runs under asyncio in that thread. What it raises is a refusal. deadline_seconds, where an
    approver has it, is how long it is waited for; withdraw(question), where it has it, is called when nobody waits any more.
    """

    def ask(self, question: Question) -> Answer | Awaitable[Answer]: ...


Told: TypeAlias = Callable[[Question, Answer, float], None]
"""Called with each question, its answer and the seconds between, in the thread of the one who asked."""


class Run:
    """One call of the box, which is what questions are counted for."""

    def __init__(self) -> None:
        self.asked = 0


class Questions:
    """The questions of one box. Methods may be called from any thread.

    A run is one call of the box, from its beginning to its end. A question that belongs to no call of its own, as one about a host
    does, counts for the call that began last and goes on. The same question is put once while it is open, and all who ask get its
    answer. What was refused is not asked again in this box, unless it was refused for these bounds.
    """

    def __init__(
        self,
        approver: Approver | None,
        *,
        most_open: int = MOST_OPEN,
        most_of_run: int = MOST_OF_RUN,
        told: Told | None = None,
    ) -> None:
        self.approver = approver
        self.deadline_seconds = float(getattr(approver, "deadline_seconds", DEADLINE_SECONDS))
        self._most_open, self._most_of_run, self._told = most_open, most_of_run, told
        self._guard = threading.Lock()
        self._open: dict[tuple[object, ...], _Put] = {}
        self._threads = 0
        self._granted: set[tuple[object, ...]] = set()
        self._refused: dict[tuple[object, ...], Answer] = {}
        self._runs: list[Run] = [Run()]
        self._closed = False

    def lend(self, approver: Approver | None) -> None:
        """Let another approver be asked from now on, with the time that it gives."""
        self.approver = approver
        self.deadline_seconds = float(getattr(approver, "deadline_seconds", DEADLINE_SECONDS))

    @contextmanager
    def run(self) -> Iterator[Run]:
        """One call of the box."""
        begun = Run()
        with self._guard:
            self._runs.append(begun)
        try:
            yield begun
        finally:
            with self._guard:
                self._runs.remove(begun)

    def known(self, question: Question) -> Answer | None:
        """The answer that needs no asking: it was granted for the session, or refused before. None where it has to be asked."""
        with self._guard:
            return self._known(question)

    def put(self, question: Question, run: Run | None = None) -> Asking:
        """Put a question, and return at once; what is returned is waited for and closed."""
        with self._guard:
            answer = self._known(question) or self._out_of_bounds(question, run)
            if answer is not None:
                return Asking(question, None, answer, None if self._known(question) else self._told)
            try:
                return self._join(question, run)
            except (OSError, RuntimeError) as error:  # no descriptor, or no thread, is left
                return Asking(
                    question, None, Answer("no", f"this host has nothing left to ask with: {error}", asked=False), self._told
                )

    def _join(self, question: Question, run: Run | None) -> Asking:
        put = self._open.get(question.same)
        if put is not None:
            asking = Asking(question, put, None, None)
        else:
            put = _Put(self, question)
            asking = Asking(question, put, None, self._told)
            try:
                threading.Thread(target=put.work, name="ringfence-approver", daemon=True).start()
            except RuntimeError:
                asking.release()
                raise
            self._open[question.same] = put
            self._threads += 1
            (run or self._runs[-1]).asked += 1
        put.waiting.append(asking)
        return asking

    def ask(self, question: Question, run: Run | None = None) -> Answer:
        """Put a question and wait for its answer, blocking this thread."""
        asking = self.put(question, run)
        try:
            if asking.descriptor >= 0:
                poll = select.poll()
                poll.register(asking.descriptor, select.POLLIN)
                poll.poll(max(0.0, asking.until - time.monotonic()) * 1000)
            return asking.answer()
        finally:
            asking.close()

    def close(self) -> None:
        """The box has ended: open questions are refused, and what was granted for the session is gone."""
        with self._guard:
            self._closed = True
            self._granted.clear()
            left = list(self._open.values())
        for put in left:
            self._settle(put, Answer("no", "the box has ended"), remember=False)

    def _known(self, question: Question) -> Answer | None:
        if self._closed:
            return None
        if question.same in self._granted:
            return Answer("session", "granted before, for as long as the box lives")
        if question.same in self._refused:
            before = self._refused[question.same]
            return Answer("no", f"refused before in this box ({before.why or 'refused'}), and not asked again", before.asked)
        return None

    def _out_of_bounds(self, question: Question, run: Run | None) -> Answer | None:
        if self.approver is None:
            return Answer("no", "there is nobody to ask: no approver was given", asked=False)
        if self._closed:
            return Answer("no", "the box has ended")
        if question.same in self._open:
            return None
        if self._threads >= self._most_open:
            return Answer("no", f"{self._most_open} questions of this box are open already", asked=False)
        if (run or self._runs[-1]).asked >= self._most_of_run:
            return Answer("no", f"{self._most_of_run} questions were asked for this run already", asked=False)
        if len(self._refused) >= MOST_REMEMBERED:
            return Answer("no", f"{MOST_REMEMBERED} questions were refused in this box already", asked=False)
        return None

    def _settle(self, put: _Put, answer: Answer, *, remember: bool = True) -> None:
        """What becomes of a question: the first to say so decides."""
        with self._guard:
            if put.answer is not None:
                return
            put.answer = answer
            self._open.pop(put.question.same, None)
            if remember and not self._closed:
                if not answer.granted:
                    self._refused[put.question.same] = answer
                elif answer.choice in ("session", "always"):
                    self._granted.add(put.question.same)
            for each in put.waiting:
                each.wake()
            withdrawn = put.working
        if withdrawn and (withdraw := getattr(self.approver, "withdraw", None)):
            try:
                withdraw(put.question)
            except Exception as error:
                _complain("withdraw", error)

    def _left(self, put: _Put, asking: Asking) -> None:
        with self._guard:
            put.waiting.remove(asking)
            alone = not put.waiting and put.answer is None
        if alone:
            self._settle(put, Answer("no", "nobody waits for it any more"), remember=False)

    def _returned(self, put: _Put) -> None:
        with self._guard:
            put.working = False
            self._threads -= 1


class _Put:
    """One question that the approver has."""

    def __init__(self, questions: Questions, question: Question) -> None:
        self.questions, self.question = questions, question
        self.until = time.monotonic() + question.deadline_seconds
        self.answer: Answer | None = None
        self.working = True
        self.waiting: list[Asking] = []

    def work(self) -> None:
        """In a thread: ask, and settle it with what comes."""
        try:
            answer = _checked(_called(self.questions.approver, self.question), self.question)
        except BaseException as error:  # whatever it is, it ends here: the thread is ours
            _complain("ask", error)
            answer = Answer("no", f"the approver failed with {type(error).__name__}")
        self.questions._returned(self)
        if time.monotonic() > self.until:  # the one who waits may not have looked yet, in a loop that is blocked
            answer = _too_late(self.question)
        self.questions._settle(self, answer)


class Asking:
    """One who waits for an answer. descriptor: can be read when it is there, -1 where it is there already; until: monotonic."""

    def __init__(self, question: Question, put: _Put | None, answer: Answer | None, told: Told | None) -> None:
        self.question, self.descriptor, self.until = question, -1, put.until if put else 0.0
        self._put, self._answer, self._told = put, answer, told
        self._since = time.monotonic()
        self._wake = -1
        if put is not None:
            self.descriptor, self._wake = os.pipe()

    def wake(self) -> None:
        os.write(self._wake, b"\0")

    def answer(self) -> Answer:
        """The answer; where there is none yet its time has run out, and it is a refusal. Ask once, after waiting."""
        if self._put is not None:
            if self._put.answer is None:
                self._put.questions._settle(self._put, _too_late(self.question))
            self._answer = self._put.answer
        assert self._answer is not None
        if self._told is not None:
            self._told(self.question, self._answer, time.monotonic() - self._since)
        return self._answer

    def close(self) -> None:
        """Wait no more. The last to do so takes the question back."""
        if self._put is not None:
            put, self._put = self._put, None
            put.questions._left(put, self)
            self.release()

    def release(self) -> None:
        """Close its descriptors."""
        os.close(self.descriptor)
        os.close(self._wake)


def _called(approver: Approver | None, question: Question) -> object:
    assert approver is not None
    returned = approver.ask(question)
    if not isinstance(returned, Answer) and hasattr(returned, "__await__"):
        import asyncio  # only approvers that are coroutine functions need a loop

        async def awaited() -> object:
            return await returned

        return asyncio.run(awaited())
    return returned


def _checked(answer: object, question: Question) -> Answer:
    """answer, if it is one that was offered. Raises TypeError or ValueError."""
    if not isinstance(answer, Answer):
        raise TypeError(f"an approver returns an Answer, not {type(answer).__name__}")
    if answer.choice != "no" and answer.choice not in question.choices:
        raise ValueError(f"{answer.choice!r} was not offered; offered were {', '.join(question.choices)}")
    return answer


def _too_late(question: Question) -> Answer:
    return Answer("no", f"no answer came within {question.deadline_seconds:g} s")


def _complain(what: str, error: BaseException) -> None:
    import logging  # an approver that is well needs none of it

    logging.getLogger("ringfence.permission").error("%s() of an approver failed", what, exc_info=error)
