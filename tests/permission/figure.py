"""The figure of the README about questions: counted over the recorded sessions, written by `scripts/questions`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from permission.recorded import asked_of

LEAST_FEWER = 0.8
PATTERN = re.compile(r"^Of \d+ commands in \d+ recorded sessions .*$", re.MULTILINE)


def sentence(project: Path) -> str:
    """What the README says."""
    decided = asked_of(project)
    asked = sum(effect != "allow" for _, effect, _ in decided)
    outside = sum(each.outside for each, _, _ in decided)
    sessions = len({each.session for each, _, _ in decided})
    fewer = int(100 * (1 - asked / len(decided)))
    return (
        f'Of {len(decided)} commands in {sessions} recorded sessions `confined="allow"` asks about {asked}, {fewer} % fewer than '
        f"asking per command; {outside} have an act outside the policy, and each of those is asked."
    )


def main() -> int:
    readme = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / ".git" / "hooks").mkdir(parents=True)
        said = sentence(Path(folder))
    print(said)
    text = readme.read_text(encoding="utf-8")
    readme.write_text(PATTERN.sub(lambda _: said, text), encoding="utf-8")
    return 0 if said in readme.read_text(encoding="utf-8") else 1


if __name__ == "__main__":
    sys.exit(main())
