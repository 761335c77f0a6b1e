"""A real terminal for tests of the command line: tmux, driven as a person would."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 20.0


class Terminal:
    """A tmux session of its own server, driven as a person would."""

    def __init__(self, folder: Path) -> None:
        self.base = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        environment = {**os.environ, "TERM": "xterm-256color", "SHELL": "/bin/bash"}
        shell = "bash --norc --noprofile"
        new = ["new-session", "-d", "-x", "80", "-y", "24", "-s", "t", "-c", str(folder), shell]
        subprocess.run([*self.base, *new], env=environment, check=True)
        self.type("PS1='ready> '; set -m; clear\n")
        self.until(lambda: self.screen().startswith("ready>"))

    def tmux(self, *words: str) -> str:
        return subprocess.run([*self.base, *words], capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "t", "-l", text)

    def key(self, *names: str) -> None:
        self.tmux("send-keys", "-t", "t", *names)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "t")

    def until(self, true: Callable[[], object], what: str = "") -> None:
        limit = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < limit, f"{what}\n{self.screen()}"
            time.sleep(0.05)

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.screen(), f"never shown: {text}")

    def close(self) -> None:
        subprocess.run([*self.base, "kill-server"], check=False, capture_output=True)
