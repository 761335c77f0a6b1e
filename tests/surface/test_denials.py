"""What a run was refused is on its result, by rule and remedy; what merely failed, or only says so, is not."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.outcome import Denial, Exited
from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host that no box has, nor one of its own in its place."""
    base = Path.home() if os.getuid() else Path("/opt")
    with tempfile.TemporaryDirectory(dir=base, prefix="rf-tests-") as folder:
        os.chmod(folder, 0o755)
        Path(folder, "rows").write_text("x\n")
        yield Path(folder)


def only(denials: tuple[Denial, ...]) -> Denial:
    assert len(denials) == 1, denials
    return denials[0]


def test_a_write_to_the_system_is_a_denial_with_its_rule(box: Sandbox) -> None:
    result = box.execute_command("echo x > /etc/zz")
    assert result.outcome == Exited(1)
    assert only(result.denials) == Denial(
        "write", "/etc/zz", "default", "inferred", None, "nothing of the policy opens /etc/zz, so it is not in the box"
    )


def test_a_denial_is_told_also_when_the_command_exits_0(box: Sandbox) -> None:
    result = box.execute_command("echo x > /etc/zz; true")
    assert result.outcome == Exited(0)
    assert only(result.denials).target == "/etc/zz"


def test_an_ordinary_failure_is_no_denial(workspace: Path) -> None:
    (workspace / "a").write_text("a\n")
    (workspace / "b").write_text("b\n")
    commands = (
        "false", "grep zzz /dev/null", "python3 -c 'import sys; sys.exit(2)'", "python3 -m pytest no_such_dir", "diff a b",
        "test -e nope", "cat nosuchfile", "/usr/bin/nosuch", "cat /usr/nosuch/x", "nosuchcommand", "mkdir a", "cd a", "ls /nowhere",
        "rmdir .", "cat < nope", "sh nope.sh", "python3 nope.py", "git log", "touch nosuchdir/x", "kill -9 999999",
    )  # fmt: skip
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        told = {command: box.execute_command(command).denials for command in commands}
    assert not {command: denials for command, denials in told.items() if denials}


def test_words_of_a_denial_in_the_output_are_none(workspace: Path) -> None:
    (workspace / "README").write_text("how to read 'Permission denied'\n")
    commands = (
        "echo 'sandbox: Operation not permitted (seccomp, landlock), Read-only file system'; exit 1",
        "mkdir d; chmod 0 d; ls d; exit 1",
        "cat README | grep -i 'permission denied'",
        "echo \"touch: cannot touch '/etc/zz': Read-only file system\" >&2; exit 1",
        "echo \"touch: cannot touch '/etc/zz': Read-only file system\"; exit 1",
    )
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for command in commands:
            assert box.execute_command(command).denials == (), command
        # The same words, not its own: the control.
        assert only(box.execute_command("touch /etc/zz").denials).target == "/etc/zz"


def apply(remedy: str, workspace: Path, file: Path) -> SandboxConfig:
    """The config of a policy file that has the line of a remedy, spelled as a nested key."""
    key, _, value = remedy.partition(": ")
    lines = ["version: 1"]
    lines += [f"{'  ' * depth}{name}:" for depth, name in enumerate(key.split("."))]
    lines[-1] += f" {value}"
    path = f"workspace: {{path: {json.dumps(str(workspace))}}}"
    lines = [*lines, f"  {path}"] if key.startswith("filesystem.") else [*lines, "filesystem:", f"  {path}"]
    file.write_text("\n".join(lines) + "\n")
    return SandboxConfig.from_file(file)


ACTS = {
    "sh writes": "echo x > {}/new",
    "dash writes": "dash -c 'echo x > {}/new'",
    "touch": "touch {}/new",
    "mkdir": "mkdir {}/new",
    "python writes": 'python3 -c \'import pathlib; pathlib.Path("{}/new").write_text("x")\'',
    "cat": "cat {}/rows",
    "ls": "ls {}",
    "python reads": "python3 -c 'open(\"{}/rows\")'",
    "a link out": "ln -s {}/rows way; cat way",
    "another folder": "cd / && cat {}/rows",
}


@pytest.mark.parametrize("act", ACTS)
def test_the_act_succeeds_once_the_remedy_is_in_the_policy(act: str, workspace: Path, outside: Path, tmp_path: Path) -> None:
    command = ACTS[act].format(outside)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        refused = box.execute_command(command)
    assert refused.outcome != Exited(0)
    denial = only(refused.denials)
    assert denial.kind in ("read", "write")
    assert denial.remedy is not None
    for entry in workspace.iterdir():
        entry.unlink()
    with Sandbox(apply(denial.remedy, workspace, tmp_path / "policy.yaml")) as box:
        allowed = box.execute_command(command)
    assert (allowed.outcome, allowed.denials) == (Exited(0), ()), allowed.stderr
    shutil.rmtree(outside / "new", ignore_errors=True)
