"""The SDK's real client of MCP, and servers as processes of their own, over stdio and HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

SERVER = [sys.executable, "-m", "ringfence", "mcp"]


def over_stdio(
    workspace: Path, *options: str, errors: TextIO = sys.__stderr__, **callbacks: Any
) -> AbstractAsyncContextManager[Client]:
    """A client with a server of its own."""
    environment = {name: os.environ[name] for name in ("RINGFENCE_STATE_DIR", "TMPDIR") if name in os.environ}
    args = [*SERVER[1:], "--workspace", str(workspace), *options]
    return Client(stdio_client(StdioServerParameters(command=SERVER[0], args=args, env=environment), errors), **callbacks)


@dataclass
class Served:
    """A server over HTTP: its process, where it is, and its token."""

    process: subprocess.Popen[str]
    url: str
    token: str
    unix: str = ""

    @asynccontextmanager
    async def client(self, **callbacks: Any) -> AsyncIterator[Client]:
        """The SDK's client, with the token."""
        async with self.http() as http:
            async with Client(streamable_http_client(self.url, http_client=http), **callbacks) as client:
                yield client

    def http(self, **headers: str) -> httpx2.AsyncClient:
        transport = httpx2.AsyncHTTPTransport(uds=self.unix) if self.unix else None
        shown = {"Authorization": f"Bearer {self.token}", **headers}
        return httpx2.AsyncClient(headers=shown, transport=transport, timeout=30)


def start(workspace: Path, folder: Path, *options: str) -> Served:
    """A server over HTTP, once it listens."""
    token = folder / "token"
    command = [*SERVER, "--workspace", str(workspace), "--no-trace", "--token-file", str(token), *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"serving MCP on (\S+);", line)
    assert found, line + process.stderr.read()
    unix = "" if found[1].startswith("http") else found[1]
    return Served(process, "http://localhost/mcp" if unix else found[1], token.read_text().strip(), unix)


def stop(served: Served) -> tuple[int, str, str]:
    """Its end by SIGTERM: the exit status, and what it wrote."""
    served.process.send_signal(signal.SIGTERM)
    out, errors = served.process.communicate(timeout=30)
    return served.process.returncode, out, errors


async def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Until something is so."""
    with anyio.fail_after(seconds):
        while True:
            if holds():
                return
            await anyio.sleep(0.02)


def text(result: Any) -> str:
    """The one text of a result."""
    (content,) = result.content
    return str(content.text)


def processes_of(word: str) -> list[int]:
    """The processes of this machine that have a word in their command."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                command = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in command:
                found.append(int(entry))
    return found
