"""Verification: the same code passes or fails as outside, and what is ours is never a failure of the code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agent.verification.projects import ALL, MAKE, PYTEST, Project
from ringfence import SandboxConfig, SandboxLimits, Verdict, Verification
from ringfence.agent.verification.commands import Command, recognised
from ringfence.errors import ArgumentError, ConfigError, HostError, OutsideError, TierUnavailableError

pytestmark = pytest.mark.live("namespaces", "process")
PROGRAMS = {"pytest": sys.executable, "cargo": "cargo", "go": "go", "npm": "npm", "make": "make"}


def verification(how: str, place: Path) -> Verification:
    place.mkdir(exist_ok=True)
    return Verification.sandboxed(folder=place) if how == "sandboxed" else Verification.no_sandbox(folder=place)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where copies are made; whoever takes it looks whether anything is left."""
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


@pytest.fixture
def gate(place: Path) -> Verification:
    return Verification.sandboxed(folder=place)


def outside(tree: Path) -> bool:
    """Whether the project's commands pass on the host, in the tree itself."""
    _, commands = recognised(str(tree))
    assert commands
    return all(subprocess.run(list(each.argv), cwd=tree, capture_output=True, check=False).returncode == 0 for each in commands)


@pytest.mark.parametrize("project", [pytest.param(each, marks=pytest.mark.live(each.kind), id=each.kind) for each in ALL])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what a compiler says does not depend on the loop
async def test_the_same_code_passes_or_fails_as_outside(project: Project, workspace: Path, tmp_path: Path) -> None:
    if shutil.which(PROGRAMS[project.kind]) is None:
        pytest.skip(f"{project.kind} is not on this caller's PATH: .ci/run installs it for those who have none")
    project.write(workspace)
    kinds, commands = recognised(str(workspace))
    assert kinds == (project.kind,)
    for how in ("sandboxed", "no_sandbox"):
        gate = verification(how, tmp_path / how)
        good = await gate.verify(workspace)
        assert good.status == "passed", good.for_model()
        assert [step.command for step in good.steps] == [str(each) for each in commands if not each.probe]
        bad = await gate.verify(workspace, files=project.broken)
        assert bad.status == "failed", bad.for_model()
        assert bad.result is not None
        assert bad.result.exit_code
        assert bad.result.backend == ("namespaces" if how == "sandboxed" else "process")
        assert list((tmp_path / how).iterdir()) == []
    assert {path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file()} == set(project.files)
    assert outside(workspace)
    Project(project.kind, project.broken, {}).write(workspace)
    assert not outside(workspace)


async def test_candidates_at_once_do_not_disturb_each_other_and_nothing_stays(
    gate: Verification, workspace: Path, place: Path
) -> None:
    (workspace / "who").write_text("nobody")
    (workspace / "wait").touch()
    verdicts: dict[str, Verdict] = {}
    check = """
        test "$(cat who)" = $ME && echo x >> mine || exit 1
        for i in 1 2 3; do sleep 0.05; test "$(cat who mine)" = "${ME}x" || exit 1; done
    """

    async def one(name: str) -> None:
        env = {"ME": name}
        verdicts[name] = await gate.verify(workspace, [Command(check, env=env)], files={"who": name})

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, f"candidate-{number}")
    assert {name: verdict.status for name, verdict in verdicts.items()} == {f"candidate-{n}": "passed" for n in range(4)}
    assert (workspace / "who").read_text() == "nobody"
    assert not (workspace / "mine").exists()
    assert list(place.iterdir()) == []


async def test_a_patch_is_applied_and_one_that_does_not_fit_is_a_failure(gate: Verification, workspace: Path) -> None:
    (workspace / "file").write_text("one\ntwo\n")
    fits = "--- a/file\n+++ b/file\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    passed = await gate.verify(workspace, ["grep -q three file"], patch=fits)
    assert passed.passed, passed.for_model()
    failed = await gate.verify(workspace, ["true"], patch=fits.replace("two", "four"))
    assert (failed.status, failed.command) == ("failed", "git apply")
    assert "file:1" in failed.for_model()
    assert (workspace / "file").read_text() == "one\ntwo\n"


async def test_a_failure_names_the_command_and_the_rest_is_not_run(gate: Verification, workspace: Path) -> None:
    verdict = await gate.verify(workspace, ["true", ["sh", "-c", "echo why >&2; exit 3"], "touch /never"])
    assert (verdict.status, verdict.command) == ("failed", "sh -c 'echo why >&2; exit 3'")
    assert verdict.result is not None
    assert (verdict.result.exit_code, verdict.result.stderr) == (3, "why\n")
    assert len(verdict.steps) == 2
    assert verdict.for_model().splitlines()[0].startswith("[failed]")


async def test_what_a_limit_or_a_refusal_may_have_caused_is_no_failure(place: Path, workspace: Path) -> None:
    limits = SandboxLimits(wall_seconds=1, memory_bytes=128 << 20)
    gate = Verification.sandboxed(SandboxConfig(limits=limits), folder=place)
    for line, word in {
        "sleep 60": "wall",
        "tail /dev/zero": "memory",
        "echo x > /etc/zz": "write /etc/zz",
        "unshare -U true": "syscall unshare",
    }.items():
        verdict = await gate.verify(workspace, [line])
        assert verdict.status == "could_not_verify", line
        assert word in verdict.why
        assert "do not change it for this" in verdict.for_model()
    # The control: the same refusal in a command that passes changes nothing, and the caller's own time is a part of the check.
    assert (await gate.verify(workspace, ["unshare -U true || true"])).passed
    slow = await gate.verify(workspace, [Command("sleep 60", timeout=0.5)])
    assert (slow.status, slow.why) == ("failed", "it did not end within the time that it was given")


async def test_a_program_that_the_box_lacks_is_ours_and_one_that_the_tree_lacks_is_not(gate: Verification, workspace: Path) -> None:
    verdict = await gate.verify(workspace, [["no-such-compiler"]])
    assert (verdict.status, verdict.why) == ("could_not_verify", "it was not started: not found")
    (workspace / "check").write_text("#!/bin/sh\nexit 0\n")
    (workspace / "check").chmod(0o755)
    assert (await gate.verify(workspace, [["./check"]])).passed
    assert (await gate.verify(workspace, [["./check"]], files={"check": None})).failed


async def test_an_interpreter_without_pytest_is_no_failure_of_the_code(gate: Verification, workspace: Path) -> None:
    PYTEST.write(workspace)
    python = workspace / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3")
    without = subprocess.run([python, "-I", "-c", "import pytest"], capture_output=True, check=False).returncode
    verdict = await gate.verify(workspace)
    assert verdict.status == ("could_not_verify" if without else "passed"), verdict.for_model()


async def test_a_host_that_cannot_make_the_box_is_no_failure(place: Path, workspace: Path) -> None:
    gate = Verification.sandboxed(SandboxConfig(tier="gvisor"), folder=place)
    verdict = await gate.verify(workspace, ["true"])
    assert verdict.status == "could_not_verify"
    assert isinstance(verdict.error, TierUnavailableError)
    nowhere = await Verification.sandboxed(folder=place / "missing").verify(workspace, ["true"])
    assert isinstance(nowhere.error, HostError)
    assert nowhere.could_not_verify


async def test_a_tree_of_no_known_kind_is_not_verified(gate: Verification, workspace: Path) -> None:
    verdict = await gate.verify(workspace)
    assert verdict.could_not_verify
    assert "no pytest, cargo, go, npm or make project" in verdict.why


async def test_files_alone_are_a_tree(gate: Verification) -> None:
    assert (await gate.verify(files=MAKE.files)).passed
    assert (await gate.verify(files=MAKE.files | MAKE.broken)).failed


async def test_what_the_caller_got_wrong_is_raised(gate: Verification, workspace: Path) -> None:
    for wrong in ("true", [], [3], [[]]):
        with pytest.raises(ArgumentError, match="shell line"):
            await gate.verify(workspace, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="workspace, files"):
        await gate.verify()
    with pytest.raises(ConfigError, match="cannot be read"):
        await gate.verify(workspace / "missing", ["true"])
    with pytest.raises(ConfigError, match="no sandbox"):
        Verification.sandboxed(SandboxConfig(tier="process"))
    with pytest.raises(ConfigError, match="no workspace"):
        Verification.sandboxed(SandboxConfig(workspace=workspace))


@pytest.mark.parametrize("path", ["../out", "/etc/zz", "a/../../out", "link/out", "link", ""])
async def test_files_of_a_candidate_stay_in_the_tree(path: str, gate: Verification, workspace: Path, tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    (workspace / "link").symlink_to(target)
    verdict = await gate.verify(workspace, ["test ! -L link"], files={path: "x"})
    if path == "link":  # the link itself is replaced, and what it led to is as it was
        assert verdict.passed, verdict.for_model()
    else:
        assert verdict.failed
        assert isinstance(verdict.error, OutsideError)
    assert list(target.iterdir()) == []
    assert not (tmp_path / "out").exists()


async def test_a_check_that_is_given_up_leaves_nothing(gate: Verification, workspace: Path, place: Path) -> None:

    async def check() -> None:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:

                async def watch() -> None:
                    while not list(place.glob(f"*/{workspace.name}/begun")):  # noqa: ASYNC110 - a file tells no event
                        await anyio.sleep(0.01)
                    scope.cancel()

                tasks.start_soon(watch)
                await gate.verify(workspace, ["touch begun; sleep 60"])
            assert scope.cancelled_caught

    with anyio.fail_after(30):
        await check()
    assert list(place.iterdir()) == []
