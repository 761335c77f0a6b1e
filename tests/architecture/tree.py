"""The project's files as these tests see them: what is tracked, or new and not ignored."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ringfence"


@cache
def project_files() -> tuple[Path, ...]:
    """Every file of the project; in a copy without git, every file that is not in a dot folder."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
        )
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not _generated(path.relative_to(ROOT))]
    return tuple(sorted(path for path in paths if path.is_file()))


def _generated(path: Path) -> bool:
    return any(part == "__pycache__" or (part.startswith(".") and part != ".ci") for part in path.parts[:-1])


@cache
def modules() -> dict[str, Path]:
    """The package's modules by dotted name without the leading `ringfence.`; the package itself is ``""``."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@dataclass(frozen=True)
class Import:
    """One imported module, by full name, and whether it is imported when the program runs."""

    module: str
    line: int
    at_run_time: bool


def imports_of(path: Path) -> list[Import]:
    """Every import in a file, those inside functions and under TYPE_CHECKING too.

    `from package import module` counts as the module where that is a module of ours, else as the package.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [_submodule(node.module, alias.name) for alias in node.names]
        else:
            continue
        found += [Import(name, node.lineno, id(node) not in only_types) for name in names]
    return found


def _submodule(package: str, name: str) -> str:
    candidate = f"{package}.{name}"
    return candidate if candidate.removeprefix("ringfence.") in modules() else package
