"""The documents: there, short, their links lead somewhere, and their examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from architecture.tree import ROOT, project_files

PAGES = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGE_LINES = 120
FIRST_SCREEN_LINES = 40
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
EXAMPLE = re.compile(r"^```python(?P<needs>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)

# A top-level `await` is what a reader can paste into `python -m asyncio`.
RUN_EXAMPLE = """
import ast, asyncio, sys
code = compile(sys.stdin.read(), "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
pending = eval(code, {"__name__": "__main__"})
if pending is not None:
    asyncio.run(pending)
"""


def documents() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples() -> list[Any]:
    marks = {"": (), "box": pytest.mark.live("namespaces")}
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/api.md"))
    return [pytest.param(match["code"], marks=marks[match["needs"].strip()]) for match in EXAMPLE.finditer(text)]


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_there_and_is_one_page(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= PAGE_LINES


def test_the_first_screen_of_the_readme_says_how_to_set_up_and_see_it_work() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN_LINES]
    assert all(any(script in line for line in first_screen) for script in ("scripts/demo", "scripts/test"))


def test_every_link_between_documents_leads_somewhere() -> None:
    dead = []
    for path in documents():
        for match in LINK.finditer(path.read_text(encoding="utf-8")):
            target, _, anchor = match["target"].partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            linked = (path.parent / target).resolve() if target else path
            if not linked.exists() or (anchor and anchor not in anchors(linked)):
                dead.append(f"{path.relative_to(ROOT)}: {match['target']}")
    assert not dead


def test_every_test_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text))
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not missing


@pytest.mark.parametrize("code", examples())
def test_every_python_example_runs(code: str, tmp_path: Path) -> None:
    tmp_path.joinpath("test_something.py").write_text("def test_something():\n    assert True\n")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", RUN_EXAMPLE],
        input=code,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
