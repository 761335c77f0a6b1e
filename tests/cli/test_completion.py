"""Completion, driven as a person does it: real shells in real terminals, TAB pressed, and what the line then was."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence.cli import COMMANDS, parser
from ringfence.policy.config import BUILT_TIERS, MODES

PROMPT = "ready> "
SECONDS = 30.0

CASES = {
    "com": "completion",
    "expl": "explain",
    "run --ti": "run --ti[meout|er]*",  # two options begin so: nothing is decided
    "run --tim": "run --timeout",
    "run --tier names": "run --tier namespaces",
    "run --mode read": "run --mode read-only",
    "run --preset pi": "run --preset pip",
    "run --workspace onlyf": "run --workspace onlyfolder/?",
    "check pol": "check policy.yaml",
    "run --policy pol": "run --policy policy.yaml",
    "explain path pol": "explain path policy.yaml",
    "explain env RINGFENCE_TEST_V": "explain env RINGFENCE_TEST_VARIABLE",
    "explain exe": "explain exec",
    "policy di": "policy diff",
    "completion zs": "completion zsh",
    "doctor --js": "doctor --json",
    "run -- ringfence-test-pro": "run -- ringfence-test-program",
    "run --tier=proc": "run --tier=process",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    (tmp_path / "onlyfile").write_text("")
    (tmp_path / "onlyfolder").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ringfence-test-program").symlink_to("/bin/true")
    return tmp_path


def script(shell: str) -> str:
    done = subprocess.run([sys.executable, "-m", "ringfence", "completion", shell], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, argv: list[str], place: Path) -> None:
        self.seen = ""
        environment = {
            "PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(place), "TERM": "xterm", "LANG": "C.UTF-8", "PS1": PROMPT,
            "RINGFENCE_TEST_VARIABLE": "1",
        }  # fmt: skip
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execve(argv[0], argv, environment)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def wait(self, pattern: str) -> re.Match[str]:
        """What pattern matches in what has been shown since the last wait."""
        until = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            left = until - time.monotonic()
            assert left > 0 and select.select([self.descriptor], [], [], left)[0], f"no {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.descriptor, 65536).decode("utf-8", "replace")
        self.seen = self.seen[found.end() :]
        return found

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)


def completed(shell: str, place: Path) -> dict[str, str]:
    """What each line became by TAB: ringfence is a function that says what it was given."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    (place / "completion").write_text(script(shell))
    argv = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"], "fish": ["--private", "-i"]}[shell]
    said = """printf '\\033[0m\\nGIVEN %s END\\n' "$*" """
    start = {
        "bash": f"ringfence() {{ {said}; }}; . ./completion; echo STAR''TED\n",
        "zsh": f"autoload -U compinit && compinit -u -D; ringfence() {{ {said}; }}; . ./completion; echo STAR''TED\n",
        "fish": """function ringfence; printf '\\nGIVEN %s END\\n' "$argv"; end; source ./completion; echo STAR''TED\n""",
    }[shell]
    terminal = Terminal([path, *argv], place)
    try:
        terminal.type(start)
        terminal.wait("STARTED")
        lines = {}
        for typed in CASES:
            terminal.type(f"ringfence {typed}\t")
            if shell == "zsh":
                terminal.wait(re.escape(typed[-4:]))
            terminal.type("\n")
            lines[typed] = terminal.wait("GIVEN (.*?) END")[1].replace("\r", "").strip()
        return lines
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", [pytest.param(name, marks=pytest.mark.live(name)) for name in ("bash", "zsh", "fish")])
def test_a_tab_completes_commands_options_tiers_modes_and_files(shell: str, place: Path) -> None:
    lines = completed(shell, place)
    for typed, expected in CASES.items():
        assert re.fullmatch(expected, lines[typed]), (typed, lines[typed])


def test_what_is_completed_is_what_the_parsers_have() -> None:
    made = parser(list(COMMANDS))
    choices = next(action.choices for action in made._actions if isinstance(action.choices, dict))
    for shell in ("bash", "zsh", "fish"):
        text = script(shell)
        for command in COMMANDS:
            assert re.search(rf"\b{command}\b", text)
            for option in re.findall(r"--([\w-]+)", choices[command].format_usage()):
                assert option in text, (shell, command, option)
        for word in (*BUILT_TIERS, *MODES):
            assert word in text


def test_an_unknown_shell_is_a_mistake_that_names_the_three() -> None:
    done = subprocess.run([sys.executable, "-m", "ringfence", "completion", "zhs"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(shell in done.stderr for shell in ("bash", "zsh", "fish")) and "did you mean 'zsh'?" in done.stderr
