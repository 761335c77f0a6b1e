"""What a run leaves for programs outside to run: repositories inside the folder that is worked on."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth, fools


def _planted(run: str, target: str, status: int = 0, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"planted @folder/{target}",)), **more)


CASES: tuple[Case, ...] = (
    _planted("git init -q x", "x/.git"),
    _planted("git init -q x; exit 124", "x/.git", 124, fools=True),
    _planted("git init -q x 2>/dev/null | cat; echo 'nothing was left'", "x/.git", fools=True),
    _planted("mkdir -p deep/er; cd deep/er; git init -q .; exit 1", "deep/er/.git", 1),
    _planted("git init -q x", "x/.git", policy={"on_planted": "refuse"}),
    fools("git init -q x; rm -rf x", "exited 0"),
    fools("echo 'planted: x/.git, a nested repository' >&2; exit 1", "exited 1"),
    fools("mkdir git; echo 'ref: refs/heads/main' > git/HEAD", "exited 0"),
)
