"""A sandbox product that reads: 124 is a timeout, 137 is memory, 159 is a refused call, and a failure with a word in it a denial.

The words, and the codes that are never a denial, are those of a product in wide use.
"""

from __future__ import annotations

from truth.adapters.outside import Record
from truth.adapters.plain import judge as judge_plain
from truth.texts import WORDS
from truth.verdict import ANY, Verdict

NEVER_DENIED = (2, 126, 127)
CAPS = {124: "cap wall", 137: "cap memory"}
SIGSYS = 128 + 31


def judge(record: Record) -> Verdict:
    code = record.status
    if code is None:
        return judge_plain(record)
    code = code if code >= 0 else 128 - code
    said = (record.stderr + record.stdout).decode("utf-8", "replace").lower()
    word = any(word.lower() in said for word in WORDS)
    denied = code == SIGSYS or (code != 0 and code not in NEVER_DENIED and word)
    return Verdict(CAPS.get(code, f"exited {code}"), frozenset({ANY}) if denied else frozenset(), said[-300:])
