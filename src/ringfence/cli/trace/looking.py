"""ls, show and tail: runs to read."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from shutil import get_terminal_size

from ringfence.cli.shown import folded, heading, shown
from ringfence.cli.trace import words
from ringfence.trace import default_path
from ringfence.trace.reader import Reader, RunRecord

LOOK_SECONDS = 0.3
MOST_LINES = 200
"""Lines of each stream that `show` prints; --json has all that is kept."""
COMMAND_COLUMNS = 200


def ls(given: argparse.Namespace) -> int:
    with Reader(given.trace or default_path()) as reader:
        runs = reader.runs(max(0, given.most))[::-1]
    if given.json:
        return _as_json([words.data(run) for run in runs])
    _table([words.line(run) for run in runs], headed=True)
    return 0


def tail(given: argparse.Namespace) -> int:
    with Reader(given.trace or default_path()) as reader:
        runs = reader.runs(max(0, given.most))[::-1]
        said = {run.number: run.ended is not None for run in runs}
        last = max(said, default=0)
        _tell(given, runs, headed=True)
        while not given.once:
            sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
            fresh = [run for run in reader.runs(1000) if run.number > last or (said.get(run.number) is False and run.ended)]
            _tell(given, fresh[::-1], headed=False)
            said.update((run.number, run.ended is not None) for run in fresh)
            last = max(last, *(run.number for run in fresh)) if fresh else last
    return 0


def _tell(given: argparse.Namespace, runs: Sequence[RunRecord], *, headed: bool) -> None:
    if not given.json:
        return _table([words.line(run) for run in runs], headed=headed)
    import json

    for run in runs:
        print(json.dumps(words.data(run)))
    return None


def show(given: argparse.Namespace) -> int:
    with Reader(given.trace or default_path()) as reader:
        run = reader.run(given.run)
        plan = reader.plan(str(run.box.body.get("plan"))) if run.box and given.plan else []
    if given.json:
        data = words.data(run)
        return _as_json(
            data | {"config": run.box.body.get("config") if run.box else None, "plan_lines": plan} if given.plan else data
        )
    sections = _plan(run, plan) if given.plan else _sections(run)
    for number, (name, lines) in enumerate(sections):
        print(("\n" if number else "") + heading(name, sys.stdout))
        for line in lines[:MOST_LINES] if not given.plan else lines:
            print(folded(f"  {line}", sys.stdout))
        if len(lines) > MOST_LINES and not given.plan:
            print(f"  ... {len(lines) - MOST_LINES} more lines")
    return 0


def _sections(run: RunRecord) -> list[tuple[str, list[str]]]:
    begun, ended = run.begun.body, run.ended.body if run.ended else {}
    about = [
        ("command", words.command(run)),
        ("began", words.moment(run.begun.at, precise=True)),
        ("took", words.duration(run.seconds)),
        ("ended", words.ending(run)),
        ("by", run.tier),
        ("in", begun.get("cwd") or (run.box.body.get("workdir") if run.box else "")),
        ("policy", (run.box.body.get("policy_hash") or "hidden: its variables hold a secret") if run.box else ""),
        ("said", ended.get("message")),
        ("hash", run.ended.hash if run.ended else run.begun.hash),
    ]
    usage = ended.get("usage")
    if isinstance(usage, dict):
        about.insert(3, ("used", f"{usage.get('cpu_user_seconds')} s user, {usage.get('cpu_system_seconds')} s system"))
    sections = [(f"run {run.number}", [f"{name:8}{shown(str(value))}" for name, value in about if value])]
    if begun.get("variables"):
        sections.append(("variables", [shown(f"{name}={value}") for name, value in begun["variables"].items()]))
    if begun.get("text") and "\n" in str(begun["text"]).strip():
        sections.append(("program", shown(str(begun["text"]), lines=True).split("\n")))
    for name, stream in (
        ("input", run.begun.out),
        ("stdout", run.ended and run.ended.out),
        ("stderr", run.ended and run.ended.err),
    ):
        if stream:
            sections.append((_stream_name(name, begun if name == "input" else ended, stream), _lines(stream)))
    if run.denials:
        sections.append(("refused", [shown(_denial(each)) for each in run.denials]))
    for each in run.questions:
        said = each.body
        sections.append(
            ("asked", [shown(f"{said.get('kind')}: {said.get('what')}"), shown(f"answer: {said.get('choice')} {said.get('why')}")])
        )
    if isinstance(ended.get("notes"), list):
        sections.append(("notes", [shown(str(note)) for note in ended["notes"]]))
    held = [shown(f"{name:16}{how}") for name, how in run.enforcement.items() if str(how) != "none"]
    return [*sections, ("held by", held)] if held else sections


def _stream_name(name: str, body: object, stream: bytes) -> str:
    said = body.get(name) if isinstance(body, dict) else None
    total = said.get("bytes") if isinstance(said, dict) else None
    return f"{name}, {len(stream)} of {total} bytes" if isinstance(total, int) and total > len(stream) else name


def _lines(stream: bytes) -> list[str]:
    lines = shown(stream.decode("utf-8", "surrogateescape"), lines=True).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _denial(denial: dict[str, object]) -> str:
    said = f"{denial.get('kind')} {denial.get('target')}: {denial.get('rule')} ({denial.get('evidence')})"
    return f"{said}; allowed by {denial['remedy']}" if denial.get("remedy") else said


def _plan(run: RunRecord, plan: list[str]) -> list[tuple[str, list[str]]]:
    import json

    body = run.box.body if run.box else {}
    config = body.get("config")
    changed = {name: value for name, value in config.items() if value not in (None, [], {})} if isinstance(config, dict) else {}
    begun = {name: value for name, value in run.begun.body.items() if name != "text"}
    sections = [("run", [shown(f"{name}: {json.dumps(value)}") for name, value in begun.items()])]
    if run.begun.body.get("text"):
        sections.append(("program", shown(str(run.begun.body["text"]), lines=True).split("\n")))
    sections.append(("config", [shown(f"{name}: {json.dumps(value)}") for name, value in changed.items()]))
    return [*sections, ("plan", [shown(line) for line in plan])]


def _table(rows: list[tuple[str, ...]], *, headed: bool) -> None:
    """Columns as wide as they need; the last is cut at the edge of a terminal."""
    least = (5, 19, 7, 10, 8)
    all_rows = [words.HEADINGS, *rows]
    widths = [max(least[at], *(len(row[at]) for row in all_rows)) for at in range(len(least))]
    columns = get_terminal_size().columns if sys.stdout.isatty() else COMMAND_COLUMNS
    if headed:
        print(heading(_row(words.HEADINGS, widths), sys.stdout))
    for row in rows:
        text = _row(row, widths)
        print(text if len(text) <= columns else text[: columns - 1] + "…")


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    right = (0, 2)
    parts = [
        cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join([*parts, cells[-1]]).rstrip()


def _as_json(data: object) -> int:
    import json

    print(json.dumps(data))
    return 0
