"""A box that is made by a policy file is held by all that the file says, and can never change the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import ConfigError, UnenforceableError
from ringfence.outcome import CapHit, Level
from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

pytestmark = pytest.mark.live("namespaces")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "conf").mkdir(parents=True)
    return folder


def config(folder: Path, *lines: str, name: str = "policy.yaml") -> SandboxConfig:
    (folder / name).write_text("\n".join(["version: 1", *lines, ""]))
    return SandboxConfig.from_file(folder / name)


CHANGES = (
    'printf x >> "$1"',
    ': > "$1"',
    'rm -f "$1"',
    'mv "$1" moved',
    'printf x > new && mv new "$1"',
    'ln -f "$1" second && printf x >> second',
    'mv "$(dirname "$1")" away && mkdir -p "$(dirname "$1")" && printf x > "$1"',
    'chmod 777 "$1" && printf x >> "$1"',
)


@pytest.mark.parametrize("place", ["policy.yaml", "conf/policy.yaml", "conf/[a] {b,c}/policy.yaml"])
def test_the_policy_file_is_never_writable_from_a_box_that_it_governs(project: Path, place: str) -> None:
    file = project / place
    file.parent.mkdir(exist_ok=True)
    text = f"version: 1\nfilesystem: {{workspace: {{path: {'../' * place.count('/') or '.'}}}}}\n"
    file.write_text(text)
    for change in CHANGES:
        with Sandbox(SandboxConfig.from_file(file)) as box:
            assert box.workdir == str(project)
            box.run(["sh", "-c", f"cd '{project}'; ({change}); touch made", "sh", str(file)])
        assert file.read_text() == text, change
        assert (project / "made").exists()
        (project / "made").unlink()
    with Sandbox(SandboxConfig(workspace=project)) as box:  # one that it does not govern may
        box.run(["sh", "-c", CHANGES[0], "sh", str(file)]).raise_for_status()
    assert file.read_text() == text + "x"


def test_the_policy_file_is_not_writable_through_a_further_folder(project: Path, tmp_path: Path) -> None:
    loaded = config(project / "conf", "filesystem: {workspace: {path: ..}, writable: [.]}")
    text = (project / "conf" / "policy.yaml").read_text()
    with Sandbox(loaded) as box:
        assert not box.run(["sh", "-c", "printf x >> conf/policy.yaml"]).ok
        box.run(["sh", "-c", "printf x >> conf/other"]).raise_for_status()
    assert (project / "conf" / "policy.yaml").read_text() == text


def test_every_result_carries_the_hash_of_its_policy(project: Path) -> None:
    one = config(project, "filesystem: {workspace: {path: .}}", "mode: read-only")
    two = config(project, "mode: 'read-only'", "filesystem: {workspace: {path: ./, mode: read-only}}", name="two.yaml")
    other = config(project, "filesystem: {workspace: {path: .}}", name="other.yaml")
    hashes = []
    for each in (one, two, other):
        with Sandbox(each) as box:
            hashes.append(box.run(["true"]).policy_hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_variables_are_passed_as_they_are_when_the_box_is_made(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = config(project, "environment: {pass: [COLOUR, NOT_SET_ANYWHERE], set: {CI: 'true'}}")
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("OTHER", "x")
    with Sandbox(loaded) as box:
        result = box.run(["sh", "-c", "echo $COLOUR $CI $OTHER ${NOT_SET_ANYWHERE-unset}"])
    assert result.stdout == "red true unset\n"
    assert any("NOT_SET_ANYWHERE" in note for note in result.notes)
    with Sandbox(SandboxConfig()) as box:
        assert box.run(["sh", "-c", "echo $COLOUR"]).stdout == "\n"


def test_what_is_kept_of_the_output_is_head_and_tail_as_said(project: Path) -> None:
    loaded = config(project, "resources: {output_mib: {head: 0.000002, tail: 0.000004}}")
    with Sandbox(loaded) as box:
        output = box.run(["printf", "0123456789"]).output
    assert (output.head, output.tail, output.omitted) == (b"01", b"6789", 4)


def test_limits_of_a_file_end_a_run(project: Path) -> None:
    with Sandbox(config(project, "resources: {run_seconds: 0.3}")) as box:
        outcome = box.run(["sleep", "20"]).outcome
        assert isinstance(outcome, CapHit) and (outcome.kind, outcome.limit) == ("wall", 0.3)
    with Sandbox(config(project, "resources: {file_size_mib: 0.001}")) as box:
        result = box.execute("f = open('x', 'wb', 0)\nfor _ in range(9): f.write(b'x' * 1024)")
        assert isinstance(result.outcome, CapHit) or "File too large" in result.stderr


def test_all_that_cannot_be_enforced_is_refused_at_once_and_nothing_is_made(project: Path) -> None:
    loaded = config(project, "snapshot_on_exit: true", "credentials: {in_sandbox: none, git: proxy}")
    with pytest.raises(UnenforceableError) as caught:
        Sandbox(loaded).__enter__()
    for key in ("snapshot_on_exit", "credentials.git", "attached outside"):
        assert key in str(caught.value)


def test_what_best_effort_names_is_gone_without_and_said_to_be_none(project: Path) -> None:
    lines = (
        "resources: {cpu: {guaranteed: 60000}}",
        "snapshot_on_exit: true",
        "network: {allow: ['example.com:443']}",
    )
    named = "best_effort: [resources.cpu, network.allow, mode]"
    with pytest.raises(UnenforceableError) as caught:
        Sandbox(config(project, *lines, named)).__enter__()
    assert "snapshot_on_exit" in str(caught.value) and "resources.cpu" not in caught.value.message
    with Sandbox(config(project, *lines, named.replace("mode", "snapshot_on_exit"))) as box:
        result = box.run(["true"])
        assert result.enforcement.guaranteed.level is Level.NONE
        assert "best_effort" in result.enforcement.guaranteed.note
        assert result.enforcement.network.level is Level.FULL
    assert sum("is not enforced" in note for note in result.notes) == 3


def test_a_level_of_isolation_is_met_or_refused(project: Path) -> None:
    with Sandbox(config(project, "isolation: os")) as box:
        assert box.backend == "namespaces"
    with Sandbox(config(project, "isolation: host")) as box:
        assert box.backend == "process"
    for level in ("container", "microvm", "remote"):
        with pytest.raises(ConfigError, match="isolation"):
            Sandbox(config(project, f"isolation: {level}")).__enter__()


WITHOUT_NAMESPACES = """
import ctypes, os, sys
from ringfence.sync import Sandbox, SandboxConfig
libc = ctypes.CDLL(None, use_errno=True)
os.setgroups([]) if os.getuid() == 0 else None
uid, gid = os.getuid(), os.getgid()
assert libc.unshare(0x10000000) == 0, ctypes.get_errno()  # CLONE_NEWUSER, linux/sched.h
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"{uid} {uid} 1")
open("/proc/self/gid_map", "w").write(f"{gid} {gid} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
for minimum in (None, "os", "process"):
    try:
        with Sandbox(SandboxConfig(minimum=minimum)) as box:
            result = box.run(["true"])
            print(minimum, box.backend, any("confines nothing" in note for note in result.notes))
    except Exception as error:
        print(minimum, type(error).__name__)
"""


def test_auto_goes_down_to_the_floor_only_where_that_is_the_minimum_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NAMESPACES], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["None TierUnavailableError", "os TierUnavailableError", "process process True"], done.stderr
    with Sandbox(SandboxConfig(minimum="process")) as box:
        assert box.backend == "namespaces"  # where it can be had it is
        assert not any("confines nothing" in note for note in box.run(["true"]).notes)


def test_what_the_floor_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    for field in ({"deny": ["x"]}, {"protect": ["x"]}, {"mode": "read-only"}):
        with pytest.raises(UnenforceableError, match=next(iter(field))):
            Sandbox(SandboxConfig(tier="process", workspace=tmp_path, **field)).__enter__()  # type: ignore[arg-type]
        with Sandbox(SandboxConfig(workspace=tmp_path, **field)) as box:  # type: ignore[arg-type]
            box.run(["true"]).raise_for_status()


def test_a_file_of_limits_is_the_same_as_limits_in_code(project: Path) -> None:
    loaded = config(project, "resources: {cpu_seconds: 5, run_seconds: 7, open_files: 64, file_size_mib: 1}")
    assert loaded.limits == SandboxLimits(
        cpu_seconds=5, wall_seconds=7, open_files=64, file_size_bytes=1 << 20, memory_bytes=None, output_head_bytes=1 << 20
    )
    assert os.fspath(loaded.policy_files[0]) == str(project / "policy.yaml")
