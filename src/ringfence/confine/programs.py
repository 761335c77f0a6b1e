"""Which file a command would start in a box, and whether it could: by the plan and the file's first bytes. Starts nothing."""

from __future__ import annotations

import os
import stat
import struct

from ringfence.confine.places import Place, Places
from ringfence.values import frozen

FIRST_BYTES = 4096
MAX_INTERPRETERS = 4
"""Scripts whose interpreter is a script: the kernel follows about as many (BINPRM_MAX_RECURSION was 4; binfmt_script(5))."""
SHEBANG_BYTES = 256
"""BINPRM_BUF_SIZE, linux/binfmts.h: what of the first line the kernel reads."""
PT_INTERP = 3  # elf.h


@frozen
class Program:
    """file: what would be started, or the empty string. interpreters: what it needs to run, in order. problem: why it would not."""

    name: str
    file: str = ""
    interpreters: tuple[str, ...] = ()
    problem: str = ""


def program(places: Places, name: str) -> Program:
    """What `name` starts: looked for in the box's PATH, unless it has a slash."""
    if "/" in name:
        return _started(places, name, places.look(name))
    unfit = ""
    for folder in places.plan.environment.get("PATH", "").split(":"):
        place = places.look(f"{folder}/{name}")
        if place.kind in ("absent", "closed", "covered") or place.is_folder:
            continue
        if _why_not(places, place):
            unfit = unfit or f"{place.path} is not executable in the box"
            continue
        return _started(places, name, place)
    return Program(name, problem=unfit or f"no folder of the box's PATH has {name!r}")


def _why_not(places: Places, place: Place) -> str:
    """Why a file is not executed, or the empty string."""
    if place.kind in ("absent", "closed", "covered"):
        return {"absent": "is not in the box", "closed": "is in a folder that the box may not enter"}.get(place.kind, "is covered")
    if place.is_folder:
        return "is a folder"
    if place.no_exec or (place.found and not stat.S_ISREG(place.found.st_mode)):
        return "is not a program"
    executable = place.found is not None and place.found.st_mode & 0o111
    return "" if executable and places.may(place, os.X_OK) else "is not executable for the box's user"


def _started(places: Places, name: str, place: Place) -> Program:
    needed: list[str] = []
    file = place.path
    why = _why_not(places, place)
    while not why and len(needed) < MAX_INTERPRETERS:
        wanted, *words = _interpreter(place.host)
        if not wanted:
            break
        needed.append(wanted)
        place = places.look(wanted)
        why = _why_not(places, place)
        if not why and os.path.basename(wanted) == "env" and words and words[0][0] != "-" and "=" not in words[0]:
            inner = program(places, words[0])  # env(1) looks for it as a shell does
            return Program(name, file, (*needed, inner.file or words[0], *inner.interpreters), inner.problem)
    lacking = f"its interpreter {needed[-1]}" if needed else file
    return Program(name, file, tuple(needed), f"{lacking} {why}" if why else "")


def _interpreter(host: str) -> list[str]:
    """What the first bytes of a file of the host name as its interpreter, and its arguments; [""] where they name none.

    As binfmt_script and binfmt_elf of the kernel do.
    """
    try:
        with open(host, "rb") as file:
            first = file.read(FIRST_BYTES)
            if first.startswith(b"#!"):
                return [os.fsdecode(word) for word in first[2:SHEBANG_BYTES].split(b"\n", 1)[0].split()] or [""]
            where = _of_elf(first)
            if where is None:
                return [""]
            file.seek(where[0])
            return [os.fsdecode(file.read(where[1]).rstrip(b"\0"))]
    except (OSError, struct.error):
        return [""]


def _of_elf(first: bytes) -> tuple[int, int] | None:
    """Offset and size of the interpreter's name in a 64-bit ELF file (elf(5))."""
    if first[:5] != b"\x7fELF\x02":
        return None
    order = "<" if first[5] == 1 else ">"
    table, size, count = struct.unpack_from(f"{order}Q14xHH", first, 32)
    for at in range(min(count, 64)):
        kind, offset, length = struct.unpack_from(f"{order}I4xQ16xQ", first, table + at * size)
        if kind == PT_INTERP:
            return offset, min(length, FIRST_BYTES)
    return None
