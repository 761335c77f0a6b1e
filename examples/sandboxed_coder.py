"""An agent that mends a failing test of a small project, in a box: `python -m examples.sandboxed_coder` from the checkout.

The model is a script, so that it runs anywhere; RINGFENCE_MODEL=anthropic:NAME (and the provider's key) has a real one do the work.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import anyio

from ringfence import Agent, AgentEvent, AgentLimits, PermissionManager, Sandbox, SandboxConfig

PROJECT = {
    "prices.py": "def total(prices):\n    result = 0\n    for price in prices[1:]:\n        result += price\n    return result\n",
    "test_prices.py": "from prices import total\n\nassert total([1, 2, 3]) == 6\nassert total([]) == 0\nprint('passed')\n",
}
PROMPT = "Running `python3 test_prices.py` fails. Find out why, mend prices.py, and run it again."


def scripted() -> Any:
    """A model that does what a real one would be expected to."""
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    steps = (
        ToolCallPart("bash", {"command": "python3 test_prices.py"}),
        ToolCallPart("read", {"path": "prices.py"}),
        ToolCallPart("edit", {"path": "prices.py", "old": "prices[1:]", "new": "prices"}),
        ToolCallPart("bash", {"command": "python3 test_prices.py"}),
        TextPart("total() left the first price out. It adds up all of them now, and the test passes."),
    )

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([steps[len(messages) // 2]])

    return FunctionModel(answer)


def show(event: AgentEvent) -> None:
    """What happens, as it happens."""
    if event.kind == "call":
        print(f"> {event.name} {event.arguments}")
    elif event.kind == "answer":
        print("  " + event.text.replace("\n", "\n  "))
    elif event.kind == "text":
        print(event.text, end="", flush=True)


async def main() -> int:
    """Returns 0 where the test passes in the end, whatever the model says."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandboxed-coder-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        for name, text in PROJECT.items():
            (project / name).write_text(text)
        # The strongest boundary of this host, the project's folder and nothing else, no network; what the box holds is let through.
        config = SandboxConfig(tier="auto", workspace=project)
        permissions = PermissionManager(["deny exec git push"], default="deny", confined="allow")
        model = None if os.environ.get("RINGFENCE_MODEL") else scripted()
        async with Sandbox(config) as sandbox:
            async with Agent(
                model,
                tools=["bash", "read", "write", "edit", "list", "grep"],
                sandbox=sandbox,
                permissions=permissions,
                limits=AgentLimits(turns=20, seconds=300),
            ) as agent:
                result = await agent.run(PROMPT, on_event=show)
            print(f"\n{result.status}: {result.usage.requests} answers of the model, {result.usage.calls} calls")
            passed = await sandbox.run(["python3", "test_prices.py"])
        print(f"the test: {passed.stdout.strip() or passed.stderr.strip()}")
        return 0 if result.ok and passed.ok else 1


if __name__ == "__main__":
    raise SystemExit(anyio.run(main))
