"""Paths that a config names, followed to where they really are, but through no link that a box may have made."""

from __future__ import annotations

import os
from collections.abc import Iterable

MAX_LINKS = 40
"""Links on the way to one path, as the kernel follows them (path_resolution(7))."""


class LinkOfABox(ValueError):
    """A link on the way lies in a folder that boxes write: what it leads to was chosen by whoever made it."""

    def __init__(self, link: str, target: str) -> None:
        super().__init__(f"it goes through {link}, a link to {target} in a folder that a box can write")


def real_path(path: str, shared: Iterable[str]) -> str:
    """path without links, dots and doubled slashes. Raises LinkOfABox, or OSError where nothing is."""
    roots = tuple(shared)
    left = [part for part in path.split("/") if part not in ("", ".")]
    at = ""
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        here = f"{at}/{part}"
        try:
            target = os.readlink(here)
        except OSError:
            os.lstat(here)  # raises where nothing is
            at = here
            continue
        links += 1
        if links > MAX_LINKS or any(at == root or at.startswith(root.rstrip("/") + "/") for root in roots):
            raise LinkOfABox(here, target)
        if target.startswith("/"):
            at = ""
        left = [each for each in target.split("/") if each not in ("", ".")] + left
    return at or "/"
