"""A run that was refused something, tried once more with one right: who is asked what, what is never offered, what is shared."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ringfence import Answer, NeverApprover, Question, Result, Sandbox, SandboxConfig, SandboxLimits, errors, sync
from ringfence.outcome import Denial

ESCALATION = "one_time_approval"
TRACES = "import ctypes, sys\nctypes.CDLL(None).ptrace(0, 0, 0, 0) and sys.exit(1)"


class Asked:
    """An approver that remembers what it was asked."""

    def __init__(self, choice: str = "once") -> None:
        self.choice = choice
        self.questions: list[Question] = []

    def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        return Answer(self.choice)  # type: ignore[arg-type]


@pytest.fixture
def outside(workspace: Path) -> Path:
    """A file beside the workspace, which no box reads."""
    file = workspace.parent / "outside" / "data"
    file.parent.mkdir(mode=0o755)
    file.write_text("what lies outside\n")
    file.chmod(0o644)
    return file


def config(workspace: Path | None, **more: object) -> SandboxConfig:
    return SandboxConfig(workspace=workspace, escalation=ESCALATION, **more)  # type: ignore[arg-type]


def notes(result: Result) -> str:
    return "\n".join(result.notes)


def test_a_denied_run_runs_again_with_exactly_what_the_denial_named(workspace: Path, outside: Path) -> None:
    asked = Asked()
    script = f"echo run >> runs; cat {outside}; touch {outside.parent}/new"
    with sync.Sandbox(config(workspace), approver=asked) as box:
        result = box.execute_command(script)
        assert "what lies outside" in result.stdout
        assert not (outside.parent / "new").exists(), "to read is not to write"
        assert (workspace / "runs").read_text() == "run\nrun\n"
        first = box.run(["cat", str(outside)])
        assert len(asked.questions) == 2, "once is once"
        assert first.ok
    question = asked.questions[0]
    assert (question.kind, question.what, question.choices) == ("escalation", script, ("once", "no"))
    assert question.grant == f"filesystem.read_only: [{outside}]"
    assert question.wish, "only the program said so"
    assert [str(act) for act in question.acts] == [f"read {outside}"]
    assert notes(result).startswith("It ran twice: the first run (exit code 1) was refused")
    assert question.grant in notes(result)


def test_without_escalation_nobody_is_ever_asked(workspace: Path, outside: Path) -> None:
    asked = Asked()
    with sync.Sandbox(SandboxConfig(workspace=workspace), approver=asked) as box:
        result = box.run(["cat", str(outside)])
    assert not result.ok
    assert result.denials[0].remedy, "the control: it is a denial that names a remedy"
    assert asked.questions == []
    assert notes(result) == ""


def test_what_was_refused_is_not_run_again_nor_asked_again(workspace: Path, outside: Path) -> None:
    asked = Asked("no")
    with sync.Sandbox(config(workspace), approver=asked) as box:
        for _ in range(2):
            result = box.execute_command(f"echo run >> runs; cat {outside}")
            assert result.exit_code == 1
            assert "It was not run again with filesystem.read_only" in notes(result)
    assert len(asked.questions) == 1
    assert (workspace / "runs").read_text() == "run\nrun\n", "each call ran once"


def test_a_box_without_an_approver_says_that_nobody_was_there_to_ask(workspace: Path, outside: Path) -> None:
    with sync.Sandbox(config(workspace)) as box:
        assert "there is nobody to ask" in notes(box.run(["cat", str(outside)]))


@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("cat {outside}", {"deny": ["**/data"]}),
        ("cat {home}/.ssh/id_rsa", {}),
        ("cat secret/.env", {}),
        ("touch .git/config", {}),
        ("echo x > .vscode/settings.json", {}),
        ("cat {outside} || true", {}),
        ("exit 3", {}),
    ],
    ids=["denied by name", "built-in secret", "secret in the workspace", "git", "protected", "ok in the end", "nothing refused"],
)
def test_what_cannot_be_granted_or_was_not_refused_is_not_offered(
    workspace: Path, outside: Path, script: str, more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace.parent / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("key")
    monkeypatch.setenv("HOME", str(home))
    for name in ("secret", ".git", ".vscode"):
        (workspace / name).mkdir()
    (workspace / "secret" / ".env").write_text("TOKEN=1")
    (workspace / ".vscode" / "settings.json").write_text("{}")
    for entry in [workspace, *workspace.rglob("*")]:
        os.chown(entry, os.getuid(), os.getgid())
    asked = Asked()
    with sync.Sandbox(config(workspace, **more), approver=asked) as box:
        result = box.execute_command(script.format(outside=outside, home=home))
    assert asked.questions == []
    assert "It ran twice" not in notes(result)


def test_an_approval_never_goes_beyond_the_ceiling(workspace: Path, outside: Path) -> None:
    asked = Asked()
    closed = SandboxConfig(workspace=workspace, escalation=ESCALATION)
    with sync.Sandbox(config(workspace), approver=asked, ceiling=closed) as box:
        assert not box.run(["cat", str(outside)]).ok
    assert asked.questions == []
    open_enough = SandboxConfig(workspace=workspace, escalation=ESCALATION, read_only=[outside.parent])
    with sync.Sandbox(config(workspace), approver=asked, ceiling=open_enough) as box:
        assert box.run(["cat", str(outside)]).ok
    with pytest.raises(TypeError, match="ceiling"):
        sync.Sandbox(config(workspace), ceiling="high")  # type: ignore[arg-type]


def test_a_wish_that_a_program_makes_up_opens_no_secret(workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program prints what it likes: it may get a person asked for a file, never for one that no policy line opens."""
    home = workspace.parent / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text("key")
    monkeypatch.setenv("HOME", str(home))
    asked = Asked("no")
    with sync.Sandbox(config(workspace), approver=asked) as box:
        for path in (f"{home}/.aws/credentials", f"{home}/.aws", str(home), "/", "/etc/shadow", str(outside)):
            box.execute_command(f"echo \"cat: {path}: $(printf 'No such') file or directory\" >&2; exit 1")
    assert [question.grant for question in asked.questions] == [f"filesystem.read_only: [{outside}]"]
    assert asked.questions[0].wish


def test_the_private_home_is_carried_over_and_what_changed_comes_back(workspace: Path, outside: Path) -> None:
    before = (
        "cd; mkdir -p kept/deep gone; echo old > kept/deep/file; echo x > gone/file; ln -s /usr/bin/env link; echo t > $TMPDIR/t"
    )
    script = f"cat {outside} && cd && cat kept/deep/file $TMPDIR/t && readlink link && echo new > kept/deep/file && rm -r gone"
    with sync.Sandbox(config(workspace), approver=Asked()) as box:
        box.execute_command(before).raise_for_status()
        result = box.execute_command(script)
        assert result.stdout == "what lies outside\nold\nt\n/usr/bin/env\n"
        assert result.ok
        assert len(result.notes) == 1, result.notes
        assert box.execute_command("cd; cat kept/deep/file; ls").stdout == "new\nkept\nlink\n"


def test_an_ephemeral_workspace_is_the_same_in_both_runs() -> None:
    with sync.Sandbox(config(None), approver=Asked()) as box:
        box.write_file("mine", "first")
        result = box.execute(f"print(open('mine').read())\n{TRACES}\nopen('mine', 'w').write('second')")
        assert result.ok, result
        assert result.stdout == "first\n"
        assert "ran twice" in notes(result)
        assert box.read_file("mine") == "second"


def test_a_home_that_is_too_large_is_not_run_again_and_says_so(workspace: Path, outside: Path) -> None:
    with sync.Sandbox(config(workspace), approver=Asked()) as box:
        box.execute_command("cd; truncate -s 300M large").raise_for_status()
        result = box.run(["cat", str(outside)])
    assert result.exit_code == 1
    assert "though that was granted" in notes(result)


def test_writing_is_granted_as_writing_and_to_a_single_folder(workspace: Path) -> None:
    asked = Asked()
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix="rf-tests-") as one:
        with tempfile.TemporaryDirectory(dir=Path.home(), prefix="rf-tests-") as other:
            os.chmod(one, 0o777)
            os.chmod(other, 0o777)
            with sync.Sandbox(config(workspace), approver=asked) as box:
                result = box.execute_command(f"touch {one}/made {other}/made")
            assert (os.listdir(one), os.listdir(other)) == (["made"], [])
            assert [question.grant for question in asked.questions] == [f"filesystem.writable: [{one}]"]
    assert result.exit_code == 1, "the second refusal is told, and not asked in the same call"


def test_the_mode_of_the_workspace_is_a_right_like_others(workspace: Path) -> None:
    asked = Asked()
    with sync.Sandbox(config(workspace, mode="read-only"), approver=asked) as box:
        assert box.run(["touch", "made"]).ok
        assert not box.run(["touch", "made"], timeout=20).ok or len(asked.questions) == 2
    assert asked.questions[0].grant == "mode: workspace-write"
    assert (workspace / "made").exists()


def test_a_system_call_is_observed_and_no_wish(workspace: Path) -> None:
    asked = Asked("no")
    with sync.Sandbox(config(workspace), approver=asked) as box:
        result = box.execute(TRACES)
        if not any(denial.kind == "syscall" for denial in result.denials):
            pytest.fail(f"the filter's refusals are not told here: {result}")
    assert [(question.grant, question.wish) for question in asked.questions] == [("syscalls.debug: true", False)]


def test_a_run_that_a_cap_ended_is_not_tried_again(workspace: Path, outside: Path) -> None:
    asked = Asked()
    with sync.Sandbox(config(workspace, limits=SandboxLimits(wall_seconds=0.5)), approver=asked) as box:
        assert box.execute_command(f"cat {outside}; sleep 30").timed_out
    assert asked.questions == []


def test_nothing_of_the_second_box_is_left_and_its_denials_are_told(workspace: Path, outside: Path) -> None:
    with sync.Sandbox(config(workspace), approver=Asked()) as box:
        box.execute_command(f"cat {outside} /root/absent-{os.getpid()} /etc/shadow")
        told = box.denials()
        assert box.run(["true"]).ok
    assert any(isinstance(denial, Denial) and denial.target == str(outside) for denial in told)


def test_no_answer_in_the_workspace_widens_anything(workspace: Path, outside: Path) -> None:
    """Settings that a box could write are no policy: they neither grant nor answer (a file that the agent can write)."""
    for name in ("sandbox.toml", ".sandboxrc", "pyproject.toml", "ringfence.toml", "ringfence.yaml"):
        (workspace / name).write_text(f'escalation = "{ESCALATION}"\n[sandbox]\nnetwork="all"\nwritable=["/"]\n')
    (workspace / ".env").write_text("SANDBOX_DISABLE=1\nRINGFENCE_APPROVE=1\n")
    asked = Asked()
    with sync.Sandbox(SandboxConfig(workspace=workspace), approver=asked) as box:
        assert not box.run(["cat", str(outside)]).ok
        assert box.config == SandboxConfig(workspace=workspace)
    assert asked.questions == []


async def test_on_the_awaiting_surface_too(workspace: Path, outside: Path) -> None:
    asked = Asked()
    async with Sandbox(config(workspace), approver=asked) as box:
        result = await box.run(["cat", str(outside)])
    assert result.stdout == "what lies outside\n"
    assert len(asked.questions) == 1
    async with Sandbox(config(workspace), approver=NeverApprover()) as box:
        assert not (await box.run(["cat", str(outside)])).ok


def test_a_spawned_process_is_asked_about_by_its_caller(workspace: Path, outside: Path) -> None:
    asked = Asked()
    with sync.Sandbox(config(workspace), approver=asked) as box:
        box.execute_command("echo carried > ~/kept").raise_for_status()
        with box.spawn(["cat", str(outside)]) as process:
            process.stderr.read()
            result = process.wait()
        wider = box.escalate(result)
        assert wider is not None
        with wider, wider.spawn(["sh", "-c", f"cat {outside} ~/kept; echo back > ~/kept"]) as process:
            assert process.stdout.read() == b"what lies outside\ncarried\n"
        assert len(asked.questions) == 1, "what was granted is not asked again"
        assert box.execute_command("cat ~/kept").stdout == "back\n"
        with pytest.raises(errors.SandboxClosedError):
            wider.run(["true"])
        assert box.escalate(box.run(["true"])) is None


async def test_a_spawned_process_is_asked_about_on_the_awaiting_surface_too(workspace: Path, outside: Path) -> None:
    async with Sandbox(config(workspace), approver=Asked("no")) as box:
        async with await box.spawn(["cat", str(outside)]) as process:
            async for _ in process.stderr:
                pass
            result = await process.wait()
        with pytest.raises(errors.NotPermittedError, match="not run again"):
            await box.escalate(result)
    async with Sandbox(config(workspace), approver=Asked()) as box:
        async with await box.spawn(["cat", str(outside)]) as process:
            async for _ in process.stderr:
                pass
            result = await process.wait()
        wider = await box.escalate(result)
        assert wider is not None
        async with wider:
            assert (await wider.run(["cat", str(outside)])).ok


def test_what_is_mounted_in_a_private_folder_is_not_carried() -> None:
    """A workspace below /tmp lies in the private folder of that name: its files stay the very same."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="rf-tests-") as folder,
        tempfile.TemporaryDirectory(dir=Path.home(), prefix="rf-tests-") as other,
    ):
        os.chmod(folder, 0o755)
        os.chmod(other, 0o755)
        outside = Path(other, "data")
        outside.write_text("what lies outside\n")
        work = Path(folder, "deep", "work")
        work.mkdir(parents=True)
        (work / "file").write_text("mine")
        before = (work / "file").stat().st_ino
        with sync.Sandbox(config(work), approver=Asked()) as box:
            box.execute_command("echo t > /tmp/t; cp file /tmp/copy").raise_for_status()
            result = box.execute_command(f"cat {outside} /tmp/t /tmp/copy && echo u > /tmp/t")
            assert result.stdout == "what lies outside\nt\nmine"
            assert len(result.notes) == 1, result.notes
            assert box.execute_command("cat /tmp/t").stdout == "u\n"
        assert (work / "file").stat().st_ino == before


def test_a_folder_that_the_caller_calls_home_is_not_taken_for_a_private_one(workspace: Path, outside: Path) -> None:
    (workspace / "file").write_text("mine")
    before = (workspace / "file").stat().st_ino
    environment = {"HOME": str(workspace), "TMPDIR": str(workspace)}
    with sync.Sandbox(config(workspace, environment=environment), approver=Asked()) as box:
        assert box.run(["cat", str(outside)]).ok
    assert (workspace / "file").stat().st_ino == before


def test_git_settings_of_the_first_box_are_those_of_the_second(workspace: Path, outside: Path) -> None:
    with sync.Sandbox(config(workspace), approver=Asked()) as box:
        box.execute_command("git init -q . 2>/dev/null; true")
    with sync.Sandbox(config(workspace), approver=Asked()) as box:
        box.execute_command("git config demo.one 1").raise_for_status()
        result = box.execute_command(f"cat {outside} && git config demo.one && git config demo.two 2")
        assert result.stdout == "what lies outside\n1\n"
        assert box.execute_command("git config demo.two").stdout == "2\n"
        assert "demo.two" in "".join(change.diff for change in box.changes()) or box.changes()
    assert "demo" not in (workspace / ".git" / "config").read_text()


def test_a_question_names_the_box(workspace: Path, outside: Path) -> None:
    asked = Asked("no")
    box = sync.Sandbox.create("named-one", config(workspace), approver=asked)
    try:
        box.run(["cat", str(outside)])
    finally:
        box.cleanup()
    assert [question.box for question in asked.questions] == ["named-one"]
