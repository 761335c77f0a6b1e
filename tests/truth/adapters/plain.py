"""A careful harness: subprocess.run with a timeout. It knows wait statuses, and nothing of caps or refusals."""

from __future__ import annotations

import errno

from truth.adapters.outside import Record
from truth.verdict import Verdict

REASONS = {
    errno.ENOENT: "not found",
    errno.EACCES: "not executable",
    errno.ENOEXEC: "not in a format that this machine runs",
    errno.E2BIG: "arguments and environment larger than the kernel takes",
}


def judge(record: Record) -> Verdict:
    said = record.stderr[-300:].decode("utf-8", "replace")
    if record.timed_out:
        return Verdict("cap wall", said=said)
    if record.error is not None:
        return Verdict(f"not started: {REASONS.get(record.error.errno or 0, 'refused by the kernel')}", said=str(record.error))
    assert record.status is not None
    return Verdict(f"exited {record.status}" if record.status >= 0 else f"signaled {-record.status}", said=said)
