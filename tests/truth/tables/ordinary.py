"""Refusals of the kernel that are no refusals of ours: file modes, what is missing, what a user may not do anywhere."""

from __future__ import annotations

from truth.case import Case, fools, program

_LOCKED = {"locked": ("x", 0o000)}
_READABLE = {"readable": ("x", 0o444), "plain": ("x", 0o644)}

CASES: tuple[Case, ...] = (
    fools("echo 'ls: d: Permission denied' >&2; exit 1", "exited 1"),
    fools("./plain", "exited 126", files=_READABLE),
    fools("cat plain/x", "exited 1", files=_READABLE),
    fools("cd plain", "exited 1", files=_READABLE),
    fools("cat .", "exited 1"),
    fools("echo x > .", "exited 1"),
    fools("kill -0 4194303", "exited 1"),
    fools("rm -d /proc/self/fd/0 2>&1 | head -c 0; exit 4", "exited 4"),
    fools("ln plain b; ln plain b", "exited 1", files=_READABLE),
    fools("ulimit -f 1; trap '' XFSZ; head -c 100000 /dev/zero > big", "exited 1"),
    fools("ulimit -f 1; head -c 100000 /dev/zero > big; exit 0", "exited 0"),
    fools("ulimit -t 1; kill -XCPU $$", "signaled 24"),
    fools("ulimit -n 16; python3 -c 'held = [open(\"/dev/null\") for _ in range(64)]'", "exited 1"),
    fools("ulimit -v 300000; python3 -c 'b = bytearray(1 << 30)'", "exited 1"),
    fools("echo x > /dev/full", "exited 1"),
    fools("head -c 10 /dev/zero > /dev/full; exit 0", "exited 0"),
    fools("echo hello | false", "exited 1"),
    fools('python3 -c \'import os; os.execv("nope", ["nope"])\'', "exited 1"),
    program("import socket; socket.create_server(('127.0.0.1', 0)).accept() if False else None", "exited 0"),
    program(
        "import socket; s = socket.socket(); s.settimeout(0.1); s.bind(('127.0.0.1', 0)); s.connect(s.getsockname())", "exited 0"
    ),
    program("open('readable', 'rb').read(); raise SystemExit(9)", "exited 9", files=_READABLE),
    fools("head -c 1 locked >&2; exit 1", "exited 1", files=_LOCKED),
    fools("mkdir d; chmod 0 d; ls d; exit 1", "exited 1"),
)
