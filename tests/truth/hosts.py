"""What this host has, found without ringfence."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

IN_A_GROUP = """
group=$(mktemp -d "$0/rf-truth-XXXXXX") && echo "$1" > "$group/pids.max" || exit 99
shift
(sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@")
status=$?
until rmdir "$group" 2>/dev/null; do sleep 0.05; done
exit $status
"""


@cache
def process_groups() -> str:
    """The folder in which this process may make a control group that counts processes; empty where it may not."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("pids", ""):
            continue
        above = f"/sys/fs/cgroup/{controllers}{path}"
        try:
            made = tempfile.mkdtemp(prefix="rf-truth-", dir=above)
        except OSError:
            continue
        counts = os.path.exists(f"{made}/pids.max")
        os.rmdir(made)
        if counts:
            return above
    return ""


def counts_processes() -> bool:
    """Whether anything of this host bounds the processes of a tree that has no namespace of its own."""
    return bool(process_groups())


def bounded_processes(most: int) -> tuple[str, ...]:
    """Words that run a command with so many processes at most: in a group, or in a user namespace of its own."""
    if above := process_groups():
        return ("bash", "-c", IN_A_GROUP, above, str(most))
    return ("unshare", "--user", "--map-current-user", "prlimit", f"--nproc={most}")
