"""From what happened to the bytes of a row: JSON with sorted keys, bounded, and without secrets.

Numbers that are read back have their unit in their name. Streams are bytes beside it, so that nothing of them is changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.outcome import Denial, Enforcement, Output
from ringfence.policy.digest import digest
from ringfence.recorder import BoxEnded, BoxStarted, QuestionAsked, RunEnded, RunStarted
from ringfence.trace.secrets import Scrubber
from ringfence.trace.writer import started
from ringfence.values import fields

MOST_TEXT = 1 << 16
"""Bytes of a program, and of all words of a command line, that are kept."""
MOST_INPUT = 1 << 16
HEAD_BYTES, TAIL_BYTES = 1 << 14, 3 << 14
"""What is kept of each stream of a run: 64 KiB, more of its end, where errors are."""
MOST_DENIALS = 1000
MOST_NOTES = 100

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def packed(body: Mapping[str, object]) -> bytes:
    """body as the bytes of a row: ASCII, with lone surrogates as escapes, so that a name that is no text is still there."""
    return _encode(body).encode("ascii")


def of_box(made: BoxStarted, scrub: Scrubber) -> tuple[tuple[str, bytes], bytes]:
    """The plan with its digest, and the body."""
    lines = [scrub.text(line) if not line.startswith("set ") else _assignment(line, scrub) for line in made.plan.describe()]  # type: ignore[attr-defined]
    config = plain(made.config)
    assert isinstance(config, dict)
    config["environment"] = {name: scrub.variable(name, value) for name, value in config.get("environment", {}).items()}
    plan = packed({"plan": lines})
    digested = digest(plan)
    hidden = sorted(name for name, value in made.variables.items() if scrub.variable(name, value) != value)
    body = {
        "box": made.box,
        "tier": made.tier,
        # The hash of a policy is made from its variables too: with a secret among them it would tell of it.
        "policy_hash": None if hidden else made.policy_hash,
        "config": _scrubbed(config, scrub),
        "hidden_variables": hidden,
        "plan": digested,
        "enforcement": _enforcement(made.enforcement),
        "workdir": scrub.text(made.workdir),
        "notes": [scrub.text(note) for note in made.notes[:MOST_NOTES]],
        "seconds": round(made.seconds, 6),
        "pid": os.getpid(),
        "pid_started": started(os.getpid()),
    }
    return (digested, plan), packed(body)


def of_beginning(begun: RunStarted, scrub: Scrubber) -> tuple[bytes, bytes | None]:
    """The body, and the input where it is short enough to be kept."""
    argv = scrub.argv(begun.argv)
    text = scrub.text(begun.text)
    size = sum(map(len, argv))
    body: dict[str, object] = {"kind": begun.kind, "argv": argv}
    if size > MOST_TEXT:
        body["argv"], body["argv_bytes"] = _first_words(argv), size
    if text:
        body |= {"text": text[:MOST_TEXT], "language": begun.language}
    if len(text) > MOST_TEXT:
        body |= {"text_characters": len(text), "text_sha256": digest(text.encode("utf-8", "surrogateescape"))}
    if begun.cwd is not None:
        body["cwd"] = scrub.text(begun.cwd)
    if begun.variables:
        body["variables"] = {name: scrub.variable(name, value) for name, value in begun.variables.items()}
    if begun.timeout is not None:
        body["timeout_seconds"] = begun.timeout
    data = None
    if begun.input is not None:
        data = scrub.data(begun.input)
        body["input"] = {"bytes": len(begun.input), "kept": len(data) <= MOST_INPUT, "sha256": digest(data)}
        data = data if len(data) <= MOST_INPUT else data[:MOST_INPUT]
    # Whether what was left out would be needed to run it again.
    if argv != list(begun.argv) or text != begun.text or (data is not None and data != begun.input):
        body["incomplete"] = True
    return packed(body), data


def of_end(ended: RunEnded, scrub: Scrubber) -> tuple[bytes, bytes | None, bytes | None]:
    """The body, and what is kept of the two streams."""
    result = ended.result
    body: dict[str, object] = {"seconds": round(ended.seconds, 6)}
    output = ended.output or ((result.output, result.errors) if result else (Output(), Output()))
    kept = []
    for name, stream in zip(("stdout", "stderr"), output, strict=True):
        said, data = _stream(stream, scrub)
        kept.append(data)
        if said:
            body[name] = said
    if result is None:
        body |= {"error": ended.error, "message": scrub.text(ended.message)}
        return packed(body), kept[0], kept[1]
    body |= {
        "outcome": {"type": type(result.outcome).__name__, **plain_fields(result.outcome)},
        "tier": result.backend,
        "usage": {each.name: getattr(result.usage, each.name) for each in fields(result.usage)},
    }
    if result.denials:
        body["denials"] = _denials(result.denials, scrub)
    if result.notes:
        body["notes"] = [scrub.text(note) for note in result.notes[:MOST_NOTES]]
    if result.files_created:
        body["files_created"] = [scrub.text(name) for name in result.files_created[:MOST_DENIALS]]
    if ended.enforcement is not None:
        body["enforcement"] = _enforcement(ended.enforcement)
    return packed(body), kept[0], kept[1]


def of_question(asked: QuestionAsked, scrub: Scrubber) -> bytes:
    names = ("kind", "what", "rule", "grant", "choice", "why")
    return packed({**{name: scrub.text(getattr(asked, name)) for name in names}, "seconds": round(asked.seconds, 6)})


def of_box_end(ended: BoxEnded, scrub: Scrubber) -> bytes:
    return packed({"denials": _denials(ended.denials, scrub)} if ended.denials else {})


def plain(value: object) -> Any:
    """A value as JSON has it; what is no number, text, list or map is shown."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (Sequence, frozenset, set)) and not isinstance(value, (bytes, bytearray)):
        return [plain(each) for each in value]
    if hasattr(type(value), "__value_fields__"):
        return plain_fields(value)
    return repr(value)


def plain_fields(value: object) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}


def _scrubbed(value: Any, scrub: Scrubber) -> Any:
    if isinstance(value, str):
        return scrub.text(value)
    if isinstance(value, dict):
        return {name: _scrubbed(each, scrub) for name, each in value.items()}
    return [_scrubbed(each, scrub) for each in value] if isinstance(value, list) else value


def _assignment(line: str, scrub: Scrubber) -> str:
    name, _, value = line.removeprefix("set ").partition("=")
    return f"set {name}={scrub.variable(name, value)}"


def _first_words(words: list[str]) -> list[str]:
    kept, left = [], MOST_TEXT
    for word in words:
        kept.append(word[:left])
        left -= len(kept[-1])
        if left <= 0:
            break
    return kept


def _stream(stream: Output, scrub: Scrubber) -> tuple[dict[str, object] | None, bytes | None]:
    """What is said of a stream, and what is kept of it. Nothing where nothing was written."""
    if not (stream.head or stream.tail or stream.omitted):
        return None, None
    total = len(stream.head) + len(stream.tail) + stream.omitted
    if stream.omitted:
        head, tail = scrub.data(stream.head, cut_end=True), scrub.data(stream.tail, cut_start=True)
    else:
        head, tail = scrub.data(stream.head + stream.tail), b""
    said: dict[str, object] = {"bytes": total, "sha256": digest(head + tail)}
    if len(head) + len(tail) > HEAD_BYTES + TAIL_BYTES:
        whole = head + tail
        head, tail = whole[:HEAD_BYTES], whole[-TAIL_BYTES:]
    if stream.omitted or tail:
        said["head"] = len(head)
    return said, head + tail


def _denials(denials: Sequence[Denial], scrub: Scrubber) -> list[dict[str, object]]:
    return [
        {name: scrub.text(value) if isinstance(value, str) else value for name, value in plain_fields(each).items()}
        for each in denials[:MOST_DENIALS]
    ]


def _enforcement(enforcement: Enforcement) -> dict[str, str]:
    return {each.name: str(getattr(enforcement, each.name)) for each in fields(enforcement)}
