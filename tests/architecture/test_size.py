"""Small files, short functions, and names that say what is inside."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median, quantiles

from architecture.tree import PACKAGE, ROOT, project_files

LARGEST_FILE = 600
MEDIAN_FILE = 160
P90_FILE = 400
LONGEST_FUNCTION = 60
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "core", "misc", "base_utils"}


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def python_files() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".py"]


def test_no_file_is_longer_than_a_reader_holds() -> None:
    long = {str(path.relative_to(ROOT)): lines_of(path) for path in python_files() if lines_of(path) > LARGEST_FILE}
    assert not long


def test_most_files_of_the_package_are_short() -> None:
    sizes = [lines_of(path) for path in PACKAGE.rglob("*.py")]
    assert median(sizes) <= MEDIAN_FILE
    if len(sizes) > 1:
        assert quantiles(sizes, n=10)[-1] <= P90_FILE


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long


def test_every_module_name_says_what_is_inside() -> None:
    empty = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if SAYS_NOTHING & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    ]
    assert not empty


def test_every_module_of_the_package_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent
