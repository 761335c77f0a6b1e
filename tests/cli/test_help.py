"""Help, complaints and the page about them: there for every command, current, and cheap for those that are not asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.cli import COMMANDS, Parser, parser

PAGE = Path(__file__).parents[2] / "docs/cli.md"


def ringfence(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment})


def parsers(made: Parser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Every command and its own commands, by their words."""
    yield words, made
    for action in made._actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield from parsers(inner, (*words, name))


ALL = dict(parsers(parser(list(COMMANDS))))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_a_description_and_one_example_that_it_understands(words: tuple[str, ...]) -> None:
    made = ALL[words]
    assert made.description and made.description.endswith(".")
    text = made.format_help()
    assert text.count("example: ") == 1
    example = text.partition("example: ")[2].replace("\n", " ").partition(" > ")[0].removeprefix('eval "$(').removesuffix(')" ')
    given = shlex.split(example)
    assert given[0] == "ringfence"
    assert parser([given[1]]).parse_args(given[1:])


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_into_the_columns_that_there_are(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    widths = {}
    for columns in ("80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        text = ALL[words].format_help()
        widths[columns] = max(map(len, text.splitlines()))
    assert widths["80"] <= 80 < widths["200"] <= 200 or widths["200"] <= 80


def test_the_help_lists_every_command_with_its_line() -> None:
    done = ringfence("--help", COLUMNS="80")
    assert done.returncode == 0 and done.stderr == ""
    for name, line in COMMANDS.items():
        assert re.search(rf"^    {name} +{re.escape(line)}$", done.stdout, re.MULTILINE), done.stdout


def test_nothing_asked_for_is_a_mistake_and_shows_the_help() -> None:
    done = ringfence()
    assert (done.returncode, done.stdout) == (2, "") and "usage: ringfence" in done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("rnu", "--", "true"), "did you mean 'run'?"),
        (("run", "--teir", "auto", "--", "true"), "ringfence run: unrecognized arguments: --teir; did you mean '--tier'?"),
        (("policy", "dif", "a", "b"), "did you mean 'diff'?"),
        (("xyzzy",), "invalid choice: 'xyzzy'"),
        (("run",), "put it after --"),
        (("check",), "FILE"),
        (("run", "--timeout", "soon", "--", "true"), "--timeout"),
        (("rn\x1b[2Ju",), "invalid choice: 'rn\\x1b[2Ju'"),
        (("doctor", "--\x1b[2Jx"), "unrecognized arguments: --\\e[2Jx"),
    ],
)
def test_a_mistake_exits_with_2_and_says_what_was_probably_meant(argv: tuple[str, ...], said: str) -> None:
    done = ringfence(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "\x1b" not in done.stderr


def test_a_command_loads_nothing_of_the_others() -> None:
    code = "import sys; from ringfence.cli import main; main(sys.argv[1:]); print(*sorted(sys.modules), file=sys.stderr)"
    for argv in (["run", "--tier", "process", "--", "true"], ["policy", "schema"]):
        done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60, check=True)
        loaded = set(done.stderr.split())
        others = {f"ringfence.cli.{name}" for name in COMMANDS} - {f"ringfence.cli.{argv[0]}"}
        assert f"ringfence.cli.{argv[0]}" in loaded and not loaded & {
            *others,
            "difflib",
            "ringfence.cli.shown",
            "ringfence.explanation",
        }


def test_the_page_names_every_command_and_option_and_no_other() -> None:
    text = PAGE.read_text()
    options = {option for made in ALL.values() for option in re.findall(r"--[a-z]+", made.format_help())}
    assert set(re.findall(r"--[a-z]+", text)) == options
    commands = {" ".join(words) for words in ALL if words}
    assert commands <= {
        command for found in re.findall(r"ringfence ([a-z]+(?: [a-z]+)?)", text) for command in (found, found.split()[0])
    }
    assert all(
        f"`{status}`" in text or f"| {status} " in text or str(status) in text for status in (2, 124, 125, 126, 127, 130, 141)
    )
