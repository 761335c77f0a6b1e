"""Ordinary work goes on in a workspace in which everything that can be held is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.sync import Sandbox, SandboxConfig

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


@pytest.fixture
def box(workspace: Path) -> Iterator[Sandbox]:
    for name in (".vscode", ".idea", ".claude"):
        (workspace / name).mkdir()
        (workspace / name / "settings.json").write_text("{}\n")
    (workspace / ".envrc").write_text("\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, env=ENVIRONMENT, check=True)
    subprocess.run(["git", "init", "-q", "vendor/lib"], cwd=workspace, env=ENVIRONMENT, check=True)
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    commit = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "one"]
    subprocess.run(commit, cwd=workspace / "vendor" / "lib", env=ENVIRONMENT, check=True)
    with Sandbox(SandboxConfig(workspace=workspace)) as made:
        yield made


WORK = {
    "moves and links across folders": """
        mkdir a b; touch a/x; mv a/x b/x; ln b/x a/y; ln -s ../b/x a/z; mv a c
        python3 -c 'import os; os.rename("b/x", "c/x")'; mv c/x "$TMPDIR/x"
    """,
    "moves into a folder that is pinned, which copy": """
        echo x > f; mv f vendor/f; mv vendor/f g; mkdir d; mv d vendor/d; mv vendor/d e""",
    "moves within a folder that is pinned": """
        mkdir vendor/a; touch vendor/a/x; mv vendor/a vendor/b; mv vendor/b/x vendor/x""",
    "an editor's save by a rename": """
        echo one > f; echo two > f.tmp; python3 -c 'import os; os.replace("f.tmp", "f")'; grep two f""",
    "an archive of everything": """
        tar cf x.tar --exclude=x.tar .; mkdir out; tar xf x.tar -C out; test -f out/.envrc""",
    "a search through everything": """
        grep -r nothing . || test $? = 1; find . -name '*.json' | wc -l""",
    "git add of everything": """
        git add -A; git -c user.name=x -c user.email=x@example.com commit -qm all; test -z "$(git status --short)"
    """,
    "make": r"""
        printf 'all: a/out\na/out: in\n\tmkdir -p a && cp in a/tmp && mv a/tmp $@\n' > Makefile
        touch in; make -s; test -f a/out""",
    "a virtual environment": """
        python3 -m venv --without-pip e; echo x = 1 > e/m.py; PYTHONPATH=e e/bin/python -c 'import m'""",
}


@pytest.mark.parametrize("name", WORK)
def test_ordinary_work_goes_on(box: Sandbox, name: str) -> None:
    if name == "make":
        assert shutil.which("make")  # as the continuous integration has it
    done = box.run(["/bin/sh", "-ec", WORK[name]], timeout=60)
    assert done.ok, done.stderr


def test_packages_are_installed_by_npm(box: Sandbox, workspace: Path) -> None:
    package = workspace / "lib"
    package.mkdir()
    (package / "package.json").write_text('{"name": "lib", "version": "1.0.0"}\n')
    (workspace / "package.json").write_text('{"name": "app", "version": "1.0.0", "scripts": {"prepare": "git config a.b c"}}\n')
    if box.run(["/bin/sh", "-c", "command -v npm"]).ok:
        done = box.run(
            ["/bin/sh", "-ec", "npm install --offline --install-links ./lib; test -f node_modules/lib/package.json"], timeout=90
        )
        assert done.ok, done.stderr
        assert "[a]" not in (workspace / ".git" / "config").read_text()
    else:  # no npm on the caller's PATH: the same files by hand
        assert box.run(
            ["/bin/sh", "-ec", "mkdir node_modules; cp -r lib node_modules/.lib-x; mv node_modules/.lib-x node_modules/lib"]
        ).ok


REFUSED = {
    "a save by a rename of what is held": ("echo x > t; mv -f t .envrc", "echo x > t; mv -f t envrc"),
    "removing a folder that holds a repository": ("rm -r vendor", "mkdir v; rm -r v"),
    "renaming a folder that holds a repository": ("mv vendor v", "mkdir w; mv w v"),
    "a rename, and nothing but a rename, across a pin": (
        'touch f; python3 -c \'import os; os.rename("f", "vendor/f")\'',
        'touch f; mkdir v; python3 -c \'import os; os.rename("f", "v/f")\'',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_work_is_told_by_the_plan(box: Sandbox, workspace: Path, name: str) -> None:
    refused, control = REFUSED[name]
    assert not box.run(["/bin/sh", "-ec", refused]).ok
    assert box.run(["/bin/sh", "-ec", control]).ok
    told = "\n".join(box._open().prepared.plan.describe())
    path = workspace / (".envrc" if "save" in name else "vendor")
    assert f"read-only {path}: " in told or f"pin {path}: cannot be renamed or removed, and a rename into or out of it" in told
