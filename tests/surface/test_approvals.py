"""Commands and files of a box that somebody is asked about: what is refused is never begun, on both surfaces and both loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ringfence import (
    AlwaysApprover,
    Answer,
    CallbackApprover,
    NeverApprover,
    PermissionManager,
    Question,
    Sandbox,
    SandboxConfig,
    hooks,
    sync,
)
from ringfence.errors import NotPermittedError

PATIENCE = 20.0
MARK = ["touch", "mark"]


class Asked:
    """An approver that remembers, and answers what it is told to; a threading.Event holds it up."""

    def __init__(self, choice: str = "once", held: threading.Event | None = None) -> None:
        self.choice, self.held = choice, held
        self.questions: list[Question] = []
        self.withdrawn: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        if self.held is not None:
            assert self.held.wait(PATIENCE)
        return Answer(self.choice)  # type: ignore[arg-type]

    def withdraw(self, question: Question) -> None:
        self.withdrawn.append(question)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def boxed(workspace: Path, **more: object) -> sync.Sandbox:
    return sync.Sandbox(SandboxConfig(workspace=workspace), **more)  # type: ignore[arg-type]


def test_what_a_rule_denies_is_never_started_and_nobody_is_asked(workspace: Path) -> None:
    asked = Asked()
    rules = PermissionManager(["deny exec touch mark"], default="allow")
    with boxed(workspace, permissions=rules, approver=asked) as box:
        with pytest.raises(NotPermittedError, match="deny exec touch mark") as refused:
            box.run(MARK)
        assert not (workspace / "mark").exists()
        assert box.run(["touch", "other"]).ok, "the control: another command is started"
    assert (workspace / "other").exists()
    assert asked.questions == []
    assert (refused.value.rule, refused.value.asked) == ("deny exec touch mark", False)
    assert refused.value.for_model().startswith('[not_permitted] "touch mark" is not permitted')


def test_what_is_refused_by_the_one_who_is_asked_is_never_started_nor_asked_again(workspace: Path) -> None:
    asked = Asked("no")
    with boxed(workspace, permissions=PermissionManager(), approver=asked) as box:
        for _ in range(2):
            with pytest.raises(NotPermittedError) as refused:
                box.run(MARK)
    assert not (workspace / "mark").exists()
    assert len(asked.questions) == 1
    assert refused.value.asked
    assert "not asked again" in refused.value.why


def test_what_is_granted_runs_and_the_question_has_all_of_it(workspace: Path) -> None:
    asked = Asked("once")
    with boxed(workspace, permissions=PermissionManager(), approver=asked) as box:
        assert box.run(MARK).ok
        assert box.run(MARK).ok
        assert box.execute_command("echo " + "x" * 10_000 + " > long").ok
        assert box.execute("print('program')").stdout == "program\n"
        assert box.execute("echo $((6 * 7))", "bash").stdout == "42\n"
        with box.spawn(["touch", "spawned"]) as process:
            assert process.wait().ok
        assert box.write_file("file", "text")
        assert box.read_file("file") == "text"
    shown = [question.what for question in asked.questions]
    assert shown[:2] == ["touch mark", "touch mark"], "once is once"
    assert shown[2] == "echo " + "x" * 10_000 + " > long"
    assert shown[3:6] == ["print('program')", "echo $((6 * 7))", "touch spawned"]
    assert shown[6:] == [f"write {workspace}/file", f"read {workspace}/file"]
    assert asked.questions[3].acts[0].argv == ("python", "-c", "print('program')")
    assert (asked.questions[0].kind, asked.questions[0].rule) == ("command", "default")


def test_a_question_has_the_folder_the_variables_and_the_input_of_a_call(workspace: Path) -> None:
    (workspace / "sub").mkdir(mode=0o777)
    asked = Asked("no")
    with boxed(workspace, permissions=PermissionManager(), approver=asked) as box:
        for env in ({"GIT_SSH_COMMAND": "x", "API_TOKEN": "abc123"}, {"GIT_SSH_COMMAND": "y"}):
            with pytest.raises(NotPermittedError):
                box.run(MARK, cwd="sub", env=env, input="rm -r .")
    first, second = asked.questions
    assert first.around == (
        "the folder sub",
        "the variable GIT_SSH_COMMAND=x",
        "the variable API_TOKEN=(not shown, 6 characters)",
        "an input of 7 bytes:\nrm -r .",
    )
    assert second.around != first.around, "and it is another question"


def test_every_call_that_begins_something_is_refused_without_an_approver(workspace: Path) -> None:
    (workspace / "file").write_text("old")
    calls: list[Callable[[sync.Sandbox], object]] = [
        lambda box: box.run(MARK),
        lambda box: box.execute_command("touch mark"),
        lambda box: box.execute("open('mark', 'w')"),
        lambda box: box.execute("touch mark", "bash"),
        lambda box: box.spawn(MARK),
        lambda box: box.write_file("file", "new"),
        lambda box: box.read_file("file"),
    ]
    with boxed(workspace, permissions=PermissionManager()) as box:
        for call in calls:
            with pytest.raises(NotPermittedError, match="nobody to ask"):
                call(box)
    assert not (workspace / "mark").exists()
    assert (workspace / "file").read_text() == "old"


def test_a_grant_for_the_session_ends_with_the_box(workspace: Path) -> None:
    asked = Asked("session")
    for _ in range(2):
        with boxed(workspace, permissions=PermissionManager(), approver=asked) as box:
            assert box.run(MARK).ok
            assert box.run(MARK).ok
    assert len(asked.questions) == 2


def test_the_approver_of_the_manager_is_asked_where_the_box_has_none(workspace: Path) -> None:
    with boxed(workspace, permissions=PermissionManager(approver=AlwaysApprover())) as box:
        assert box.run(MARK).ok
    with boxed(workspace, permissions=PermissionManager(approver=AlwaysApprover()), approver=NeverApprover()) as box:
        with pytest.raises(NotPermittedError):
            box.run(MARK)


def test_a_refused_run_is_told_to_hooks_as_one_that_failed(workspace: Path) -> None:
    seen: list[tuple[str, str | None]] = []
    manager = hooks.HookManager()
    manager.on(hooks.HookEvent.SANDBOX_EXEC, lambda context: seen.append((context.data["text"], context.data["error"])))
    with boxed(workspace, permissions=PermissionManager(), approver=NeverApprover(), hooks=manager) as box:
        with pytest.raises(NotPermittedError):
            box.run(MARK)
    assert seen == [("touch mark", "not-permitted")]


def test_hooks_see_each_question_with_its_answer(workspace: Path) -> None:
    seen: list[tuple[str, str]] = []
    manager = hooks.HookManager()
    manager.on(
        hooks.HookEvent.SANDBOX_QUESTION,
        lambda context: seen.append((context.data["question"].what, context.data["answer"].choice)),
    )
    with boxed(workspace, permissions=PermissionManager(), approver=AlwaysApprover(), hooks=manager) as box:
        assert box.run(MARK).ok
    until(lambda: len(seen) == 1)
    assert seen == [("touch mark", "once")]


@pytest.mark.parametrize("given", [{"permissions": "allow"}, {"approver": "yes"}, {"approver": print}])
def test_what_is_no_manager_or_approver_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        sync.Sandbox(SandboxConfig(), **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Sandbox(SandboxConfig(), **given)  # type: ignore[arg-type]


async def test_the_loop_goes_on_while_somebody_is_asked(workspace: Path) -> None:
    go = threading.Event()
    asked = Asked("once", go)
    went_on: list[str] = []

    async def other() -> None:
        while not asked.questions:  # noqa: ASYNC110  # it is set in another thread
            await anyio.sleep(0.001)
        went_on.append("here")
        go.set()

    async with Sandbox(SandboxConfig(workspace=workspace), permissions=PermissionManager(), approver=asked) as box:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            assert (await box.run(MARK)).ok
    assert went_on == ["here"]


async def test_an_approver_that_never_answers_is_a_refusal_and_the_loop_goes_on(workspace: Path) -> None:
    go = threading.Event()

    def never(question: Question) -> bool:
        return go.wait(PATIENCE)

    approver = CallbackApprover(never, deadline_seconds=0.1)
    ticks = 0

    async def other() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.001)

    async with Sandbox(SandboxConfig(workspace=workspace), permissions=PermissionManager(), approver=approver) as box:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            with pytest.raises(NotPermittedError, match="no answer came within"):
                await box.run(MARK)
            tasks.cancel_scope.cancel()
    go.set()
    assert ticks > 1
    assert not (workspace / "mark").exists()


async def test_an_approver_answers_while_the_loop_is_blocked(workspace: Path) -> None:
    asked = Asked("once")

    async def blocks() -> None:
        until(lambda: bool(asked.questions))  # without giving the loop back: the approver runs all the same

    async with Sandbox(SandboxConfig(workspace=workspace), permissions=PermissionManager(), approver=asked) as box:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(blocks)
            assert (await box.run(MARK)).ok


async def test_a_call_that_is_cancelled_while_it_is_asked_takes_the_question_back(workspace: Path) -> None:
    go = threading.Event()
    asked = Asked("once", go)
    async with Sandbox(SandboxConfig(workspace=workspace), permissions=PermissionManager(), approver=asked) as box:
        with anyio.move_on_after(0.2) as scope:
            await box.run(MARK)
        assert scope.cancelled_caught
        assert asked.withdrawn == asked.questions
        go.set()
        until(lambda: box._permits is not None and box._permits.questions._threads == 0)
        assert not (workspace / "mark").exists()
        assert (await box.run(MARK)).ok, "given up is not refused: it may be asked again"


async def test_files_and_spawned_commands_are_asked_about_on_the_awaiting_surface_too(workspace: Path) -> None:
    async with Sandbox(SandboxConfig(workspace=workspace), permissions=PermissionManager(), approver=NeverApprover()) as box:
        for call in (lambda: box.spawn(MARK), lambda: box.write_file("mark", ""), lambda: box.read_file("mark")):
            with pytest.raises(NotPermittedError):
                await call()
    assert not (workspace / "mark").exists()
