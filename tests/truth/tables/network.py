"""Connections that a box refuses: to names, to addresses, to a server that is really there outside; and those inside it."""

from __future__ import annotations

from typing import Any

from truth.case import Case, Truth, fools, program

_CONFINED: dict[str, Any] = {"witness": "trace", "tiers": ("namespaces",)}
_FETCH = "python3 -c 'import urllib.request; urllib.request.urlopen(\"{}\", timeout=5)'"
_INSIDE = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=server.accept).start()
socket.create_connection(server.getsockname()).close()
"""
_NOBODY = (
    "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); p = s.getsockname(); s.close()\nsocket.create_connection(p)"
)


def _denied(run: str, target: str, status: int = 1, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", (f"net {target}",)), **{**_CONFINED, **more})


def _unseen(run: str, target: str, status: int = 0, **more: Any) -> Case:
    return Case(run, Truth(f"exited {status}", may=(f"net {target}",)), fools=True, **{**_CONFINED, **more})


CASES: tuple[Case, ...] = (
    _denied(_FETCH.format("http://denied.test:81/"), "denied.test:81"),
    _denied(_FETCH.format("http://denied.test/"), "denied.test:80"),
    _denied("git clone -q https://denied.test/x", "denied.test:443", 128),
    _denied("git clone -q https://denied.test/x || true", "denied.test:443", 0, fools=True),
    _denied("git clone -q https://denied.test/x | cat; exit 124", "denied.test:443", 124, fools=True),
    _denied("echo x > /dev/tcp/203.0.113.9/80", "203.0.113.9:80"),
    _denied("import socket; socket.create_connection(('203.0.113.9', 80), timeout=5)", "a host", code=True),
    _unseen("git clone -q https://denied.test/x 2>/dev/null; exit 0", "denied.test:443"),
    _unseen("(echo x > /dev/tcp/203.0.113.9/80) 2>/dev/null; exit 1", "203.0.113.9:80", 1),
    Case(
        "(echo x > /dev/tcp/127.0.0.1/@port) && exit 0 || exit 3",
        Truth("exited 3", may=("net 127.0.0.1:@port",)),
        unconfined=Truth("exited 0"),
        fools=True,
        witness="far side",
    ),
    Case(
        "cat text >&2; exit 6",
        Truth("exited 6", claimed=("net denied.test",)),
        fools=True,
        files={"text": ("curl: (6) Could not resolve host: denied.test\n", 0o644)},
        **_CONFINED,
    ),
    fools("echo 'curl: (6) Could not resolve host: denied.test' >&2; exit 6", "exited 6"),
    program(_INSIDE, "exited 0"),
    program(_NOBODY, "exited 1", fools=True),
)
