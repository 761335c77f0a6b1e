"""What explain says is what a box then is: the same plan, the same answers, and nothing left behind."""

from __future__ import annotations

import difflib
import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence import errors
from ringfence.cli import main
from ringfence.confine import namespaces
from ringfence.confine.ids import BLOCKS_OF_THIS_HOST
from ringfence.explanation import Explanation, explain
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

GOLDEN = Path(__file__).with_name("golden")
WRITE = os.environ.get("RINGFENCE_GOLDEN") == "write"
"""Write down what is said now; the difference is then read before it is committed."""
SYSTEM = re.compile(r"(mount|link|file|folder|cover) /(usr|bin|sbin|lib|lib32|lib64|libx32|etc|sys|dev)(/| |$)")
CALLS = re.compile(r"(\w+ calls only|allowed \(|decided by|refused with|answered with)")
TEMPORARY = re.compile(r"/[^ =]*/ringfence-\d+-[^/ ]+")


def project(folder: Path) -> Path:
    """A workspace with something of each kind in it, and folders beside it."""
    work = folder / "project"
    for name in ("src", "out", "../tools", "../data", ".git/hooks", ".git/objects", ".git/refs/heads"):
        (work / name).mkdir(parents=True)
    for name in ("src/a.py", ".env", "src/.env", "id_rsa", "notes.txt", "../tools/tool", "../data/rows", ".git/config"):
        (work / name).write_text("[core]\n\trepositoryformatversion = 0\n" if name == ".git/config" else "x\n")
    (work / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (work / "run.sh").write_text("#!/bin/sh\nexit 0\n")
    (work / "lost.sh").write_text("#!/no/such/interpreter\n")
    for name in ("run.sh", "lost.sh"):
        (work / name).chmod(0o755)
    (work / "link").symlink_to("src/a.py")
    (work / "loop").symlink_to("loop")
    (work / "twin").hardlink_to(work / "id_rsa")
    (work / "out-of-it").symlink_to("/etc/shadow")
    return work


CONFIGS: dict[str, dict[str, Any]] = {
    "ephemeral": {},
    "workspace": {"workspace": "project"},
    "read-only": {"workspace": "project", "mode": "read-only"},
    "everything": {
        "workspace": "project",
        "read_only": ["../tools"],
        "writable": ["../data"],
        "deny": ["**/.env", "~/absent"],
        "protect": ["notes.txt"],
        "environment": {"CI": "true"},
        "pass_environment": ["TOKEN"],
        "limits": SandboxLimits(cpu_seconds=7, wall_seconds=30, open_files=64),
    },
}


def config_of(name: str, work: Path, tier: str) -> SandboxConfig:
    fields = dict(CONFIGS[name])
    if "workspace" in fields:
        fields["workspace"] = work
    return SandboxConfig(tier=tier, **fields)


BY_GROUPS = re.compile("  limit (backstop|processes) ")  # where no control group counts them


def normal(text: str, work: Path) -> str:
    """text without what differs from one machine, caller or call to the next."""
    ours = re.escape(str(work.parent))
    tools = re.compile(rf"  (mount (?!{ours})\S+ \(ro\)$|(link|cover) (?!{ours}|/var/tmp |/proc/))")
    kept = []
    for line in text.splitlines():
        if SYSTEM.match(line.strip()) or tools.match(line) or BY_GROUPS.match(line):
            continue
        line = re.sub(r"^  set PATH=.*", "  set PATH=...", line)
        line = re.sub(r"^  programs by .*", "  programs by ...", line)
        line = re.sub(r"^(  hash +)[0-9a-f]{64}$", r"\1...", line)
        line = re.sub(r"^  (ids|cpu|memory|max_processes|cpu_share): .*", r"  \1: ...", line)
        line = "  system calls ..." if CALLS.match(line.strip()) else line
        line = re.sub(r"^  watch (.*)/[^/]+: is not there; .*", r"  watch \1/...", line)
        line = TEMPORARY.sub("PRIVATE", line.replace(str(work.parent), "PROJECTS"))
        if not line.endswith("...") or line not in kept[-1:]:
            kept.append(line)
    return "\n".join(kept) + "\n"


@pytest.fixture
def plain_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller with little of its own: a home without tools, the system's PATH."""
    (tmp_path / "home").mkdir()
    for name in list(os.environ):
        if name not in ("PATH", "TMPDIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin:relative")
    monkeypatch.setenv("TOKEN", "a secret that is passed")


@pytest.mark.usefixtures("plain_caller")
@pytest.mark.parametrize("name", CONFIGS)
def test_policy_and_plan_are_as_written_down(name: str, tier: str, tmp_path: Path) -> None:
    work = project(tmp_path)
    config = config_of(name, work, tier)
    try:
        text = normal(str(explain(config)), work)
    except errors.UnenforceableError as error:
        text = f"{error}\n"
    file = GOLDEN / f"explain-{name}-{tier}.txt"
    if WRITE:
        file.write_text(text)
    assert text == file.read_text(), "\n".join(difflib.unified_diff(file.read_text().splitlines(), text.splitlines()))


@pytest.mark.usefixtures("plain_caller")
@pytest.mark.parametrize("name", CONFIGS)
def test_the_plan_is_the_one_that_a_box_is_then_made_from(name: str, tier: str, tmp_path: Path) -> None:
    config = config_of(name, project(tmp_path), tier)
    if tier == "process" and name in ("read-only", "everything"):
        with pytest.raises(errors.UnenforceableError):
            explain(config)
        return
    told = explain(config)
    with Sandbox(config) as box:
        assert box._world is not None
        plan = box._world.prepared.plan
        assert [TEMPORARY.sub("", line) for line in told.plan.describe()] == [TEMPORARY.sub("", line) for line in plan.describe()]
        assert (told.backend, told.enforcement, told.notes) == (box.backend, box.enforcement, box._world.prepared.notes)
        assert box.run(["true"]).policy_hash == told.policy.hash
    if tier == "namespaces" and name == "ephemeral":
        assert replace(told.plan, beginning=plan.beginning) == plan  # another box may have taken the block of ids meanwhile


def held() -> int:
    """Descriptors of this process, but for the namespaces that are kept for the blocks of ids that other boxes leave free."""
    return len(os.listdir("/proc/self/fd")) - len(namespaces._idmaps)


def test_nothing_is_left_of_an_explanation(tier: str, tmp_path: Path) -> None:
    work = project(tmp_path)
    config = SandboxConfig(tier=tier, workspace=work)
    explain(config)  # from here on the process that makes boxes is there
    before = held(), sorted(str(each) for each in work.rglob("*"))
    for _ in range(3):
        explain(config)
    assert not BLOCKS_OF_THIS_HOST._held  # of ids: a root caller's box has one
    assert (held(), sorted(str(each) for each in work.rglob("*"))) == before


PATHS = (
    "src/a.py", "src", "new.txt", "no/such/place", ".env", "src/.env", "src/.env/below", "id_rsa", "notes.txt", "link", "out-of-it",
    "../tools/tool", "../data/rows", "../data/more", "../other", "/usr/bin/env", "/bin/sh", "/etc/passwd", "/etc/shadow", "/tmp/x",
    "/proc/kcore", "/proc/self/status", "/var/log", "/home/user/x", "/", "/home", ".git", ".git/HEAD", ".git/objects", "src/a.py/x",
    "src/../.env", "link/x", "loop", "loop/x", "./src//a.py", "src/", "out/../../tools/tool", "twin", "/dev/null", "/dev/shm/x",
    "/sys", "/sys/devices/system/cpu", "/sys/kernel", "/run", "/var", "/var/tmp/x", "/home/user", "/root", "/.ringfence", "/etc",
    "/etc/x", "/usr/x", "/lib", "/dev/fd", "/proc", "/proc/sys", "/proc/sys/kernel/hostname", "run.sh", "/dev", "/dev/sda", "../..",
    "/tmp",
)  # fmt: skip
TRY = """
import os, sys
for path in sys.argv[1:]:
    try: os.listdir(path) if os.path.isdir(path) else open(path, "rb").close(); read = "r"
    except OSError: read = "-"
    made = not os.path.lexists(path)
    try:
        if os.path.isdir(path): os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY))
        else:
            above = os.path.dirname(os.path.abspath(path))
            new = made and not os.path.lexists(above)
            if new: os.makedirs(above)
            open(path, "ab").close()
        write = "w"
    except OSError: write = "-"
    if made and write == "w":
        os.unlink(path)
        if new: os.removedirs(above)
    print(read + write)
"""


@pytest.mark.usefixtures("plain_caller")
def test_what_is_said_of_a_path_is_what_a_program_in_the_box_meets(tmp_path: Path) -> None:
    work = project(tmp_path)
    config = config_of("everything", work, "namespaces")
    told = explain(config)
    with Sandbox(config) as box:
        tried = box.run(["/usr/bin/python3", "-c", TRY, *PATHS]).raise_for_status().stdout.split()
    said = []
    for path in PATHS:
        acts = dict(told.path(path).decisions)
        said.append(("r" if acts["read"].allowed else "-") + ("w" if acts["write"].allowed else "-"))
    assert dict(zip(PATHS, said, strict=True)) == dict(zip(PATHS, tried, strict=True))
    assert {"rw", "r-", "--"} <= set(tried)


RULES = (
    ("src/a.py", "readable and writable", "write", "filesystem.workspace"),
    (".env", "covered", "read", "filesystem.deny"),
    ("id_rsa", "covered", "read", "built in: **/id_rsa"),
    ("twin", "covered", "read", "built in"),
    ("notes.txt", "protected", "write", "filesystem.protect"),
    (".git/config", "private", "write", "built in: .git/config"),
    (".git/hooks/pre-commit", "watched|private|absent", "write", "built in: .git/hooks"),
    (".vscode/tasks.json", "watched for", "write", "built in: .vscode"),
    ("../tools/tool", "readable, not writable", "write", "filesystem.read_only"),
    ("../data/rows", "readable and writable", "write", "filesystem.writable"),
    ("/etc/shadow", "absent", "read", "default"),
    ("/usr/bin/env", "readable, not writable", "read", "the system's folders"),
)


@pytest.mark.usefixtures("plain_caller")
def test_the_rule_that_decides_is_named(tmp_path: Path) -> None:
    told = explain(config_of("everything", project(tmp_path), "namespaces"))
    for path, state, act, rule in RULES:
        answer = told.path(path)
        decision = dict(answer.decisions)[act]
        assert re.match(state, answer.state), answer
        assert decision.rule == rule and decision.why, answer


def test_a_secret_of_the_home_is_absent_by_the_built_in_list() -> None:
    answer = explain(SandboxConfig(tier="namespaces")).path("~/.ssh/id_rsa")
    assert answer.state == "absent"
    assert {decision.rule for _, decision in answer.decisions} == {"built in: ~/.ssh"}


def test_of_the_floor_it_is_said_that_it_confines_nothing(tmp_path: Path) -> None:
    work = project(tmp_path)
    told = explain(SandboxConfig(tier="process", workspace=work))
    for answer in (told.path("src/a.py"), told.path(".git/config"), told.path("id_rsa"), told.host("example.com")):
        assert answer.allowed and {decision.rule for _, decision in answer.decisions} == {"tier process"}, answer
    assert dict(told.path("/no/such/file").decisions)["read"].allowed is False


@pytest.mark.usefixtures("plain_caller")
def test_the_file_that_a_command_starts_is_the_one_that_the_shell_finds(tmp_path: Path) -> None:
    work = project(tmp_path)
    config = SandboxConfig(tier="namespaces", workspace=work)
    told = explain(config)
    with Sandbox(config) as box:
        for name in ("env", "sh", "cat"):
            found = box.run(["sh", "-c", f"readlink -f $(command -v {name})"]).stdout.strip()
            assert told.command([name]).state == f"starts {found}"
        for argv, starts in (
            (["./run.sh"], True),
            (["./lost.sh"], False),
            (["./notes.txt"], False),
            (["no-such"], False),
            (["./src"], False),
        ):
            assert (box.run(argv).exit_code == 0) == starts == told.command(argv).allowed, argv
    assert "/no/such/interpreter" in str(told.command(["./lost.sh"]))
    assert told.command(["./run.sh"]).details[0].startswith("needs /bin/sh, which is there")


@pytest.mark.usefixtures("plain_caller")
def test_each_variable_has_its_value_and_its_rule(tmp_path: Path) -> None:
    config = config_of("everything", project(tmp_path), "namespaces")
    told = explain(config)
    with Sandbox(config) as box:
        inside = dict(line.split("=", 1) for line in box.run(["env"]).stdout.splitlines())
    rules = {"CI": "environment.set", "TOKEN": "environment.pass", "HOME": "built in", "SECRET": "default"}
    for name, rule in rules.items():
        answer = told.variable(name)
        assert answer.decisions[0][1].rule == rule
        assert answer.state == (f"set to {inside[name]}" if name in inside else "not set in the box")
    assert "a secret that is passed" not in str(told) + json.dumps(told.data())


def test_hosts_are_refused_but_for_the_box_itself() -> None:
    told = explain(SandboxConfig(tier="namespaces"))
    assert told.host("example.com").subject == "example.com:443"
    for host in ("example.com", "example.com:80", "203.0.113.9", "[2001:db8::1]:53", "2001:db8::1"):
        assert not told.host(host).allowed, host
    for host in ("localhost:8000", "127.0.0.1:1", "::1"):
        assert told.host(host).allowed, host


def test_what_no_box_can_be_made_from_is_refused_as_it_is_for_a_box(tmp_path: Path) -> None:
    for config in (SandboxConfig(tier="docker"), SandboxConfig(workspace=tmp_path / "none"), SandboxConfig(image="debian")):
        with pytest.raises(errors.RingfenceError) as told:
            explain(config)
        with pytest.raises(type(told.value)) as made, Sandbox(config):
            pass
        assert str(told.value) == str(made.value)


# The command


def ringfence(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence", "explain", *argv]
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_prints_what_the_function_returns(tmp_path: Path) -> None:
    work = project(tmp_path)
    done = ringfence("--tier", "namespaces", cwd=work)
    assert done.returncode == 0, done.stderr
    headings = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert headings[:3] == ["policy", "plan", "enforcement, tier namespaces"]
    plan = done.stdout.split("\nplan\n")[1].split("\n\n")[0].splitlines()
    assert plan == [f"  {line}" for line in explain(SandboxConfig(tier="namespaces", workspace=work)).plan_lines()]
    data = json.loads(ringfence("--tier", "namespaces", "--json", cwd=work).stdout)
    assert [f"  {line}" for line in data["plan"]] == plan
    assert data["policy"]["workspace"] == str(work) and data["policy"]["read_only"] == []
    assert data["policy"]["limits"]["wall_seconds"] == 120 and len(data["policy"]["hash"]) == 64
    assert data["enforcement"]["network"] == {"level": "full", "by": "namespaces", "note": "no interface but loopback"}


def test_each_question_is_answered_with_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project(tmp_path))

    def asked(*argv: str) -> tuple[int | str | None, str]:
        try:
            status: int | str | None = main(["explain", *argv])
        except SystemExit as mistake:
            status = mistake.code
        return status, "".join(capsys.readouterr())

    for argv, status, text in (
        (("path", "id_rsa"), 0, "built in: **/id_rsa"),
        (("host", "example.com"), 0, "refused by network.default"),
        (("env", "HOME"), 0, "/home/user"),
        (("--", "sh", "-c", "true"), 0, "\ncommand\n  sh: starts /"),
        (("--", "no-such-program"), 1, "no folder of the box's PATH"),
        (("path",), 2, "one thing after 'path'"),
        (("path", "src", "--json"), 2, "options go before 'path'"),
        (("ls",), 2, "put a command after --"),
        (("--",), 2, "a command is missing"),
        (("--workspace", "/no/such/folder"), 125, "cannot be used"),
    ):
        found, said = asked(*argv)
        assert (found, text in said) == (status, True), (argv, said)
    assert json.loads(asked("--json", "path", "src")[1])["acts"]["read"]["allowed"] is True
    data = json.loads(asked("--json", "--", "no-such-program")[1])
    assert data["command"]["acts"]["exec"]["allowed"] is False and data["plan"] and data["policy"]["mode"] == "workspace-write"


def test_a_name_with_an_escape_sequence_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    work = project(tmp_path)
    (work / "a\x1b[2Jb").mkdir()
    done = ringfence("path", "a\x1b[2Jb", cwd=work)
    assert "\x1b" not in done.stdout and "a\\e[2Jb: readable and writable" in done.stdout
    done = ringfence(cwd=work / "a\x1b[2Jb")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "a\\e[2Jb" in done.stdout


def in_terminal(argv: list[str], cwd: Path, environment: dict[str, str]) -> str:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(sys.executable, [sys.executable, "-m", "ringfence", *argv], {**os.environ, **environment})
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:
        pass  # the other side is closed: the end of a terminal
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return shown.decode()


def test_lines_are_broken_between_words_at_the_width_of_a_terminal(tmp_path: Path) -> None:
    work = project(tmp_path)
    narrow = in_terminal(["explain"], work, {"COLUMNS": "60", "NO_COLOR": "1"}).replace("\r", "").splitlines()
    assert all(len(line) <= 60 or len(line.split()[-1]) > 20 for line in narrow)
    assert max(len(line) for line in ringfence(cwd=work).stdout.splitlines()) > 200


def test_headings_are_bold_in_a_terminal_that_wants_it_and_nowhere_else(tmp_path: Path) -> None:
    work = project(tmp_path)
    assert "\x1b[1mpolicy\x1b[0m" in in_terminal(["explain"], work, {"TERM": "xterm", "NO_COLOR": ""})
    assert "\x1b" not in in_terminal(["explain"], work, {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in in_terminal(["explain"], work, {"TERM": "dumb", "NO_COLOR": ""})
    assert "\x1b" not in ringfence(cwd=work).stdout


def test_an_explanation_is_printed_whole(tmp_path: Path) -> None:
    told: Explanation = explain(SandboxConfig(workspace=project(tmp_path), tier="namespaces"))
    assert all(line in str(told) for line in told.plan.describe())


def test_where_no_namespaces_can_be_had_it_says_what_a_box_would_get(tmp_path: Path) -> None:
    work = project(tmp_path)
    (work / "floor.yaml").write_text("version: 1\nminimum: process\nfilesystem: {workspace: {path: .}}\n")
    floor = '"$0" -m ringfence explain --policy floor.yaml'
    script = f'echo 0 > /proc/sys/user/max_user_namespaces; "$0" -m ringfence explain; echo $?; {floor}'
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    done = subprocess.run([*inside, script, sys.executable], cwd=work, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("125\n") and "user.max_user_namespaces is 0" in done.stderr
    assert "tier          auto (process)" in done.stdout and "filesystem: none" in done.stdout
    assert "The floor, tier 'process', confines nothing; it was used because" in done.stdout
    done = subprocess.run([*inside, floor, sys.executable], cwd=work, capture_output=True, text=True, timeout=60, check=True)
    assert "tier          auto (namespaces)" in done.stdout


@pytest.mark.usefixtures("plain_caller")
def test_of_a_box_with_all_of_the_host_it_says_what_is_open_and_what_is_covered(tmp_path: Path) -> None:
    work = project(tmp_path)
    config = SandboxConfig(tier="namespaces", workspace=work, mode="danger-full-access")
    told = explain(config)
    with Sandbox(config) as box:
        for path, readable in (
            ("../data/rows", True),
            ("id_rsa", False),
            ("/usr/bin/env", True),
            ("/run", False),
            ("src/a.py", True),
        ):
            assert box.run(["head", "-c1", path]).ok or path == "/run" or not readable
            assert box.run(["test", "-r", path]).ok == readable == dict(told.path(path).decisions)["read"].allowed, path
    assert told.path("../data/rows").decisions[1][1].rule == "mode"


def test_a_question_about_a_policy_that_cannot_be_enforced_yet_is_answered_beside_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\nnetwork: {allow: ['*.allowed.example.com:443']}\nsnapshot_on_exit: true\n")

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ringfence", "explain", "--policy", "policy.yaml", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    for host, decides in (
        ("x.allowed.example.com:443", "allowed by network.allow: *.allowed.example.com:443"),
        ("example.org:443", "nothing of network.allow opens"),
    ):
        said = asked("host", host)
        assert said.returncode == 125 and "cannot enforce snapshot_on_exit" in said.stderr
        assert decides in " ".join(said.stdout.split())
    assert asked().returncode == 125 and asked().stdout == ""  # the control: there is no plan to show
