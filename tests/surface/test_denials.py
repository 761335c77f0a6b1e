"""What a run was refused is on its result, by rule and remedy; what merely failed, or only says so, is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.errors import OutsideError
from ringfence.explanation import explain
from ringfence.outcome import Denial, Exited, NotStarted
from ringfence.sync import Sandbox, SandboxConfig


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host that no box has, nor one of its own in its place."""
    base = Path.home() if os.getuid() else Path("/opt")
    with tempfile.TemporaryDirectory(dir=base, prefix="rf-tests-") as folder:
        os.chmod(folder, 0o755)
        for name in ("rows", "some: [rows], #1"):
            Path(folder, name).write_text("x\n")
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
    "sh writes": "echo x > {0}/new",
    "a mode of its own": "echo x > {0}/rows",
    "dash writes": "dash -c 'echo x > {0}/new'",
    "touch": "touch {0}/new",
    "mkdir": "mkdir {0}/new",
    "rm": "rm {0}/rows",
    "cp in": "cp {0}/rows .",
    "cp out": "echo x > a; cp a {0}/new",
    "python writes": 'python3 -c \'import pathlib; pathlib.Path("{0}/new").write_text("x")\'',
    "python reads": "python3 -c 'open(\"{0}/rows\")'",
    "node writes": 'node -e \'fs.promises.writeFile("{0}/new", "x")\'',
    "git locks": "git config --file {0}/new a.b c",
    "gcc": "echo 'int main() {{}}' | gcc -o {0}/new -x c -",
    "make": "printf 'all:\\n\\tcp Makefile {0}/new\\n' > Makefile; make",
    "cat": "cat {0}/rows",
    "ls": "ls {0}",
    "a link out": "ln -s {0}/rows way; cat way",
    "another folder": "cd / && cat {0}/rows",
    "a name with spaces": "cat {0}/'some: [rows], #1'",
    "usr": "touch {1}/rf-tests-new",
}


@pytest.mark.parametrize("act", ACTS)
def test_the_act_succeeds_once_the_remedy_is_in_the_policy(act: str, workspace: Path, outside: Path, tmp_path: Path) -> None:
    system = Path("/usr/local") if os.access("/usr/local", os.W_OK) else outside
    command = ACTS[act].format(outside, system)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        refused = box.execute_command(command)
    try:
        assert refused.outcome != Exited(0)
        denial = only(refused.denials)
        assert denial.kind in ("read", "write")
        assert denial.remedy is not None
        shutil.rmtree(workspace)
        workspace.mkdir()
        with Sandbox(apply(denial.remedy, workspace, tmp_path / "policy.yaml")) as box:
            allowed = box.execute_command(command)
        assert (allowed.outcome, allowed.denials) == (Exited(0), ()), allowed.stderr
    finally:
        (system / "rf-tests-new").unlink(missing_ok=True)


CLOSED = {
    "a secret that is covered": ("cat .netrc", "read", "built in: **/.netrc"),
    "what deny names": ("cat kept", "read", "filesystem.deny"),
    "what deny names, overwritten": ("echo x > kept", "write", "filesystem.deny"),
    "what deny names, removed": ("rm -f kept", "write", "filesystem.deny"),
    "what protect names": ("echo x >> Makefile", "write", "filesystem.protect"),
    "a setting of an editor": ("echo x > .vscode/tasks.json", "write", "built in: .vscode"),
    "a folder of settings, renamed": ("mv .vscode x", "write", "built in: .vscode"),
    "a private copy, removed": ("rm .git/config", "write", "built in: .git/config"),
    "a folder that is held": ("mv .git x", "write", "protected: pin"),
    "the system": ("touch /usr/new", "write", "the system's folders"),
    "what the kernel shows": ("echo 1 > /proc/sys/vm/swappiness", "write", "the system's folders"),
    "a file made for the box": ("rm -f /etc/hosts", "write", "the system's folders"),
    "a folder that is read-only": ("touch data/new", "write", "filesystem.read_only"),
}  # fmt: skip


def test_what_no_line_opens_has_no_remedy(workspace: Path) -> None:
    (workspace / ".vscode").mkdir()
    (workspace / "data").mkdir()
    for name in (".netrc", "kept", "Makefile", ".vscode/tasks.json", "data/rows"):
        (workspace / name).write_text("x\n")
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    config = SandboxConfig(workspace=workspace, deny=["kept"], protect=["Makefile"], read_only=["data"])
    with Sandbox(config) as box:
        for command, kind, rule in CLOSED.values():
            result = box.execute_command(command)
            denial = only(result.denials)
            assert (denial.kind, denial.rule, denial.evidence, denial.remedy) == (kind, rule, "inferred", None), command
            assert result.outcome != Exited(0)
            assert denial.target.startswith("/")
        inner = only(box.execute_command("echo x >> data/rows").denials)
        assert (inner.rule, inner.remedy) == ("filesystem.read_only", f"filesystem.writable: [{workspace}/data/rows]")
        # What is beside it stays open: no denial where only a name is alike.
        fine = box.execute_command("echo x > kept2; cat kept2; git config a.b c; mkdir d; chmod 0 d; ls d; cat nope; rmdir d")
        assert fine.denials == ()


def test_a_read_only_workspace_names_the_mode(workspace: Path, tmp_path: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, mode="read-only")) as box:
        denial = only(box.execute_command("touch new").denials)
    assert (denial.kind, denial.target, denial.rule) == ("write", f"{workspace}/new", "filesystem.workspace")
    assert denial.remedy == "mode: workspace-write"
    with Sandbox(apply(denial.remedy, workspace, tmp_path / "policy.yaml")) as box:
        assert box.execute_command("touch new").outcome == Exited(0)


def test_no_line_is_offered_that_would_not_do(workspace: Path, outside: Path) -> None:
    """What the box's user may not touch by owner and mode, what a link hides, and a home as a whole."""
    (outside / "closed").mkdir()
    (outside / "closed").chmod(0o500 if os.getuid() else 0o750)
    (outside / "way").symlink_to(outside)
    acts = {f"touch {outside}/closed/new": "write", f"cat {outside}/way/rows": "read", f"touch {Path.home()}/rf-new": "write"}
    if not os.getuid():  # the box of a root caller stands for the owner of the workspace
        os.chown(workspace, 1000, 1000)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for command, kind in acts.items():
            denial = only(box.execute_command(command).denials)
            assert (denial.kind, denial.rule, denial.remedy) == (kind, "default", None), command


def test_a_secret_outside_is_told_the_same_whether_it_is_there_or_not(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path.home() if os.getuid() else Path("/opt")
    with tempfile.TemporaryDirectory(dir=base, prefix="rf-tests-") as home:
        monkeypatch.setenv("HOME", home)
        Path(home, ".ssh").mkdir()
        Path(home, ".ssh/id_rsa").write_text("x")
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            there, not_there, unnamed = (
                box.execute_command(f"cat {home}/{name}").denials for name in (".ssh/id_rsa", ".ssh/nope", "nope")
            )
    assert [(each.rule, each.remedy) for each in (*there, *not_there)] == [("built in: ~/.ssh", None)] * 2
    assert unnamed == ()


def test_a_program_that_is_not_in_the_box_and_is_outside_is_a_denial_of_its_start(
    workspace: Path, outside: Path, tmp_path: Path
) -> None:
    tool = outside / "tool"
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        refused, missing = box.run([str(tool)]), box.run([f"{outside}/nope"])
    denial = only(refused.denials)
    assert isinstance(refused.outcome, NotStarted)
    assert (denial.kind, denial.target, denial.remedy) == ("exec", str(tool), f"filesystem.read_only: [{tool}]")
    assert (missing.denials, isinstance(missing.outcome, NotStarted)) == ((), True)
    said = subprocess.run(
        [sys.executable, "-m", "ringfence", "run", "--", str(tool)], cwd=workspace, capture_output=True, check=False, timeout=60
    )
    assert f"exec {tool} refused by default; allowed by {denial.remedy}" in said.stderr.decode()
    with Sandbox(apply(denial.remedy or "", workspace, tmp_path / "policy.yaml")) as box:
        assert box.run([str(tool)]).outcome == Exited(7)


def test_the_floor_closes_nothing_so_nothing_is_a_denial(workspace: Path, outside: Path) -> None:
    commands = ("cat /nowhere/x", "mkdir d; chmod 0 d; ls d; rmdir d", f"echo 'cat: {outside}/rows: No such file or directory' >&2")
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        told = [box.execute_command(command).denials for command in commands]
        box.write_file("lie.sh", "echo \"touch: cannot touch '/etc/zz': Read-only file system\" >&2")
        assert [*told, box.run(["sh", "lie.sh"]).denials] == [()] * 4


NETWORK = {
    "curl -sS http://denied.test/": ("denied.test:80", "network.allow: [denied.test]"),
    "curl -sS https://203.0.113.9:8443/": ("203.0.113.9:8443", 'network.allow: ["203.0.113.9:8443"]'),
    "git clone -q https://denied.test/x": ("denied.test:443", "network.allow: [denied.test]"),
    "ssh -o BatchMode=yes denied.test": ("denied.test:22", "network.allow: [denied.test:22]"),
    "node -e 'fetch(\"http://denied.test:81/\")'": ("denied.test:81", "network.allow: [denied.test:81]"),
    "python3 -c 'import urllib.request as u; u.urlopen(\"http://denied.test\")'": (
        "denied.test:80", "network.allow: [denied.test]",
    ),
    "python3 -c 'import socket; socket.create_connection((\"203.0.113.9\", 9))'": ("a host", None),
}  # fmt: skip


def test_a_host_that_was_not_reached_is_a_denial_with_its_name(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for command, (target, remedy) in NETWORK.items():
            result = box.execute_command(command)
            denial = only(result.denials)
            said = (denial.kind, denial.target, denial.rule, denial.evidence, denial.remedy)
            assert said == ("net", target, "network.default", "inferred", remedy), command
            assert result.outcome != Exited(0)
        for command in (
            "curl -sS http://localhost:9/",
            "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'",
            "echo 'curl: (6) Could not resolve host: denied.test' >&2; exit 6",
            'python3 -c \'assert "Could not resolve host: denied.test" in ""\'',
        ):
            assert box.execute_command(command).denials == (), command


def test_a_cap_that_a_program_names_is_a_denial_where_it_is_set(workspace: Path, tmp_path: Path) -> None:
    program = "python3 -c 'import os; a = [os.open(\"/dev/null\", 0) for _ in range(600)]'"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        denial = only(box.execute_command(program).denials)
        own = box.execute_command(f"ulimit -n 20; {program}")
    assert denial == Denial("cap", "open_files", "resources.open_files: 512", "inferred", "resources.open_files: 1024")
    assert (own.outcome, own.denials) == (Exited(1), ())  # a limit that it set itself
    with Sandbox(apply(denial.remedy or "", workspace, tmp_path / "policy.yaml")) as box:
        assert box.execute_command(program).outcome == Exited(0)


def test_a_streamed_run_tells_it_too_and_the_box_keeps_all(workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        box.execute_command("touch /etc/one; true")
        for read in (
            lambda stream: stream.read(),
            lambda stream: [*iter(lambda: stream.read(4096), b"")],
            lambda stream: [*stream],
        ):
            with box.spawn(["touch", "/etc/zz"]) as process:
                read(process.stderr)
                assert only(process.wait().denials).target == "/etc/zz"
    assert [each.target for each in box.denials()] == ["/etc/one", *["/etc/zz"] * 3]


def test_where_commands_start_opens_nothing(workspace: Path, outside: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "up").symlink_to("/")
    (workspace / "etc").symlink_to("/etc")
    (workspace / "out").symlink_to(outside)
    (workspace / "here").symlink_to("sub")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for cwd in ("/", "..", f"{workspace}/../..", "sub/../..", "/etc", str(outside)):
            with pytest.raises(OutsideError):
                box.run(["touch", "escaped"], cwd=cwd)
        for cwd in ("up", "etc", "out", "sub/../up", "~"):
            assert box.run(["touch", "escaped"], cwd=cwd).outcome != Exited(0)
        for cwd in ("sub", "here", ".", str(workspace)):  # the control; and nothing more is open from there
            assert box.run(["touch", "escaped"], cwd=cwd).outcome == Exited(0)
            assert box.run(["touch", "/etc/escaped", f"{outside}/escaped"], cwd=cwd).outcome == Exited(1)
    found = [str(path) for folder in ("/", "/etc", outside, workspace.parent) for path in Path(folder).glob("escaped")]
    assert found == []


def test_files_of_the_workspace_widen_no_policy(workspace: Path) -> None:
    before = explain(SandboxConfig(workspace=workspace))
    wide = {
        "sandbox.toml": '[sandbox]\nnetwork = "all"\nwritable = ["/"]\n',
        "policy.yaml": "version: 1\nmode: danger-full-access\nnetwork: {default: allow}\n",
        ".env": "SANDBOX_DISABLE=1\nRINGFENCE_TIER=process\n",
    }
    wide |= dict.fromkeys((".sandboxrc", "pyproject.toml", "ringfence.toml", ".ringfence.toml"), wide["sandbox.toml"])
    wide |= dict.fromkeys((".ringfence.yaml", "ringfence.yaml", ".ringfence/policy.yaml"), wide["policy.yaml"])
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for name, content in wide.items():
            box.write_file(name, content)
        assert box.run(["true"]).policy_hash == before.policy.hash
    after = explain(SandboxConfig(workspace=workspace))
    assert (after.policy, after.backend, after.enforcement.network) == (before.policy, before.backend, before.enforcement.network)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["touch", "/usr/escaped"]).outcome == Exited(1)
        assert box.run(["true"]).policy_hash == before.policy.hash
    done = subprocess.run(
        [sys.executable, "-m", "ringfence", "explain", "--json"], cwd=workspace, capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout)["policy"]["hash"] == before.policy.hash


@pytest.mark.anyio
async def test_the_awaiting_surface_tells_the_same(workspace: Path) -> None:
    from ringfence import Sandbox as AwaitingSandbox

    async with AwaitingSandbox(SandboxConfig(workspace=workspace)) as box:
        assert only((await box.execute_command("touch /etc/zz")).denials).target == "/etc/zz"
        async with await box.spawn(["sh", "-c", "touch /usr/zz; echo done"]) as process:
            said = b"".join([piece async for piece in process.stderr])
            result = await process.wait()
    assert b"Read-only" in said
    assert (only(result.denials).target, result.outcome) == ("/usr/zz", Exited(0))


def test_a_rename_across_a_held_folder_is_a_denial(workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    (workspace / "a").write_text("x")
    rename = "import os; os.rename('a', '.git/a')"
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        denial = only(box.run(["python3", "-c", rename]).denials)
        assert (denial.kind, denial.target, denial.rule) == ("write", f"{workspace}/.git/a", "protected: pin")
        assert denial.remedy is None
        assert box.execute_command("cp a .git/a && mv a b && rm .git/a").denials == ()  # the same by a copy, and within one side
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        (workspace / "b").rename(workspace / "a")
        assert box.run(["python3", "-c", rename]).outcome == Exited(0)
