"""ringfence mcp over HTTP, with the SDK's client: a box for each client, many at once, none for who has no business there."""

from __future__ import annotations

import json
import os
import socket
import stat
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mcp_clients import Served, processes_of, start, stop, text, until

pytestmark = pytest.mark.live("namespaces")
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
CLIENTS = 16


async def test_each_client_has_a_box_of_its_own_over_one_workspace(served: Served) -> None:
    async with served.client() as one, served.client() as two:
        await one.call_tool("bash", {"command": "echo mine > ~/file; echo ours > shared"})
        assert text(await one.call_tool("bash", {"command": "cat ~/file"})).endswith("mine\n")
        assert "No such file" in text(await two.call_tool("bash", {"command": "cat ~/file"}))
        assert text(await two.call_tool("read", {"path": "shared"})).endswith("ours")


async def test_sixteen_clients_at_once_get_their_own_answers_from_their_own_boxes(served: Served) -> None:
    answers: dict[int, list[str]] = {}

    async def work(number: int) -> None:
        async with served.client() as client:
            await client.call_tool("bash", {"command": f"echo {number} > ~/number"})
            answers[number] = [text(await client.call_tool("bash", {"command": "cat ~/number"})) for _ in range(3)]

    with anyio.fail_after(90):
        async with anyio.create_task_group() as group:
            for number in range(CLIENTS):
                group.start_soon(work, number)
    assert len(answers) == CLIENTS
    for number, given in answers.items():
        assert all(each.endswith(f"\n{number}\n") for each in given)


async def test_a_client_that_goes_ends_its_box_and_nobody_elses(served: Served) -> None:
    gone, kept = f"rf-{uuid.uuid4().hex}", f"rf-{uuid.uuid4().hex}"
    async with served.client() as stays:
        await stays.call_tool("bash", {"command": f"(exec -a {kept} sleep 300) >log 2>&1 &"})
        async with served.client() as goes:
            await goes.call_tool("bash", {"command": f"(exec -a {gone} sleep 300) >log 2>&1 &"})
            await until(lambda: bool(processes_of(gone) and processes_of(kept)))
        await until(lambda: not processes_of(gone))
        assert processes_of(kept)
        assert "on" in text(await stays.call_tool("bash", {"command": "echo on"}))


async def test_cancellation_and_progress_reach_the_command_over_http_too(served: Served) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    seen: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with served.client() as client:
        with pytest.raises(MCPError):
            await client.call_tool(
                "bash", {"command": f"exec -a {word} sleep 300"}, read_timeout_seconds=2, progress_callback=report
            )
        await until(lambda: not processes_of(word))
        assert seen[:1] == ["bash: 1 s"]
        assert "still" in text(await client.call_tool("bash", {"command": "echo still"}))


async def test_a_client_that_vanishes_is_idle_and_its_box_ends(shared: Path, tmp_path: Path) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    made = start(shared, tmp_path, "--http", "0", "--idle", "1")
    try:
        async with made.http() as http:
            async with Client(streamable_http_client(made.url, http_client=http, terminate_on_close=False)) as client:
                await client.call_tool("bash", {"command": f"(exec -a {word} sleep 300) >log 2>&1 &"})
                await until(lambda: bool(processes_of(word)))
                await anyio.sleep(1.5)
                assert processes_of(word)  # its stream is open: it is there
        await until(lambda: not processes_of(word))
    finally:
        assert stop(made) == (0, "", "")


async def test_who_has_not_the_token_or_comes_from_a_page_gets_nothing(served: Served) -> None:
    port = urlsplit(served.url).port
    refused = {
        401: [{"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {served.token}"}],
        421: [{"Host": "evil.example.com"}, {"Host": f"evil.example.com:{port}"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1:1"}],
        403: [{"Origin": "http://evil.example.com"}, {"Origin": "null"}, {"Origin": f"https://127.0.0.1:{port}"}],
    }
    async with served.http(**ACCEPT) as http:
        for status, cases in refused.items():
            for headers in cases:
                answer = await http.post(served.url, json=OPENING, headers=headers)
                assert answer.status_code == status, headers
                assert "mcp-session-id" not in answer.headers
        assert (await http.get(served.url.replace("/mcp", "/"))).status_code == 404
        allowed = await http.post(
            served.url, json=OPENING, headers={"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}"}
        )
        assert allowed.status_code == 200
        session = allowed.headers["mcp-session-id"]
        for headers in ({"mcp-session-id": "0" * 32}, {"mcp-session-id": session + "0"}):
            assert (await http.post(served.url, json=OPENING, headers=headers)).status_code == 404
        ended = await http.delete(served.url, headers={"mcp-session-id": session})
        assert ended.status_code == 200
        assert (await http.post(served.url, json=OPENING, headers={"mcp-session-id": session})).status_code == 404


async def test_two_opinions_in_one_request_are_refused(served: Served) -> None:
    body = json.dumps(OPENING)
    for double in (f"Host: {_host(served)}", f"Authorization: Bearer {served.token}", "Origin: http://evil.example.com"):
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: {_host(served)}",
            f"Authorization: Bearer {served.token}",
            f"Origin: http://{_host(served)}",
            *(f"{name}: {value}" for name, value in ACCEPT.items()),
            f"Content-Length: {len(body)}",
            "Connection: close",
            double,
        ]
        assert _status(served, "\r\n".join(lines) + "\r\n\r\n" + body) == 400
        assert _status(served, "\r\n".join(lines[:-1]) + "\r\n\r\n" + body) == 200


async def test_what_is_no_message_opens_no_session_and_harms_no_other(served: Served) -> None:
    async with served.client() as client, served.http(**ACCEPT) as http:
        for content in (b"", b"not json", b"[" * 100_000, b"\xff", b"{}", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'):
            answer = await http.post(served.url, content=content)
            assert 400 <= answer.status_code < 500, content[:20]
        head = f"POST /mcp HTTP/1.1\r\nHost: {_host(served)}\r\nAuthorization: Bearer {served.token}\r\n"
        assert _status(served, f"{head}Content-Length: {1 << 40}\r\n\r\n") == 413
        assert (await http.put(served.url, json=OPENING)).status_code >= 400
        for line in (b"GARBAGE\r\n\r\n", b"POST /mcp HTTP/1.1\r\nHost: " + b"a" * 200_000):
            with socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0)) as raw:
                try:
                    raw.sendall(line)
                    raw.recv(1000)
                except OSError:
                    pass  # it was hung up on
        assert "fine" in text(await client.call_tool("bash", {"command": "echo fine"}))


async def test_a_version_without_sessions_is_answered_with_those_that_have_them(served: Served) -> None:
    async with served.http(**ACCEPT) as http:
        answer = await http.post(served.url, json=OPENING, headers={"mcp-protocol-version": "2026-07-28"})
        assert answer.status_code == 400
        assert "2025-11-25" in answer.json()["error"]["data"]["supported"]
    async with served.client(mode="auto") as client:  # which tries that version first
        assert client.protocol_version == "2025-11-25"


async def test_a_unix_socket_is_its_owners_and_is_removed_at_the_end(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    made = start(shared, tmp_path, "--unix", str(path))
    try:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(tmp_path / "token").st_mode) == 0o600
        async with made.http(**ACCEPT) as http:
            opened = await http.post(made.url, json=OPENING)
            assert opened.status_code == 200
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            await http.post(made.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
            call = {"name": "bash", "arguments": {"command": "echo here"}}
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
            assert "here" in (await http.post(made.url, json=message, headers=session)).text
            assert (await http.post(made.url, json=OPENING, headers={"Authorization": "Bearer wrong"})).status_code == 401
    finally:
        assert stop(made) == (0, "", "")
    assert not path.exists()


async def test_the_end_of_the_server_ends_boxes_in_use(shared: Path, tmp_path: Path) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    made = start(shared, tmp_path, "--http", "0")
    try:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                async with made.client() as client:
                    with pytest.raises(MCPError):
                        await client.call_tool("bash", {"command": f"exec -a {word} sleep 300"})

            group.start_soon(call)
            await until(lambda: bool(processes_of(word)))
            status, out, _ = await anyio.to_thread.run_sync(stop, made)
            assert (status, out) == (0, "")
            await until(lambda: not processes_of(word))
    finally:
        made.process.kill()


def _host(served: Served) -> str:
    return urlsplit(served.url).netloc


def _status(served: Served, request: str) -> int:
    host, _, port = _host(served).partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(request.encode())
        return int(raw.recv(4096).split()[1])
