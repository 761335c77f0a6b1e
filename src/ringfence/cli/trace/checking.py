"""verify, head, export and prune: the trace as a whole."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from base64 import b64encode

from ringfence.cli.shown import shown
from ringfence.errors import ArgumentError
from ringfence.trace import default_path
from ringfence.trace.reader import Reader

UNITS = {"d": 86400, "h": 3600, "m": 60}


def verify(given: argparse.Namespace) -> int:
    from ringfence.trace.verify import Head
    from ringfence.trace.verify import verify as verified

    against = Head.of(_head(given.against)) if given.against else None
    with Reader(given.trace or default_path()) as reader:
        found = verified(reader, against)
    if given.json:
        head = {"trace": found.head.trace, "row": found.head.row, "hash": found.head.hash} if found.head else None
        print(
            json.dumps({"ok": found.ok, "rows": found.rows, "pruned_through": found.anchored, "faults": found.faults, "head": head})
        )
    elif found.ok:
        pruned = f", rows up to {found.anchored} were pruned" if found.anchored else ""
        print(f"ok: {found.rows} rows{pruned}" + (", and the head that was kept is among them" if against else ""))
    else:
        for fault in found.faults:
            print(shown(fault), file=sys.stderr)
    return 0 if found.ok else 1


def _head(text: str) -> str:
    if not os.path.isfile(text):
        return text
    with open(text, encoding="utf-8", errors="replace") as file:
        return file.read(4096)


def head(given: argparse.Namespace) -> int:
    from ringfence.trace.verify import head as last

    with Reader(given.trace or default_path()) as reader:
        found = last(reader)
    print(json.dumps({"trace": found.trace, "row": found.row, "hash": found.hash}) if given.json else found)
    return 0


def export(given: argparse.Namespace) -> int:
    with Reader(given.trace or default_path()) as reader:
        for row in reader.rows():
            data = {"number": row.number, "at": row.at, "kind": row.kind, "about": row.about, "body": row.body, "hash": row.hash}
            streams = {"out": row.out, "err": row.err}
            print(json.dumps(data | {name: b64encode(each).decode() for name, each in streams.items() if each is not None}))
    return 0


def prune(given: argparse.Namespace) -> int:
    from ringfence.trace.prune import prune as pruned

    before = _time(given.before) if given.before else None
    found = pruned(given.trace or default_path(), before=before, keep=given.keep)
    if given.json:
        print(json.dumps({"rows": found.rows, "through": found.through}))
    else:
        print(f"{found.rows} rows were taken away, up to row {found.through}" if found.rows else "nothing is that old")
    return 0


def _time(text: str) -> float:
    """Seconds since the epoch."""
    if ago := re.fullmatch(r"(\d{1,6})([dhm])", text):
        return time.time() - int(ago[1]) * UNITS[ago[2]]
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise ArgumentError(f"--before {text!r} is no time.", hint="Give 2026-01-31, 2026-01-31T12:00, or 30d, 12h, 5m.") from None
