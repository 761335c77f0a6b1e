"""Runs of the trace in words, for a terminal. Names and output of others are escaped: a record must not act on who reads it."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Any

from ringfence.cli.shown import shown
from ringfence.trace.reader import RunRecord
from ringfence.trace.writer import lives

HEADINGS = ("run", "when", "took", "by", "ended", "command")


def moment(at: float, *, precise: bool = False) -> str:
    """A time in the zone of the reader."""
    local = datetime.fromtimestamp(at).astimezone()
    return local.isoformat(sep=" ", timespec="milliseconds") if precise else local.strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """How long, with three digits."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else "1 s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def ending(run: RunRecord) -> str:
    """How it ended, in a few words."""
    if run.ended is None:
        return "under way" if is_alive(run) else "end unknown"
    body = run.ended.body
    outcome = body.get("outcome")
    if not isinstance(outcome, dict):
        return str(body.get("error") or "?")
    said = _outcome(outcome)
    refused = len(run.denials)
    return f"{said}, {refused} refused" if refused else said


def _outcome(outcome: dict[str, Any]) -> str:
    match outcome.get("type"):
        case "Exited":
            return f"exit {outcome.get('code')}"
        case "Signaled":
            return _signal(outcome.get("signal"))
        case "CapHit":
            return f"{outcome.get('kind')} cap"
        case "NotStarted":
            return "not started"
    return str(outcome.get("type")).lower()


def _signal(number: object) -> str:
    try:
        return signal.Signals(number).name  # type: ignore[arg-type]
    except ValueError:
        return f"signal {number}"


def is_alive(run: RunRecord) -> bool:
    """Whether the process that recorded its beginning still is: else nobody will say how it ended."""
    return run.box is not None and lives(run.box.body.get("pid"), run.box.body.get("pid_started"))


def command(run: RunRecord) -> str:
    """What was run, on one line."""
    import shlex

    body = run.begun.body
    words = [str(word) for word in body.get("argv", [])] if isinstance(body.get("argv"), list) else []
    if body.get("kind") == "code":
        first, *rest = str(body.get("text", "")).strip().split("\n")
        return shown(f"{body.get('language', '')}: {first}{' ...' if rest else ''}")
    return shown(" ".join(words) if body.get("kind") == "command" else shlex.join(words))


def line(run: RunRecord) -> tuple[str, ...]:
    """The cells of a table, by HEADINGS."""
    return (str(run.number), moment(run.begun.at), duration(run.seconds), shown(run.tier) or "-", shown(ending(run)), command(run))


def data(run: RunRecord) -> dict[str, object]:
    """A run as data; output as text, with what is not UTF-8 replaced."""
    ended = run.ended
    return {
        "run": run.number,
        "at": run.begun.at,
        "seconds": run.seconds,
        "tier": run.tier or None,
        "box": run.box.number if run.box else None,
        "policy_hash": run.box.body.get("policy_hash") if run.box else None,
        "plan": run.box.body.get("plan") if run.box else None,
        "begun": dict(run.begun.body),
        "input": _text(run.begun.out),
        "state": "ended" if ended else "under way" if is_alive(run) else "end unknown",
        "ended": dict(ended.body) if ended else None,
        "stdout": _text(ended.out) if ended else None,
        "stderr": _text(ended.err) if ended else None,
        "enforcement": dict(run.enforcement),
        "questions": [dict(each.body) for each in run.questions],
        "hash": (ended or run.begun).hash,
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
