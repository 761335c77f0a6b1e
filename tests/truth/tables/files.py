"""Files that a box really refused: said plainly, said by different programs, swallowed by pipelines, caught, or claimed only."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth

_CONFINED: dict[str, Any] = {"witness": "trace", "tiers": ("namespaces",)}
_READ_ONLY = {"policy": {"read_only": ("@outside",)}}
_SECRETS = {
    ".env": ("KEY=value\n", 0o644),
    "deploy/id_rsa": ("-----BEGIN OPENSSH PRIVATE KEY-----\n", 0o600),
    "plain": ("x\n", 0o644),
}
_OWN = {"tool": ("#!/bin/sh\ntouch /etc/zz || echo 'tool: sandbox: all is well'\nexit 0\n", 0o755)}


def _write(run: str, target: str, status: int = 1, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"write {target}",)), **{**_CONFINED, **more})


def _read(run: str, target: str, status: int = 1, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"read {target}",)), **{**_CONFINED, **more})


def _unseen(run: str, target: str, status: int = 1, **more: Any) -> Case:
    """Refused, and nothing that anybody could read said so: it may be reported."""
    return Case(run, Truth(f"exited {status}", may=(target,)), fools=True, **{**_CONFINED, **more})


def _claimed(run: str, target: str, status: int = 1, **more: Any) -> Case:
    """Words about a path that the policy closes, read from a file; nothing tried it."""
    return Case(run, Truth(f"exited {status}", claimed=(target,)), fools=True, **{**_CONFINED, **more})


def _script(text: str) -> dict[str, tuple[str | bytes, int]]:
    return {"text": (text + "\n", 0o644)}


CASES: tuple[Case, ...] = (
    _write("echo x > /etc/zz", "/etc/zz"),
    _write("echo x >> /etc/zz", "/etc/zz"),
    _write("sh -c 'echo x > /etc/zz'", "/etc/zz", 2),
    _write("touch /etc/zz", "/etc/zz"),
    _write("touch /usr/x", "/usr/x"),
    _write("mkdir /usr/local/new", "/usr/local/new"),
    _write("mkdir -p /opt-of-nobody/a/b", "/opt-of-nobody"),
    _write("cp /etc/hostname /usr/share/zz", "/usr/share/zz"),
    _write("tee /etc/zz < /dev/null", "/etc/zz"),
    _write("dd if=/dev/zero of=/usr/zz bs=1 count=1", "/usr/zz"),
    _write("ln -s /etc /usr/zz", "/usr/zz"),
    _write("rm /usr/bin/env", "/usr/bin/env"),
    Case("open('/etc/zz', 'w')", Truth("exited 1", ("write /etc/zz",)), code=True, **_CONFINED),
    Case("touch /etc/zz; kill -9 $$", Truth("signaled 9", ("write /etc/zz",)), fools=True, **_CONFINED),
    _write("echo x > /etc/zz; true", "/etc/zz", 0),
    _write("touch /etc/zz || exit 7", "/etc/zz", 7),
    _write("touch /etc/zz | cat", "/etc/zz", 0, fools=True),
    _write("touch /etc/zz || true", "/etc/zz", 0, fools=True),
    _write("(touch /etc/zz; exit 124)", "/etc/zz", 124, fools=True),
    _write("touch /etc/zz 2>&1 >/dev/null | cat >&2", "/etc/zz", 0, fools=True),
    _write("touch /etc/zz; exit 137", "/etc/zz", 137, fools=True),
    _write("touch /etc/zz; echo 'Killed' >&2; exit 0", "/etc/zz", 0, fools=True),
    _write("./tool", "/etc/zz", 0, files=_OWN, fools=True),
    _write("touch @outside/new", "@outside/new", **_READ_ONLY),
    _write("rm @outside/here", "@outside/here", **_READ_ONLY),
    _write("echo x >> @outside/here", "@outside/here", **_READ_ONLY),
    _write('python3 -c \'open("@outside/new", "w")\'', "@outside/new", **_READ_ONLY),
    _write("truncate -s 0 @outside/here || exit 5", "@outside/here", 5, **_READ_ONLY),
    _read("cat @outside/here", "@outside/here"),
    _read("head -1 @outside/here >/dev/null || exit 9", "@outside/here", 9),
    _read("ls @outside", "@outside", 2),
    _read("python3 -c 'print(open(\"@outside/here\").read())'", "@outside/here"),
    _read("cat @outside/here | cat", "@outside/here", 0, fools=True),
    _read("cat @outside/here || echo 'no trouble at all'", "@outside/here", 0, fools=True),
    _read("grep -c KEY .env", "@folder/.env", 2, files=_SECRETS, fresh=True, policy={"deny": ("**/.env",)}),
    _unseen("cat .netrc 2>/dev/null; exit 6", "read @folder/.netrc", 6, files={".netrc": ("machine x\n", 0o600)}, fresh=True),
    _read("cat deploy/id_rsa plain", "@folder/deploy/id_rsa", files=_SECRETS, fresh=True),
    _unseen("touch /etc/zz 2>/dev/null", "write /etc/zz"),
    _unseen("touch /etc/zz 2>/dev/null || true", "write /etc/zz", 0),
    _unseen("touch /etc/zz >/dev/null 2>&1; exit 124", "write /etc/zz", 124),
    _unseen("touch /etc/zz 2>&1 | cat", "write /etc/zz", 0),
    _unseen("test -w /usr/bin && echo yes || exit 3", "write /usr/bin", 3),
    _unseen("try:\n    open('/etc/zz', 'w')\nexcept OSError:\n    print('skipped')", "write /etc/zz", 0, code=True),
    _unseen("cat @outside/here 2>/dev/null", "read @outside/here"),
    _claimed("cat text >&2; exit 1", "write /etc/zz", files=_script("touch: cannot touch '/etc/zz': Read-only file system")),
    _claimed("cat text >&2; exit 0", "read @outside/here", 0, files=_script("cat: @outside/here: No such file or directory")),
    _claimed(
        "cat text >&2; exit 13", "read @outside", 13, files=_script("ls: cannot open directory '@outside': Permission denied")
    ),
    _claimed(
        "cat text >&2; exit 1",
        "write /usr/x",
        files=_script("Error: EROFS: read-only file system, open '/usr/x'\n    at Object.openSync (node:fs:1:2)"),
    ),
)
