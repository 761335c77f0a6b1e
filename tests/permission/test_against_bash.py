"""What is read of a line, held to bash itself: the words, folders and files that were decided on are those that come to be.

Lines are made from a seed, which a failure prints. Only those that the reader calls certain are run, with a PATH of programs that
write down how they were started and do nothing.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ringfence.permission.shell import Command, Line, Redirect, read_line
from ringfence.permission.wrappers import LOOKED_THROUGH, commands_of

pytestmark = pytest.mark.live("bash")

RECORDER = """#!/bin/sh
end=$(printf '\\1')
printf '%s\\0' "$PWD" "${0##*/}" "$@" "$end" >>"$LOG"
case "${0##*/}" in no) exit 1;; esac
"""
NAMES = ("a", "bb", "no", "git")
PIECES = (
    "x", "-s", "--all", "'q r'", '"q r"', "\\ ", "\\$", "\\\\", "'$x'", '"\\$x"', '"\\\\"', "'\"'", "\"'\"", "=", "a=b", ",",
    ":", "%", "@", "^", "+", "#", "x#y", "''", '""', "'#'", "1", "22", "!", "é", "'é ü'", "'\n'", "\"a\nb\"", "\\\n", ".",
    "..", "-", "--", "'*'", "\\*", "'~'", "{}", "'{a,b}'", "then", "if", "in", "do", "'if'", "]", "'['", "\\'", "\\\"",
    "'a'\"b\"c", "$", "\"$\"", "a$", "\t", "x;", "\"`\"", "'`'", "$x", "*", "a[b", "~", "x~", "{a,b}", "$(a)", "\"\\x\"",
    "\"\\\n\"", "'\\'",
)  # fmt: skip
FILES = ("f1", "'f 2'", '"f3"', "f\\4")


def word(pick: random.Random) -> str:
    return "".join(pick.choice(PIECES) for _ in range(pick.choice((1, 1, 1, 2, 3))))


def command(pick: random.Random) -> str:
    name = pick.choice((*NAMES, "'a'", 'b"b"', "g\\it", "no", "a"))
    before = pick.choice(("", "", "", "LANG=C ", "X=1 ", "X='a b' Y= ", ">f1 ", "2>&1 "))
    words = " ".join(word(pick) for _ in range(pick.randrange(4)))
    after = pick.choice(
        ("", "", "", *(f" {op}{pick.choice(('', ' '))}{pick.choice(FILES)}" for op in (">", ">>", "2>", "&>", ">|")))
    )
    more = pick.choice(
        ("", "", "", " x", " 'y z' >f1 z", " 2>&1", " >/dev/null w", " <<< 'in'", " - <<'E'\n(x)\nE\n", " <<'E'\n$(a)\nE\n")
    )
    if pick.random() < 0.1:
        return pick.choice(("cd d1", "cd d1/d2", "cd ..", "cd d1 && cd d2", "true", ":", "command a x", "env a x", "nice -n 1 a x"))
    return f"{before}{name} {words}{after}{more}"


def line(pick: random.Random, depth: int = 0) -> str:
    """A line of a few commands."""
    parts = [command(pick)]
    for _ in range(pick.randrange(3)):
        parts += [pick.choice((" ; ", " && ", " || ", " | ", "\n", ";", "&&", "|", "||")), command(pick)]
    whole = "".join(parts)
    if depth < 2 and pick.random() < 0.3:
        inner = line(pick, depth + 1)
        shapes = (
            "({0})",
            "{{ {0}\n}}",
            "if {0}\nthen {1}\nfi",
            "! {0}",
            "{0}\n{1}",
            "({0}) >f1",
            "({0}) | {1}",
            "if {1}\nthen {0}\nelse {1}\nfi >f1",
        )
        return pick.choice(shapes).format(inner, whole)
    return whole


def noise(pick: random.Random) -> str:
    return "a " + "".join(pick.choice("aab gitx'\"\\ ;&|<>(){}[]#=!\n\t$-01,:~*") for _ in range(pick.randrange(2, 14)))


def certain(read: Line) -> bool:
    """Whether nothing of a line is in doubt, and every word is known."""
    steps = list(commands_of(read, {}))
    return not read.doubts and all(
        (isinstance(step, Command) and set(step.doubts) <= {LOOKED_THROUGH} and all(each.text is not None for each in step.words))
        or (isinstance(step, Redirect) and step.word.text is not None)
        for step in steps
    )


class Recorded:
    """A folder with programs that write down how they were started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "work", folder / "log"
        (folder / "bin").mkdir()
        for name in NAMES:
            (folder / "bin" / name).write_text(RECORDER)
            (folder / "bin" / name).chmod(0o755)
        for name, real in (("env", "/usr/bin/env"), ("nice", "/usr/bin/nice")):
            (folder / "bin" / name).symlink_to(real)
        self.environment = {"PATH": f"{folder}/bin", "LOG": str(self.log), "HOME": str(folder), "LANG": "C.UTF-8"}

    def run(self, text: str) -> tuple[list[tuple[str, tuple[str, ...]]], set[str]]:
        """The folder and the words of each program that the line started, and the files that are there after it."""
        subprocess.run(["rm", "-rf", self.folder, self.log], check=True)
        (self.folder / "d1" / "d2").mkdir(parents=True)
        bash = ["/bin/bash", "--norc", "-c", text + "\nwait"]
        subprocess.run(
            bash, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
        )
        entries = self.log.read_bytes().split(b"\1\0") if self.log.exists() else [b""]
        started = [[os.fsdecode(each) for each in entry.split(b"\0")[:-1]] for entry in entries[:-1]]
        files = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}
        return [(os.path.relpath(entry[0], self.folder), tuple(entry[1:])) for entry in started], files


def held(recorded: Recorded, text: str, read: Line) -> str:
    """What bash did that was not decided on, or the empty string."""
    started, files = recorded.run(text)
    steps = list(commands_of(read, {}))
    decided = [step for step in steps if isinstance(step, Command)]
    expected = Counter(tuple(each.text or "" for each in step.words) for step in decided)
    beyond = Counter(words for _, words in started) - expected
    if beyond:
        return f"bash started {list(beyond)}, decided on were {list(expected)}"
    for folder, words in started:
        there = {where for step in decided if tuple(each.text for each in step.words) == words for where in step.folders}
        if folder not in {os.path.normpath(where) if where is not None else folder for where in there} and None not in there:
            return f"bash started {words} in {folder}, decided on was {there}"
    written = [step for step in steps if isinstance(step, Redirect) and step.kind == "write"]
    named = {os.path.normpath(f"{where}/{step.word.text}".lstrip("/")) for step in written for where in step.folders}
    return f"bash wrote {files - named}, decided on were {named}" if files - named else ""


@pytest.mark.parametrize(("make", "seed", "lines", "least"), [(line, 1, 400, 120), (noise, 2, 4000, 100)])
def test_what_is_certain_of_a_line_is_what_bash_starts(tmp_path: Path, make: object, seed: int, lines: int, least: int) -> None:
    pick = random.Random(int(os.environ.get("RINGFENCE_SHELL_SEED", seed)))
    recorded = Recorded(tmp_path)
    wrong, tried, ran = [], 0, 0
    for _ in range(lines):
        text = make(pick)  # type: ignore[operator]
        read = read_line(text, {})
        if not certain(read) or not any(isinstance(step, Command) for step in read.steps):
            continue
        tried += 1
        if cause := held(recorded, text, read):
            wrong.append(f"{text!r}: {cause}")
        ran += recorded.log.exists()
        if tried >= 200:
            break
    assert not wrong, "\n".join(wrong[:20])
    assert tried >= least and ran >= least // 3, (tried, ran)
