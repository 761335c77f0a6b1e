"""System calls that a box refuses: alone, by tools, swallowed, in a child, many times; and refusals that are the kernel's own."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth

_CONFINED: dict[str, Any] = {"witness": "trace", "tiers": ("namespaces",)}
_LIBC = "import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\nanswer = {}\n"
CALLS = {
    "unshare": "libc.unshare(0x10000000)",
    "mount": "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
    "umount2": "libc.umount2(b'/proc', 0)",
    "chroot": "libc.chroot(b'/')",
    "sethostname": "libc.sethostname(b'x', 1)",
    "setns": "libc.setns(0, 0x20000000)",
    "ptrace": "libc.ptrace(16, 1, 0, 0)",
    "process_vm_readv": "libc.process_vm_readv(1, 0, 0, 0, 0, 0)",
    "swapon": "libc.swapon(b'/x', 0)",
    "acct": "libc.acct(b'/x')",
    "fanotify_init": "libc.fanotify_init(0, 0)",
    "init_module": "libc.init_module(0, 0, b'')",
    "fchmod": "libc.fchmod(os.open('made', os.O_CREAT | os.O_WRONLY), 0o4755)",
    "socket": "libc.socket(40, 1, 0)",
}
"""A call of libc that makes each."""


def _refused(run: str, call: str, status: int = 0, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"syscall {call}",)), **{**_CONFINED, **more})


def _program(call: str, after: str = "") -> str:
    return _LIBC.format(CALLS[call]) + (after or "sys.exit(0 if answer == -1 else 9)")


def _quiet(run: str, status: int, **more: Any) -> Case:
    """Refused by the kernel as everywhere, for what the caller of the box is inside: no denial."""
    return Case(run, Truth(f"exited {status}"), fools=True, **{**_CONFINED, **more})


CASES: tuple[Case, ...] = (
    *(_refused(_program(call), call, code=True) for call in CALLS),
    _refused("unshare -r true", "unshare", 1),
    _refused("unshare -r true 2>/dev/null", "unshare", 1, fools=True),
    _refused("unshare -r true 2>/dev/null || true", "unshare", fools=True),
    _refused("unshare -r true 2>&1 | cat > /dev/null", "unshare", fools=True),
    _refused("unshare -r true; echo all is well", "unshare", fools=True),
    _refused("unshare -r true >/dev/null 2>&1; exit 159", "unshare", 159, fools=True),
    _refused("(unshare -r true &) 2>/dev/null; sleep 0.2; exit 7", "unshare", 7, fools=True),
    _refused("/usr/sbin/chroot . true", "chroot", 125),
    _refused("python3 -c 'import ctypes; ctypes.CDLL(None).mount(0, 0, 0, 0, 0)'", "mount", fools=True),
    _refused(_program("acct", "sys.exit(124)"), "acct", 124, code=True, fools=True),
    _refused(_program("swapon", "for _ in range(200): libc.swapon(b'/x', 0)"), "swapon", code=True),
    _refused(_program("ptrace", "print('Bad system call', file=sys.stderr); sys.exit(159)"), "ptrace", 159, code=True, fools=True),
    Case(
        _program("ptrace", "os.kill(os.getpid(), 31)"),
        Truth("signaled 31", ("syscall ptrace",)),
        code=True,
        fools=True,
        **_CONFINED,
    ),
    Case("unshare -r true 2>/dev/null; kill -9 $$", Truth("signaled 9", ("syscall unshare",)), fools=True, **_CONFINED),
    Case(
        "unshare -r true 2>/dev/null; touch /etc/zz",
        Truth("exited 1", ("syscall unshare", "write /etc/zz")),
        fools=True,
        **_CONFINED,
    ),
    _quiet("import os; os.setuid(0)", 1, code=True),
    _quiet("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", 1, code=True),
    _quiet("import os; os.nice(-5)", 1, code=True),
    _quiet("chown 1:1 . ; exit 3", 3),
    _quiet("kill -9 1; exit 5", 5),
    _quiet("import os; os.mknod('made', 0o60600, 0x800)", 1, code=True),
)
