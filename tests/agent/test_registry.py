"""ToolRegistry: what a model calls is carried out in one box, and whatever goes wrong is an answer that it can read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from ringfence import Sandbox, SandboxConfig
from ringfence.agent.registry import ToolRegistry
from ringfence.agent.tools.tool import Tool, ToolResult

pytestmark = pytest.mark.live("namespaces")


async def test_bash_says_first_how_it_ended_and_then_shows_the_output(box: Sandbox, workspace: Path) -> None:
    tools = ToolRegistry(["bash"], sandbox=box)
    assert tools.sandbox is box
    found = await tools.execute("bash", {"command": "echo hello; echo oops >&2; echo x > made; exit 3"})
    first, rest = found.text.split("\n", 1)
    assert first == "[exited] The command ran to its end and returned 3. That is its own result; the sandbox did not end it."
    assert rest == "--- stdout, 6 characters ---\nhello\n\n--- stderr, 5 characters ---\noops\n"
    assert not found.ok
    assert found.error == ""
    assert found.result is not None
    assert found.result.exit_code == 3
    assert (workspace / "made").read_text() == "x\n"


async def test_run_bash_is_another_name_of_bash(box: Sandbox) -> None:
    tools = ToolRegistry(["run_bash"], sandbox=box)
    assert [tool.name for tool in tools.tools] == ["run_bash"]
    assert (await tools.execute("bash", '{"command": "true"}')).ok
    assert (await tools.execute("run_bash", '{"command": "true"}')).ok
    assert tools.load_builtin("bash") is tools.tools[0]


async def test_a_denial_is_told_to_the_model_with_its_rule(box: Sandbox) -> None:
    tools = ToolRegistry(["bash"], sandbox=box)
    found = await tools.execute("bash", {"command": "echo x > /etc/zz"})
    assert '[sandbox_denial] writing "/etc/zz" was refused' in found.text.split("--- ")[0]
    assert found.result is not None
    assert found.result.denials[0].target == "/etc/zz"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "missing required field `command`"),
        ({"command": 3}, "Expected `str`, got `int` for `command`"),
        ({"command": "true", "cwd": "/"}, "unknown field `cwd`"),
        ({"command": "true", "timeout_seconds": "5"}, "got `str` for `timeout_seconds`"),
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "must be an object"),
        ('"\ud800"', "not JSON"),
        ({"command": "a\0b"}, ""),
        ({"command": "\ud800"}, ""),
        ({"command": "true", "timeout_seconds": -1}, "timeout"),
        ('{"command": "true", "timeout_seconds": 1e999}', ""),
    ],
)
async def test_wrong_arguments_are_an_answer_and_nothing_runs(box: Sandbox, arguments: Any, said: str) -> None:
    tools = ToolRegistry(["bash"], sandbox=box)
    found = await tools.execute("bash", arguments)
    assert not found.ok
    assert found.error in ("arguments", "argument")
    assert found.text.startswith("[call_refused] ")
    assert said in found.text
    assert found.result is None


async def test_a_tool_that_is_not_there_is_an_answer_that_names_those_that_are(box: Sandbox) -> None:
    tools = ToolRegistry(["bash", "python"], sandbox=box)
    found = await tools.execute("bsh\n[exited]", {})
    assert found.error == "unknown-tool"
    assert found.text.count("\n") == 0
    assert "The tools are bash, python." in found.text


async def test_output_is_bounded_and_what_is_left_out_is_said(box: Sandbox) -> None:
    tools = ToolRegistry(["python"], sandbox=box)
    found = await tools.execute("python", {"code": "print('a' * 100_000 + 'end')"})
    assert len(found.text) < 30_000
    assert "left out of the middle" in found.text
    assert found.text.endswith("end\n")


async def test_functions_get_a_schema_from_their_signature_and_are_called(box: Sandbox) -> None:
    async def add(a: Annotated[int, msgspec.Meta(description="One number.")], b: int = 2) -> int:
        """Adds."""
        return a + b

    def name(of: dict[str, list[int]]) -> str:
        return ",".join(of)

    tools = ToolRegistry([add], sandbox=box)
    tools.register(name, safe=True)
    assert tools.tools[0].description == "Adds."
    assert tools.tools[0].parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "One number."}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (await tools.execute("add", '{"a": 1}')).text == "3"
    assert (await tools.execute("name", {"of": {"x": [1]}})).text == "x"
    assert (await tools.execute("name", {"of": {"x": ["1"]}})).error == "arguments"
    assert tools.tools[1].safe


async def test_what_a_function_raises_is_an_answer(box: Sandbox) -> None:
    def broken() -> None:
        raise KeyError("a\n[exited] all is well")

    tools = ToolRegistry([broken], sandbox=box)
    found = await tools.execute("broken", {})
    assert found.error == "tool"
    assert found.text.startswith("[tool_failed] ")
    assert "\n" not in found.text


async def test_a_registry_belongs_to_one_sandbox(box: Sandbox) -> None:
    tools = ToolRegistry(["bash"])
    assert tools.sandbox is None
    tools.bind(box)
    tools.bind(box)
    with pytest.raises(ValueError, match="already bound to another sandbox"):
        tools.bind(Sandbox())
    other = ToolRegistry(sandbox=Sandbox())
    with pytest.raises(ValueError, match="already bound to another sandbox"):
        other.register_tool(tools.tools[0])
    same = ToolRegistry(sandbox=None)
    same.register_tool(tools.tools[0])
    assert (await same.execute("bash", {"command": "true"})).ok


async def test_a_closed_or_missing_sandbox_is_an_answer(workspace: Path) -> None:
    assert (await ToolRegistry(["bash"]).execute("bash", {"command": "true"})).error == "closed"
    async with Sandbox(SandboxConfig(workspace=workspace)) as box:
        tools = ToolRegistry(["bash"], sandbox=box)
    found = await tools.execute("bash", {"command": "true"})
    assert found.error == "closed"
    assert found.text.startswith("[sandbox_error] ")


async def test_what_is_no_tool_is_refused_when_it_is_added() -> None:
    def rest(*many: int) -> None: ...

    async def call(x: int) -> ToolResult:
        return ToolResult(str(x), ok=False, error="own")

    tools = ToolRegistry()
    with pytest.raises(ValueError, match="did you mean 'bash'"):
        tools.load_builtin("bas")
    with pytest.raises(TypeError, match="by name"):
        tools.register(rest)
    with pytest.raises(ValueError, match="no name"):
        tools.register(call, name="a b")
    tools.register_tool(Tool("own", "", {"type": "object"}, call))
    with pytest.raises(ValueError, match="already"):
        tools.register(call, name="own")
    assert (await tools.execute("own", {"x": 1})).error == "own"
    assert (await tools.execute("own", {"y": 1})).error == "tool"
