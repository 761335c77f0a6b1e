"""The wire formats of two providers, spoken by a server of the test: what their real clients send and take, streamed and whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ringfence import Agent, AgentEvent, AgentLimits, Sandbox

pytestmark = [
    pytest.mark.live("namespaces"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # the clients of both providers run in asyncio alone
]

CALL = {"command": "touch made && echo from the box"}


class Provider(ThreadingHTTPServer):
    """Answers with one call of bash first, and then with a text. mode: what it does instead."""

    daemon_threads = True
    mode = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(asked)
        if self.server.mode == "slow":
            self.server.released.wait(30)
            self.close_connection = True
            return
        if self.server.mode == "drops":
            self.close_connection = True
            if asked.get("stream"):
                self._head("text/event-stream", None)
                made = _anthropic if self.path == "/v1/messages" else _openai
                self.wfile.write(made(True, False).encode()[:200])
            return
        first = not any(_is_answer(message) for message in asked["messages"])
        made = _anthropic if self.path == "/v1/messages" else _openai
        body = made(bool(asked.get("stream")), first).encode()
        self._head("text/event-stream" if asked.get("stream") else "application/json", len(body))
        self.wfile.write(body)

    def _head(self, kind: str, size: int | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.end_headers()


def _is_answer(message: dict[str, Any]) -> bool:
    content = message["content"]
    parts = content if isinstance(content, list) else []
    return message["role"] == "tool" or any(part.get("type") == "tool_result" for part in parts)


def _openai(stream: bool, first: bool) -> str:
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    arguments = json.dumps(CALL)
    function = {"name": "bash", "arguments": arguments}
    reason = "tool_calls" if first else "stop"
    head = {"id": "r1", "created": 1, "model": "m"}
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": None if first else "It is done."}
        if first:
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    if first:
        deltas: list[dict[str, Any]] = [
            {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "bash", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": arguments[:9]}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": arguments[9:]}}]},
        ]
    else:
        deltas = [{"role": "assistant", "content": "It is "}, {"content": "done."}]
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, {"choices": [], "usage": usage}]
    made = "".join(f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **each})}\n\n" for each in chunks)
    return f"{made}data: [DONE]\n\n"


def _anthropic(stream: bool, first: bool) -> str:
    reason = "tool_use" if first else "end_turn"
    block: dict[str, Any] = {"type": "tool_use", "id": "call_1", "name": "bash", "input": CALL}
    if not first:
        block = {"type": "text", "text": "It is done."}
    message = {"id": "r1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 10, "output_tokens": 3}
    if not stream:
        return json.dumps({**message, "content": [block], "stop_reason": reason, "usage": usage})
    arguments = json.dumps(CALL)
    if first:
        begun: dict[str, Any] = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": each} for each in (arguments[:9], arguments[9:])]
    else:
        begun = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": each} for each in ("It is ", "done.")]
    started = {**message, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 0}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        *({"type": "content_block_delta", "index": 0, "delta": each} for each in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


@pytest.fixture
def provider(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    made = Provider()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    at = f"http://127.0.0.1:{made.server_port}"
    for name, value in {
        "RINGFENCE_STATE_DIR": str(workspace.parent / "state"),
        "OPENAI_BASE_URL": f"{at}/v1",
        "ANTHROPIC_BASE_URL": at,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        yield made
    finally:
        made.released.set()
        made.shutdown()
        made.server_close()
        thread.join()


@pytest.mark.parametrize("model", ["openai-chat:m", "anthropic:m"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_provider_is_asked_its_call_is_carried_out_and_it_is_told(
    provider: Provider, box: Sandbox, monkeypatch: pytest.MonkeyPatch, model: str, streamed: bool
) -> None:
    if not streamed:  # the variable names it
        monkeypatch.setenv("RINGFENCE_MODEL", model)
    events: list[AgentEvent] = []
    async with Agent(model if streamed else None, tools=["bash"], sandbox=box, instructions="Be short.") as agent:
        result = await agent.run("Say something.", on_event=events.append if streamed else None)
    assert (result.status, result.output) == ("completed", "It is done.")
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (2, 20, 6)
    assert [bool(each.get("stream")) for each in provider.requests] == [streamed, streamed]
    assert "from the box" in json.dumps(provider.requests[1]["messages"])
    assert "Be short." in json.dumps(provider.requests[0])
    assert "command" in json.dumps(provider.requests[0]["tools"])
    if streamed:
        assert [each.text for each in events if each.kind == "text"] == ["It is ", "done."]


@pytest.mark.parametrize("model", ["openai-chat:m", "anthropic:m"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_provider_that_drops_the_connection_or_is_slow_fails_the_run(
    provider: Provider, model: str, streamed: bool
) -> None:
    on_event = (lambda _: None) if streamed else None
    provider.mode = "slow"
    result = await Agent(model, limits=AgentLimits(request_seconds=0.5)).run("go", on_event=on_event)
    assert (result.status, result.stop_reason) == ("failed", "slow")
    provider.mode = "drops"
    provider.released.set()
    result = await Agent(model).run("go", on_event=on_event)
    assert result.status == "failed", result


README = Path(__file__).parents[2] / "README.md"
SNIPPETS = """
import fcntl, sys, termios
if sys.argv[1] == "terminal":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import anyio

async def main():
    from ringfence import Sandbox, SandboxConfig

    async with Sandbox(SandboxConfig(tier="process")) as sandbox:
        result = await sandbox.execute("print(40 * 10)")
        print(result.stdout)
{of_readme}
anyio.run(main)
"""


def of_readme() -> str:
    """The snippet of the README in which a model works, indented as it is there."""
    (found,) = re.findall(
        r"^    from ringfence import Agent\b.*\n(?:(?:    .*)?\n)*", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    return str(found)


@pytest.mark.parametrize("answer", ["once", "no", ""])
async def test_the_snippets_run_as_written_and_a_person_at_the_terminal_is_asked(
    provider: Provider, workspace: Path, answer: str
) -> None:
    outer, inner = os.openpty()
    place = "terminal" if answer else "none"
    child = subprocess.Popen(
        [sys.executable, "-c", SNIPPETS.format(of_readme=of_readme()), place],
        cwd=workspace, stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        asked = b""
        while answer and b" or no [no]: " not in asked:
            asked += os.read(outer, 4096)
        os.write(outer, f"{answer}\n".encode())
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
        os.close(outer)
        os.close(inner)
    assert out == "400\n\nIt is done.\n"
    told = json.dumps(provider.requests[1]["messages"][-1])
    assert ("from the box" in told and "[exited]" in told) == (answer == "once")
    assert ("not permitted" in told) == (answer != "once")
    if answer:
        shown = asked.decode()
        assert "May this be started in the box?" in shown and CALL["command"] in shown
        rows = "".join(row.removeprefix("  | ").removeprefix("  : ") for row in shown.split("\r\n")).replace(" ", "")
        assert f"whereitcouldwriteto{workspace},andreachnohost" in rows
