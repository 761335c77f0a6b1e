"""A project with tests to run: a third party's source from the package index, or the bundled one without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLOSING_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)\b")
TESTS = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Project:
    """A folder with a project in it, and the words that say where it is from."""

    folder: Path
    origin: str


def fetch(into: Path) -> Project:
    """Put a project under `into`; the bundled one where the package index cannot be reached."""
    try:
        return fetch_source(into, "project.txt")
    except NotFetchedError as error:
        shutil.copytree(HERE.parent / "bundled", into / "project")
        print(f"The package index was not reached ({error}), so the bundled project is used.", file=sys.stderr)
        return Project(into / "project", "spans 1.0, the project bundled under examples/")


class NotFetchedError(Exception):
    """The package index was not reached, or has not what is pinned."""


def fetch_source(into: Path, pins: str) -> Project:
    """Put the source of the project that the file `pins` names, with its hash, under `into`. Raises NotFetchedError."""
    pinned = (HERE / pins).read_text(encoding="utf-8").splitlines()[-1].split()[0]
    name = pinned.partition("==")[0]
    download = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--retries", "0"),
            *("--timeout", "20", "--disable-pip-version-check", "--require-hashes", "--no-binary", name),
            *("--requirement", str(HERE / pins), "--dest", str(into)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(into.glob("*.tar.gz"))
    folder = into / "project"
    if download.returncode or not archives:
        raise NotFetchedError((download.stderr.strip().splitlines() or ["no reason given"])[-1])
    _unpack(archives[0], folder)
    return Project(folder, f"{pinned}, its source archive from the package index")


def _unpack(archive: Path, folder: Path) -> None:
    parts = folder.parent / "unpacked"
    with tarfile.open(archive) as source:
        if hasattr(tarfile, "data_filter"):
            source.extractall(parts, filter="data")
        else:  # before Python 3.11.4; what the archive holds is known all the same, by its hash
            source.extractall(parts)
    (top,) = parts.iterdir()
    top.rename(folder)
    parts.rmdir()


def counts(output: str) -> dict[str, int]:
    """What pytest's closing line counts."""
    lines = output.strip().splitlines()
    return {kind.removesuffix("s"): int(count) for count, kind in CLOSING_COUNT.findall(lines[-1])} if lines else {}


def run_outside(project: Project) -> str:
    """The closing output of the project's tests, run with nothing around them."""
    done = subprocess.run(
        TESTS,
        cwd=project.folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout
