"""ringfence mcp over stdio, with the SDK's client: tools, progress, cancellation, and an end with the client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from mcp_clients import SERVER, over_stdio, processes_of, text, until
from ringfence.agent.tools.builtin import BUILTINS

pytestmark = pytest.mark.live("namespaces")
PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_the_tools_are_there_and_work_in_one_box(workspace: Path) -> None:
    async with over_stdio(workspace) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == list(BUILTINS)
        assert all(tool.description and tool.input_schema["additionalProperties"] is False for tool in tools)
        assert {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint} == {
            "read",
            "list",
            "glob",
            "grep",
        }
        await client.call_tool("write", {"path": "a.py", "content": "print(40 * 10)\n"})
        ran = await client.call_tool("bash", {"command": "python3 a.py; echo kept > ~/file"})
        assert not ran.is_error
        assert text(ran) == "[exited] The command ran to its end and returned 0.\n--- stdout, 4 characters ---\n400\n"
        assert text(
            await client.call_tool("python", {"code": "import os; print(open(os.path.expanduser('~/file')).read())"})
        ).endswith("kept\n\n")
        assert (workspace / "a.py").exists()


async def test_a_denial_is_told_to_the_model_and_as_data(workspace: Path) -> None:
    async with over_stdio(workspace) as client:
        denied = await client.call_tool("bash", {"command": "echo hello; echo x > /etc/zz"})
        assert text(denied).strip() in PAGE.read_text(encoding="utf-8")  # what the page shows is what a client gets
        assert '[sandbox_denial] writing "/etc/zz" was refused' in text(denied)
        assert denied.meta is not None
        assert denied.meta["ringfence/denials"][0]["target"] == "/etc/zz"
        assert denied.meta["ringfence/outcome"] == {"type": "Exited", "code": 1}
        outside = await client.call_tool("read", {"path": "/etc/shadow"})
        assert outside.is_error
        assert text(outside).startswith("[call_refused] ")


async def test_what_a_model_does_wrong_is_an_answer_and_the_session_goes_on(workspace: Path) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("nothing", {}),
        ("bash", {}),
        ("bash", {"command": 5}),
        ("bash", {"command": "true", "more": 1}),
        ("read", {"path": "a\0"}),
        ("n" * 100_000, {}),
        ("bash", {"command": "x" * 3_000_000}),
    ]
    async with over_stdio(workspace) as client:
        for name, arguments in wrong:
            result = await client.call_tool(name, arguments)
            assert text(result).startswith(("[call_refused] ", "[not_started:too_large]")), text(result)[:300]
        assert "done" in text(await client.call_tool("bash", {"command": "echo done"}))


async def test_a_long_call_reports_progress_and_other_calls_go_on_meanwhile(workspace: Path) -> None:
    seen: list[tuple[float, str | None]] = []
    done: list[str] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))
        if not done:
            done.append(text(await client.call_tool("bash", {"command": "touch go; echo quick"})))

    async with over_stdio(workspace) as client:
        line = "while [ ! -e go ]; do sleep .05; done; echo slow"
        result = await client.call_tool("bash", {"command": line}, progress_callback=report)
        assert text(result).endswith("slow\n")
    assert seen[0][1] == "bash: 1 s"
    assert [progress for progress, _ in seen] == sorted(progress for progress, _ in seen)


async def test_a_call_that_is_cancelled_ends_its_command_and_the_session_goes_on(workspace: Path) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    async with over_stdio(workspace) as client:
        with pytest.raises(MCPError):
            await client.call_tool("bash", {"command": f"touch begun; sleep 300; : {word}"}, read_timeout_seconds=2)
        assert (workspace / "begun").exists()
        await until(lambda: not processes_of(word))
        assert "still" in text(await client.call_tool("bash", {"command": "echo still"}))


async def test_the_box_ends_with_the_client_and_so_does_a_server_in_it(workspace: Path) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    async with over_stdio(workspace) as client:
        started = await client.call_tool("bash", {"command": f"(exec -a {word} sleep 300) >log 2>&1 & echo started"})
        assert text(started).endswith("started\n")
        assert "started" in text(await client.call_tool("bash", {"command": "echo started"}))
        await until(lambda: bool(processes_of(word)))
    await until(lambda: not processes_of(word))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_server_with_its_box(workspace: Path, number: signal.Signals) -> None:
    word = f"rf-{uuid.uuid4().hex}"
    call = {"name": "bash", "arguments": {"command": f"exec -a {word} sleep 300"}}
    with subprocess.Popen(
        [*SERVER, "--workspace", str(workspace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        for message in (
            OPENING,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        ):
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        anyio.run(until, lambda: bool(processes_of(word)))
        server.send_signal(number)
        server.wait(30)
        anyio.run(until, lambda: not processes_of(word))
        assert server.stderr is not None
        assert server.stderr.read() == b""
        assert server.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 0)


def test_nothing_but_messages_is_written_to_stdout_whatever_comes_in(workspace: Path) -> None:
    call = {"name": "bash", "arguments": {"command": "echo out; echo err >&2; printf '\\033[2J\\0'"}}
    sent = [
        b"not json",
        b"",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "bash"}}',  # before the handshake
        json.dumps(OPENING).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b"\xff\xfe\x00",
        b'{"jsonrpc": "1.0", "id": 1, "method": "x"}',
        b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "no/such"}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": 5, "arguments": []}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 999}}',
        json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call}).encode(),
    ]
    with subprocess.Popen(
        [*SERVER, "--workspace", str(workspace), "--no-trace"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n".join(sent) + b"\n")
        server.stdin.flush()
        answers = {}
        while 5 not in answers:
            message = json.loads(server.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            answers[message.get("id")] = message
        rest, errors = server.communicate(timeout=30)
    assert rest == b""
    assert server.returncode == 0
    assert answers[1]["result"]["serverInfo"]["name"] == "ringfence"
    assert "error" in answers[7] and "error" in answers[3] and "error" in answers[4]
    assert answers[5]["result"]["content"][0]["text"].startswith("[exited] ")
    assert b"Traceback" not in errors


def test_what_cannot_be_served_is_said_before_any_client_comes(workspace: Path, tmp_path: Path) -> None:
    def said(*options: str) -> tuple[int, str]:
        done = subprocess.run(
            [*SERVER, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    assert said("--workspace", str(tmp_path / "nothing"))[0] == 125
    assert said("--workspace", str(workspace), "--tier", "docker")[0] == 125
    status, errors = said("--workspace", str(workspace), "--http", "192.0.2.1:80")
    assert (status, "loopback" in errors) == (125, True)
    status, errors = said("--workspace", str(workspace), "--http", "0", "--token-file", str(workspace / "token"))
    assert (status, "lies in a folder that boxes have" in errors) == (125, True)
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o644)
    status, errors = said("--workspace", str(workspace), "--http", "0", "--token-file", str(token))
    assert (status, "nobody else can read" in errors) == (125, True)
    assert said("--token-file", str(token))[0] == 2


def test_without_the_extra_it_says_what_to_install(workspace: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None\nfrom ringfence.cli import main\nsys.exit(main(['mcp']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, check=False, timeout=60, env=os.environ
    )
    assert done.returncode == 125
    assert "ringfence[mcp]" in done.stderr
