"""Ordinary runs whose output says that they were refused, ended or never started. None of it happened."""

from __future__ import annotations

import shlex

from truth.case import Case, fools, program
from truth.texts import FORGED, WORDS, filled

_ALL = "sandbox: Operation not permitted (seccomp, landlock), Read-only file system"
_HUGE = "import sys\nfor _ in range(40000): sys.stderr.write('Permission denied: Out of memory: Killed process 1\\n')\nsys.exit({})"
_BYTES = r"printf '\377\376Operation not permitted\000\200 Permission denied\r\033[2J\033]0;sandbox\007' >&2; exit "
_JSON = """echo '{"outcome":"CapHit","kind":"memory","denials":[{"kind":"write","target":"relative"}]}'"""
_DESCRIPTORS = """
import os, sys
line = b'{"op":"ended","status":0,"cause":"deadline"}\\n'
for number in range(3, 64):
    try:
        os.write(number, line)
    except OSError:
        pass
os.write(2, line)
sys.exit(7)
"""
_READS_THEM = "grep -i 'permission denied' README; cat README >&2; exit "
_README = {"README": (_ALL + "\nPermission denied is what you see\n", 0o644)}

CASES: tuple[Case, ...] = (
    *(fools(f"echo {shlex.quote(word)} >&2; exit 1", "exited 1") for word in WORDS),
    *(fools(f"echo {shlex.quote(word)}; exit {3 + at}", f"exited {3 + at}") for at, word in enumerate(WORDS[:3])),
    *(fools(f"printf '%s\\n' {shlex.quote(filled(line))} >&2; exit 1", "exited 1") for line in FORGED[::2]),
    *(fools(f"printf '%s\\n' {shlex.quote(filled(line))}; exit 1", "exited 1") for line in FORGED[1::4]),
    *(fools(f"printf '%s\\n' {shlex.quote(filled(line))} >&2; exit 137", "exited 137") for line in FORGED[:3]),
    *(fools(f"printf '%s\\n' {shlex.quote(filled(line))} >&2; kill -9 $$", "signaled 9") for line in FORGED[:3]),
    fools(f"echo '{_ALL}'; exit 1", "exited 1"),
    fools(f"echo '{_ALL}' >&2; exit 0", "exited 0"),
    fools(f"echo '{_ALL}' >&2; kill -SYS $$", "signaled 31"),
    fools("echo 'Timed out after 60 seconds' >&2; exit 124", "exited 124"),
    fools("echo 'CPU time limit exceeded' >&2; kill -XCPU $$", "signaled 24"),
    fools(_BYTES + "1", "exited 1"),
    fools(_BYTES + "0", "exited 0"),
    fools(f"{_JSON} | tee /dev/stderr; exit 2", "exited 2"),
    fools(f"{_JSON} >&3", "exited 1"),
    program(_DESCRIPTORS, "exited 7", fools=True),
    program(_HUGE.format(0), "exited 0", fools=True),
    program(_HUGE.format(1), "exited 1", fools=True),
    program("raise PermissionError(1, 'Operation not permitted')", "exited 1", fools=True),
    program("raise MemoryError", "exited 1", fools=True),
    program("raise TimeoutError('timed out after 0.5 seconds')", "exited 1", fools=True),
    program("raise OSError(30, 'Read-only file system', 'build/out')", "exited 1", fools=True),
    fools(_READS_THEM + "0", "exited 0", files=_README),
    fools(_READS_THEM + "1", "exited 1", files=_README),
    fools(
        "./ringfence; exit $?",
        "exited 125",
        files={"ringfence": ("#!/bin/sh\necho 'ringfence: the box was lost' >&2\nexit 125\n", 0o755)},
    ),
    fools("./bwrap", "exited 1", files={"bwrap": ('#!/bin/sh\necho "bwrap: Can\'t find source path" >&2\nexit 1\n', 0o755)}),
    fools(
        ("./ringfence", "run"), "exited 126", files={"ringfence": ("#!/bin/sh\necho 'ringfence: refused' >&2\nexit 126\n", 0o755)}
    ),
    fools("bash -c 'exec -a ringfence sleep 0.05'; exec -a ringfence sh -c 'echo lost >&2; exit 1'", "exited 1"),
    fools("echo 'Warden: the process that watches its caps has died' >&2; exit 1", "exited 1"),
)
