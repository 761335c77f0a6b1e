"""ringfence check, ringfence policy and ringfence run --policy, as a person or a script meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EVERYTHING_HOLDS = """
version: 1
filesystem:
  workspace: {path: .}
  protect: [Makefile]
examples:
  allowed: ["read ./src", "write ./out/x", "exec sh -c true"]
  refused: ["read ~/.ssh/id_rsa", "write .git/hooks/pre-commit", "write Makefile", "connect 203.0.113.9:443"]
"""
MUCH_IS_WRONG = """
version: 1
filesystem:
  workspace: {path: .}
network: {allow: ["example.com:443"]}
snapshot_on_exit: true
credentials:
  git: proxy
  tools: vault_proxy
examples:
  allowed:
    - read ~/.ssh/id_rsa
    - read src
    - connect example.org:443
  refused:
    - write src/x
    - connect example.com:443
"""


def ringfence(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence", *argv]
    given = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=given
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "sub").mkdir()
    return folder


def written(folder: Path, text: str, name: str = "policy.yaml") -> str:
    (folder / name).write_text(text)
    return name


def test_a_policy_whose_examples_hold_is_ok(project: Path) -> None:
    done = ringfence("check", written(project, EVERYTHING_HOLDS), cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "policy.yaml: ok, and 7 examples hold\n", "")


def test_an_entry_that_deny_leaves_nothing_of_is_told(project: Path) -> None:
    text = "version: 1\nnetwork:\n  allow: [a.example.com, b.example.org]\n  deny: [{}]\n"
    done = ringfence("check", written(project, text.format("'*.example.com'")), cwd=project)
    warning = "policy.yaml:4:3: warning: network.deny: *.example.com closes all of a.example.com in network.allow.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "policy.yaml: ok\n", warning)
    done = ringfence("check", written(project, text.format("c.example.com")), cwd=project)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_that_is_wrong_is_shown_at_once_with_its_place(project: Path) -> None:
    done = ringfence("check", written(project, MUCH_IS_WRONG), cwd=project)
    assert (done.returncode, done.stdout) == (1, "")
    places = [line.split(": ")[0] for line in done.stderr.splitlines()]
    assert places == [f"policy.yaml:{place}" for place in ("6:1", "8:3", "9:3", "12:7", "14:7", "16:7", "17:7")]
    for named in (
        "snapshot_on_exit",
        "network.default",
        "network.allow: example.com:443",
        "credentials.git",
        "built in: ~/.ssh",
        "filesystem.workspace",
    ):
        assert named in done.stderr


def test_what_cannot_be_resolved_here_is_shown_where_it_is_named(project: Path) -> None:
    text = "version: 1\nfilesystem:\n  read_only:\n    - src\n    - /no/such/folder\n"
    done = ringfence("check", written(project, text), cwd=project)
    assert done.returncode == 1
    assert done.stderr.startswith("policy.yaml:5:7: filesystem.read_only names '/no/such/folder'")


@pytest.mark.parametrize("text", ["", "version: 1\nmode: no\n"])
def test_what_cannot_be_read_is_a_failure_with_its_place_and_nothing_runs(project: Path, text: str) -> None:
    name = written(project, text)
    for argv in (("check", name), ("policy", "diff", name, name), ("run", "--policy", name, "--", "touch", "ran")):
        done = ringfence(*argv, cwd=project)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("ringfence: policy.yaml:")
    assert not (project / "ran").exists()


def test_checking_runs_nothing_and_changes_nothing(project: Path) -> None:
    name = written(project, EVERYTHING_HOLDS.replace("sh -c true", "touch made"))
    before = sorted(project.rglob("*"))
    assert ringfence("check", name, cwd=project).returncode == 0
    assert sorted(project.rglob("*")) == before


def test_the_schema_is_printed_for_programs_and_the_page_for_readers(tmp_path: Path) -> None:
    schema = json.loads(ringfence("policy", "schema", cwd=tmp_path).stdout)
    assert schema["$defs"]["PolicyFile"]["additionalProperties"] is False
    assert ringfence("policy", "schema", "--page", cwd=tmp_path).stdout.startswith("# A policy, line by line\n")


def test_diff_says_by_key_what_is_narrower_and_what_is_wider(project: Path) -> None:
    one = written(project, "version: 1\nmode: workspace-write\nresources: {run_seconds: 60}\n", "one.yaml")
    two = written(project, "version = 1\nmode = 'read-only'\n[resources]\nrun_seconds = 90\n", "two.toml")
    done = ringfence("policy", "diff", one, two, cwd=project)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        *("mode: narrower", '  - "workspace-write"', '  + "read-only"'),
        *("resources.run_seconds: wider", "  - 60", "  + 90"),
    ]
    same = written(project, "version = 1\n[resources]\nrun_seconds = 60\n", "same.toml")
    assert ringfence("policy", "diff", one, same, cwd=project).returncode == 0


def test_a_run_is_held_by_its_policy_and_one_without_it_is_not(project: Path) -> None:
    name = written(
        project,
        "version: 1\nmode: read-only\nfilesystem: {workspace: {path: .}}\nenvironment: {pass: [COLOUR], set: {CI: 'true'}}\n",
    )
    line = "touch made && echo made; echo $COLOUR $CI $OTHER"
    held = ringfence("run", "--policy", name, "--", "sh", "-c", line, cwd=project, COLOUR="red", OTHER="x")
    free = ringfence("run", "--", "sh", "-c", line, cwd=project, COLOUR="red", OTHER="x")
    assert (held.stdout, "Read-only" in held.stderr) == ("red true\n", True)
    assert (free.stdout, free.stderr) == ("made\n\n", "")


def test_a_further_policy_and_the_options_can_only_take_away(project: Path) -> None:
    base = written(project, "version: 1\nfilesystem: {workspace: {path: .}}\nresources: {run_seconds: 20}\n")
    narrow = written(project, "version: 1\nmode: read-only\nresources: {run_seconds: 9}\n", "narrow.yaml")
    wide = written(project, "version: 1\nresources: {run_seconds: 21}\nsyscalls: {debug: true}\n", "wide.yaml")
    both = ("--policy", base, "--policy", narrow)
    assert "Read-only" in ringfence("run", *both, "--", "touch", "made", cwd=project).stderr
    assert ringfence("run", *both, "--workspace", "sub", "--timeout", "5", "--", "pwd", cwd=project).stdout == f"{project}/sub\n"
    for refused, key in (
        (("--policy", base, "--policy", wide), "resources.run_seconds"),
        ((*both, "--timeout", "10"), "resources.run_seconds"),
        ((*both, "--workspace", ".."), "filesystem.workspace.path"),
        ((*both, "--tier", "process"), "tier"),
    ):
        done = ringfence("run", *refused, "--", "touch", "made", cwd=project)
        assert (done.returncode, key in done.stderr) == (125, True)
    assert not (project / "made").exists()


def test_a_policy_that_names_no_workspace_is_used_over_the_folder_that_the_caller_names(project: Path) -> None:
    name = written(project, "version: 1\nmode: read-only\n")
    assert ringfence("run", "--policy", f"../{name}", "--", "pwd", cwd=project / "sub").stdout == f"{project}/sub\n"
    assert ringfence("run", "--policy", name, "--workspace", "src", "--", "pwd", cwd=project).stdout == f"{project}/src\n"


def test_files_of_a_workspace_and_the_environment_change_no_policy(project: Path) -> None:
    line = ["run", "--", "sh", "-c", "touch ok; cat /etc/shadow; echo > /usr/made; env | sort"]
    before = ringfence(*line, cwd=project)
    wide = "version: 1\nmode: danger-full-access\nfilesystem: {writable: [/]}\nnetwork: {default: allow}\n"
    for name in ("ringfence.yaml", "ringfence.yml", ".ringfence.yaml", "policy.yaml", ".ringfence"):
        written(project, wide, name)
    written(project, "[tool.ringfence]\nmode = 'danger-full-access'\n", "pyproject.toml")
    written(project, "RINGFENCE_DISABLE=1\nRINGFENCE_TIER=process\n", ".env")
    after = ringfence(*line, cwd=project, RINGFENCE_DISABLE="1", RINGFENCE_TIER="process", RINGFENCE_POLICY="ringfence.yaml")
    assert (after.returncode, after.stdout, after.stderr) == (before.returncode, before.stdout, before.stderr)
    assert "shadow" in before.stderr and "/usr/made" in before.stderr


LOADED = """
import sys
from ringfence.cli import main
status = main(sys.argv[1:])
parts = ("load", "schema", "source", "document", "keys", "compose", "unbuilt", "decide", "examples", "differences", "page")
print(status, *sorted({name.partition(".")[0] for name in sys.modules} & {"yaml", "msgspec", "wcmatch", "tomllib"}),
      *sorted(name for name in sys.modules if name.removeprefix("ringfence.policy.") in parts), file=sys.stderr)
"""


def test_a_run_without_a_policy_loads_nothing_of_policy_files(project: Path) -> None:
    def loaded(*argv: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", LOADED, *argv], cwd=project, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        return done.stderr.split()

    assert loaded("run", "--", "true") == ["0"]
    with_one = loaded("run", "--policy", written(project, "version: 1\n"), "--", "true")
    assert {"yaml", "msgspec", "ringfence.policy.load"} <= set(with_one)
    assert not {"tomllib", "wcmatch", "ringfence.policy.decide", "ringfence.policy.page"} & set(with_one)


def test_nothing_of_a_policy_acts_on_the_terminal(project: Path) -> None:
    name = written(project, 'version: 1\nfilesystem: {workspace: {path: .}, read_only: ["\\e]0;title\\a"]}\n', "a\x1b[2Jb.yaml")
    other = written(
        project, 'version: 1\nfilesystem: {deny: ["\\e[31m"]}\nenvironment: {set: {A: "\\e[2J\\u202e"}}\n', "other.yaml"
    )
    for argv in (("check", name), ("check", other), ("policy", "diff", name, other), ("run", "--policy", name, "--", "true")):
        done = ringfence(*argv, cwd=project)
        assert (done.stdout + done.stderr).isascii() and "\x1b" not in done.stdout + done.stderr
        assert "title" in done.stdout + done.stderr or argv == ("check", other)
