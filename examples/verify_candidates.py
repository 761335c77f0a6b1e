"""Three candidate patches for one project, each verified in a box by itself, and one verdict for each.

    python -m examples.verify_candidates        (from the checkout, in its .venv)

The first mends the fault, the second does not, and the third wants what the box closes, so that nobody knows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from ringfence import Verdict, Verification

PROJECT = {
    "Makefile": 'median: median.sh\n\tinstall -m 755 median.sh median\n\ntest: median\n\ttest "$$(echo 5 1 3 | ./median)" = 3\n',
    "median.sh": "#!/bin/sh\ntr ' ' '\\n' | head -n 2 | tail -n 1\n",
}


def patch(line: str) -> str:
    """A patch for the last line of median.sh, as a model would write it."""
    old = PROJECT["median.sh"].splitlines()[-1]
    return f"--- a/median.sh\n+++ b/median.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-{old}\n+{line}\n"


CANDIDATES = {
    "sorts first": patch("tr ' ' '\\n' | sort -n | head -n 2 | tail -n 1"),
    "takes the last": patch("tr ' ' '\\n' | tail -n 1 | sed s/3/4/"),
    "sorts elsewhere": patch("tr ' ' '\\n' | sort -n > /etc/median.txt; head -n 2 /etc/median.txt | tail -n 1"),
}


async def main() -> dict[str, Verdict]:
    """Verify all three at once; prints and returns the verdicts."""
    verdicts: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROJECT.items():
            Path(folder, name).write_text(text)
        gate = Verification.sandboxed()

        async def verify(name: str) -> None:
            verdicts[name] = await gate.verify(folder, patch=CANDIDATES[name])

        async with anyio.create_task_group() as tasks:
            for name in CANDIDATES:
                tasks.start_soon(verify, name)
    for name in CANDIDATES:
        verdict = verdicts[name]
        print(f"{name}: {verdict.status}" + (f", {verdict.command}: {verdict.why}" if verdict.command else ""))
    return verdicts


if __name__ == "__main__":
    anyio.run(main)
