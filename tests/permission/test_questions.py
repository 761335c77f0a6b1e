"""The bounds of questions: how many are open, how many a run has, how long one waits, and what is remembered."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

import pytest

from ringfence import Answer, CallbackApprover, NeverApprover, Question
from ringfence.errors import ArgumentError
from ringfence.permission.questions import Asking, Questions

PATIENCE = 20.0


def question(what: str = "make", **more: object) -> Question:
    return Question("command", what, **more)  # type: ignore[arg-type]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Held:
    """An approver that answers when it is let."""

    def __init__(self, choice: str = "once") -> None:
        self.choice = choice
        self.asked: list[Question] = []
        self.withdrawn: list[Question] = []
        self.go = threading.Event()

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        assert self.go.wait(PATIENCE)
        return Answer(self.choice)  # type: ignore[arg-type]

    def withdraw(self, question: Question) -> None:
        self.withdrawn.append(question)


def came(asking: Asking) -> Answer:
    until(lambda: asking.descriptor < 0 or asking._put is None or asking._put.answer is not None)
    try:
        return asking.answer()
    finally:
        asking.close()


def test_a_question_is_answered_by_its_approver_in_another_thread() -> None:
    seen: list[tuple[str, int]] = []

    def answer(asked: Question) -> str:
        seen.append((asked.what, threading.get_ident()))
        return "once"

    assert Questions(CallbackApprover(answer)).ask(question()).granted
    assert [what for what, _ in seen] == ["make"]
    assert seen[0][1] != threading.get_ident()


def test_a_coroutine_function_is_an_approver_too() -> None:
    async def answer(asked: Question) -> Answer:
        return Answer("session", asked.what)

    class Own:
        async def ask(self, asked: Question) -> Answer:
            return Answer("once", "own")

    assert Questions(CallbackApprover(answer)).ask(question()) == Answer("session", "make")
    assert Questions(Own()).ask(question()) == Answer("once", "own")


def test_without_an_approver_everything_is_refused() -> None:
    refused = Questions(None).ask(question())
    assert not refused.granted
    assert "nobody" in refused.why


def test_the_fourth_question_that_is_open_at_once_is_refused_and_a_later_one_is_asked() -> None:
    held = Held()
    questions = Questions(held)
    open_ones = [questions.put(question(str(each))) for each in range(3)]
    fourth = questions.ask(question("3"))
    assert not fourth.granted
    assert "3 questions of this box are open" in fourth.why
    held.go.set()
    assert [came(each).granted for each in open_ones] == [True, True, True]
    until(lambda: questions._threads == 0)
    assert questions.ask(question("3")).granted, "what was refused for a bound may be asked later"


def test_a_run_has_twenty_questions_and_the_next_run_as_many() -> None:
    questions = Questions(CallbackApprover(lambda asked: "once"))
    for _ in range(2):
        with questions.run() as run:
            granted = [questions.ask(question(str(each)), run).granted for each in range(25)]
        assert granted == [True] * 20 + [False] * 5


def test_a_question_of_no_call_counts_for_the_call_that_began_last() -> None:
    questions = Questions(CallbackApprover(lambda asked: "once"), most_of_run=2)
    with questions.run(), questions.run():
        assert [questions.ask(question(str(each))).granted for each in range(3)] == [True, True, False]
    with questions.run():
        assert questions.ask(question("3")).granted


def test_the_same_question_is_put_once_while_it_is_open() -> None:
    held = Held()
    questions = Questions(held, most_open=1)
    both = [questions.put(question()), questions.put(question())]
    held.go.set()
    assert [came(each).granted for each in both] == [True, True]
    assert len(held.asked) == 1
    until(lambda: questions._threads == 0)
    assert questions.ask(question()).granted
    assert len(held.asked) == 2, "once is once: it is asked again later"


def test_what_was_granted_for_the_session_is_asked_once_and_ends_with_the_box() -> None:
    asked: list[Question] = []

    def answer(each: Question) -> str:
        asked.append(each)
        return "session"

    questions = Questions(CallbackApprover(answer))
    assert [questions.ask(question()).granted for _ in range(3)] == [True, True, True]
    assert len(asked) == 1
    questions.ask(question("another"))
    assert len(asked) == 2, "only for the very same"
    questions.close()
    assert not questions.ask(question()).granted


def test_what_was_refused_is_not_asked_again() -> None:
    asked: list[Question] = []

    def answer(each: Question) -> bool:
        asked.append(each)
        return False

    questions = Questions(CallbackApprover(answer))
    assert not questions.ask(question()).granted
    again = questions.ask(question())
    assert not again.granted
    assert "refused before" in again.why
    assert len(asked) == 1


def test_an_approver_that_never_answers_is_a_refusal_at_its_deadline() -> None:
    held = Held()
    questions = Questions(held)
    answer = questions.ask(question(deadline_seconds=0.05))
    assert not answer.granted
    assert answer.why == "no answer came within 0.05 s"
    assert held.withdrawn == held.asked
    assert "not asked again" in questions.ask(question(deadline_seconds=0.05)).why
    held.go.set()
    until(lambda: questions._threads == 0)
    assert not questions.ask(question(deadline_seconds=0.05)).granted, "an answer that came too late changes nothing"


def test_an_approver_that_hangs_three_times_is_not_asked_a_fourth_time() -> None:
    held = Held()
    questions = Questions(held)
    for each in range(3):
        assert "no answer came" in questions.ask(question(str(each), deadline_seconds=0.01)).why
    assert "open already" in questions.ask(question("3", deadline_seconds=0.01)).why
    assert len(held.asked) == 3
    held.go.set()
    until(lambda: questions._threads == 0)


def test_an_answer_that_came_after_the_deadline_is_none_though_nobody_looked_before() -> None:
    held = Held()
    questions = Questions(held)
    asking = questions.put(question(deadline_seconds=0.01))
    time.sleep(0.02)  # the loop of the one who asked is blocked
    held.go.set()
    assert "no answer came within" in came(asking).why


@pytest.mark.parametrize("wrong", [None, "perhaps", 7, Answer("always")])
def test_what_is_no_answer_that_was_offered_is_a_refusal_and_is_logged(wrong: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "ringfence.permission"):
        assert not Questions(CallbackApprover(lambda asked: wrong)).ask(question()).granted  # type: ignore[arg-type,return-value]
    assert "of an approver failed" in caplog.text


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_an_approver_that_raises_refuses_and_is_logged(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def answer(asked: Question) -> bool:
        raise kind("broken")

    questions = Questions(CallbackApprover(answer))
    with caplog.at_level(logging.ERROR, "ringfence.permission"):
        assert kind.__name__ in questions.ask(question()).why
    assert "broken" in caplog.text
    assert "refused before" in questions.ask(question()).why


def test_a_question_that_nobody_waits_for_any_more_is_withdrawn_and_may_be_asked_again() -> None:
    held = Held()
    questions = Questions(held)
    first, second = questions.put(question()), questions.put(question())
    first.close()
    until(lambda: len(held.asked) == 1)
    assert held.withdrawn == [], "another one waits for it"
    second.close()
    assert held.withdrawn == held.asked
    held.go.set()
    until(lambda: questions._threads == 0)
    assert questions.ask(question()).granted


def test_a_box_that_ends_refuses_what_is_open() -> None:
    held = Held()
    questions = Questions(held)
    asking = questions.put(question())
    questions.close()
    assert came(asking) == Answer("no", "the box has ended")
    held.go.set()
    until(lambda: questions._threads == 0)


def test_who_listens_is_told_once_of_each_question_with_its_answer() -> None:
    told: list[tuple[str, str]] = []
    questions = Questions(
        CallbackApprover(lambda asked: "session"), told=lambda asked, answer, _: told.append((asked.what, answer.choice))
    )
    for _ in range(2):
        questions.ask(question())
    assert told == [("make", "session")]


def test_a_host_without_descriptors_refuses() -> None:
    import resource

    questions = Questions(CallbackApprover(lambda asked: "once"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        refused = questions.ask(question())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "nothing left" in refused.why
    assert questions.ask(question()).granted


def test_questions_leave_no_descriptor_open() -> None:
    questions = Questions(NeverApprover())
    before = len(os.listdir("/proc/self/fd"))
    for each in range(10):
        questions.ask(question(str(each)))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_deadline_that_is_none_is_refused(seconds: object) -> None:
    with pytest.raises(ArgumentError, match="deadline_seconds"):
        CallbackApprover(lambda asked: True, deadline_seconds=seconds)  # type: ignore[arg-type]


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be called"):
        CallbackApprover("yes")  # type: ignore[arg-type]
