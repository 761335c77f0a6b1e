"""A person at a terminal is asked about hosts while a command runs: no, Enter, once, always, and nobody there."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.screen import Terminal
from egress.internet import Internet, internet

pytestmark = [pytest.mark.live("namespaces"), pytest.mark.alone]  # a person has as long as the screen takes

ENDING = "always or no [no]:"
HOST = "files.example.org"


@pytest.fixture(scope="module")
def outside() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder, internet(Path(folder)) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path, outside: Internet, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a policy beside it, whose hosts are those of a server here, which has no public address."""
    (tmp_path / "work").mkdir()
    (tmp_path / "ask.yaml").write_text(
        "version: 1\nfilesystem: {workspace: {path: work}}\n"
        "network: {on_unknown_domain: ask, private_addresses: allow, remember: hosts}\n"
    )
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RINGFENCE_RESOLVERS", outside.names.place)
    return tmp_path


@pytest.fixture
def terminal(place: Path) -> Iterator[Terminal]:
    made = Terminal(place)
    made.type(f"alias rf='{sys.executable} -m ringfence run --ask --policy ask.yaml'; shopt -s expand_aliases; clear\n")
    made.until(lambda: "alias" not in made.screen() and "ready>" in made.screen())
    try:
        yield made
    finally:
        made.close()


def clear(terminal: Terminal) -> None:
    terminal.type("clear\n")
    terminal.until(lambda: terminal.screen().split() == ["ready>"])


def test_a_person_refuses_a_host_lets_it_through_once_and_for_good(terminal: Terminal, place: Path, outside: Internet) -> None:
    url = f"http://{HOST}:{outside.http}/"
    command = f"rf -- curl -sSfw '\\n' {url}; echo status $?\n"
    seen = len(outside.seen)
    for refusal in ("Enter", "no"):
        terminal.type(command)
        terminal.shows(ENDING)
        screen = terminal.screen()
        assert "May the box reach this host?" in screen and f"  | {HOST}:{outside.http}\n" in screen
        assert "asked by rule: network.on_unknown_domain" in screen and f"{place}/hosts"[:30] in screen
        if refusal == "Enter":
            terminal.key("Enter")
        else:
            terminal.type("no\n")
        terminal.shows("\nstatus 22")
        assert "a page" not in terminal.screen()
        assert len(outside.seen) == seen, "nothing was sent there"
        clear(terminal)
    assert not (place / "hosts").exists()

    terminal.type(command)
    terminal.shows(ENDING)
    terminal.type("once\n")
    terminal.shows("\nstatus 0")
    assert "a page" in terminal.screen() and len(outside.seen) == seen + 1
    assert not (place / "hosts").exists(), "once is not for good"
    clear(terminal)

    terminal.type(command)
    terminal.shows(ENDING)
    terminal.type("always\n")
    terminal.shows("\nstatus 0")
    assert (place / "hosts").read_text() == f"{HOST}:{outside.http}\n"
    clear(terminal)

    terminal.type(command)
    terminal.shows("\nstatus 0")
    assert "a page" in terminal.screen() and ENDING not in terminal.screen(), "it is not asked again, in another box"


def test_without_a_terminal_the_refusal_says_that_nobody_could_be_asked(place: Path, outside: Internet) -> None:
    line = [sys.executable, "-m", "ringfence", "run", "--policy", "ask.yaml", "--", "curl", "-sS", f"http://{HOST}:{outside.http}/"]
    done = subprocess.run(
        line, cwd=place, env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert "nobody could be asked" in done.stdout and "at a terminal" in done.stdout
    assert "was asked about" not in done.stdout
    assert "refused by network.on_unknown_domain" in done.stderr
