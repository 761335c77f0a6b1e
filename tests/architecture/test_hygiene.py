"""What must not be in the project's files, and how its scripts must be."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from architecture.tree import ROOT, project_files

# In pieces, because this file is looked at too.
INDEX_HOSTS = [
    ".".join(parts)
    for parts in (
        ("py" + "pi", "org"),
        ("python" + "hosted", "org"),
        ("npm" + "js", "org"),
        ("npm" + "js", "com"),
        ("deb", "debian", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
    )
]
INDEX_OPTIONS = ["--" + name for name in ("index-url", "extra-index-url", "find-links", "trusted-host")]
# Where this was written, and where the tests run now.
MACHINE_FOLDERS = {"/work" + "/", "/root/" + ".pyenv", f"{ROOT}/", f"{Path.home()}/.pyenv"}


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in project_files():
        content = path.read_bytes()
        if b"\0" not in content:
            found.append((path.relative_to(ROOT), content.decode("utf-8")))
    return found


@pytest.mark.parametrize("address", INDEX_HOSTS + INDEX_OPTIONS)
def test_no_file_names_the_address_of_a_package_index(address: str) -> None:
    assert not [str(path) for path, text in texts() if address in text]


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    wrong = [f"{path}: {folder}" for path, text in texts() for folder in MACHINE_FOLDERS if folder in text]
    assert not wrong, "\n".join(wrong)


def test_every_pinned_dependency_has_hashes() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    assert pins
    assert all(re.match(r"[\w.-]+==[\w.]+ .*--hash=sha256:[0-9a-f]{64}", pin) for pin in pins)


def test_every_script_can_be_run_and_stops_at_the_first_failure() -> None:
    scripts = [path for path in project_files() if path.parent in (ROOT / "scripts", ROOT / ".ci")]
    assert {path.name for path in scripts} >= {"setup", "test", "demo", "run"}
    for path in scripts:
        assert os.access(path, os.X_OK), path
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0] == "#!/usr/bin/env bash", path
        assert "set -euo pipefail" in lines, path


def test_nothing_else_is_executable() -> None:
    executable = [path.relative_to(ROOT) for path in project_files() if os.access(path, os.X_OK)]
    assert {path.parts[0] for path in executable} <= {"scripts", ".ci"}


def test_every_text_file_ends_with_one_line_end_and_has_no_trailing_blanks() -> None:
    wrong = [
        str(path)
        for path, text in texts()
        if path.name != "LICENSE" and text and (not text.endswith("\n") or re.search(r"[ \t]+$|\n\n\Z", text, re.MULTILINE))
    ]
    assert not wrong
