"""Nothing that a box leaves in its workspace is started outside, or read as a policy. The controls start it there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ringfence
from ringfence.sync import Sandbox, SandboxConfig

PLANT = """
import os, sys
program = "#!/bin/sh\\ntouch " + sys.argv[1] + "\\n"
for folder in (".venv/bin", "venv/bin", "bin", "node_modules/.bin"):
    os.makedirs(folder)
    for name in ("python", "python3", "git", "sh", "env", "bwrap", "newuidmap", "mount"):
        with open(f"{folder}/{name}", "w") as file:
            file.write(program)
        os.chmod(f"{folder}/{name}", 0o755)
for name in (".venv", "venv"):
    os.makedirs(f"{name}/lib/python3/site-packages")
    with open(f"{name}/pyvenv.cfg", "w") as file:
        file.write(f"home = {os.getcwd()}/bin\\n")
    for folder in (f"{name}/lib", f"{name}/lib/python3/site-packages"):
        with open(f"{folder}/evil.pth", "w") as file:
            file.write(f"import os; os.system('touch {sys.argv[1]}')\\n")
for name in ("sitecustomize", "usercustomize", "ringfence", "anyio", "conftest"):
    with open(f"{name}.py", "w") as file:
        file.write(f"import os; os.system('touch {sys.argv[1]}')\\n")
"""


def _calls(box: Sandbox) -> None:
    box.run(["true"])
    box.changes()
    box.ps()
    box.list_files()
    box.resolve_path("bin/git")
    box.execute("print(1)")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that only a program outside can make: in a box its folder is not there."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder / "ran"


@pytest.fixture
def planted(workspace: Path, mark: Path) -> Path:
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        box.run(["/usr/bin/python3", "-c", PLANT, str(mark)], check=True)
    return workspace


OUTSIDE: dict[str, Callable[[Path], object]] = {
    "a new box and its calls": lambda folder: _in_box(folder),
    "explain": lambda folder: str(ringfence.explain(SandboxConfig(workspace=folder))),
    "the facts of the host": lambda folder: subprocess.run(
        [sys.executable, "-c", "import ringfence; ringfence.host_facts()"], cwd="/", check=True
    ),
    "the command line": lambda folder: [
        subprocess.run([sys.executable, "-P", "-m", "ringfence", *words], cwd=folder, capture_output=True, check=False)
        for words in (("run", "--", "git", "status"), ("python", "-c", "print(1)"), ("explain", "--", "git"))
    ],
}


def _in_box(folder: Path) -> None:
    with Sandbox(SandboxConfig(workspace=folder)) as box:
        try:
            _calls(box)
        except ringfence.errors.HostError:
            pass  # an interpreter that is none, started inside


@pytest.mark.parametrize("way", OUTSIDE)
def test_no_program_of_the_workspace_is_started_outside(
    way: str, planted: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted)
    folders = [f"{planted}/{name}" for name in (".venv/bin", "bin", "node_modules/.bin")]
    monkeypatch.setenv("PATH", os.pathsep.join([*folders, "bin", ".", "", os.environ["PATH"]]))
    monkeypatch.setenv("VIRTUAL_ENV", f"{planted}/.venv")
    OUTSIDE[way](planted)
    assert not mark.exists()
    subprocess.run(["git", "status"], check=False)  # the control: who looks along PATH starts it
    assert mark.exists()


def test_no_file_of_the_workspace_is_read_as_a_policy(workspace: Path) -> None:
    before = ringfence.explain(SandboxConfig(workspace=workspace)).policy.hash
    content = "version: 1\ntier: process\nnetwork: {default: allow}\nfilesystem: {writable: [/]}\n"
    names = (
        "ringfence.yaml",
        "ringfence.toml",
        ".ringfence.yaml",
        ".ringfence",
        "policy.yaml",
        "sandbox.toml",
        "pyproject.toml",
        ".env",
    )
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        for name in names:
            box.write_file(name, content)
        box.write_file(".env", "RINGFENCE_TIER=process\nRINGFENCE_DISABLE=1\n")
    assert ringfence.explain(SandboxConfig(workspace=workspace)).policy.hash == before
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert box.run(["true"]).policy_hash == before and box.backend == "namespaces"
    narrowed = SandboxConfig(workspace=workspace, deny=["x"])  # the control: a config that says something else
    assert ringfence.explain(narrowed).policy.hash != before
