"""The roots of a client narrow what its box works in, and never widen it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import types

from mcp_clients import over_stdio, text
from ringfence import SandboxConfig
from ringfence.errors import ConfigError
from ringfence.mcp.roots import narrowed, path_of


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("one", "two/inner"):
        (workspace / name).mkdir(parents=True)
    (workspace / "out").symlink_to("/etc")
    return workspace


def test_a_root_inside_takes_the_place_of_the_workspace(tree: Path) -> None:
    config = SandboxConfig(workspace=tree, deny=["one/secret"])
    found = narrowed(config, [f"file://{tree}/one"])
    assert found.workspace == f"{tree}/one"
    assert f"{tree}/one/secret" in found.deny
    two = narrowed(config, [f"file://{tree}/one", f"file://{tree}/two", f"file://{tree}/two/inner"])
    assert (two.workspace, list(two.writable)) == (f"{tree}/one", [f"{tree}/two"])
    read_only = narrowed(SandboxConfig(workspace=tree, mode="read-only"), [f"file://{tree}/one", f"file://{tree}/two"])
    assert (read_only.mode, list(read_only.writable)) == ("read-only", [])


@pytest.mark.parametrize("roots", [[], ["file:///"], ["file://{tree}"], ["file://{tree}/../"], ["https://example.com", "file:///"]])
def test_roots_that_hold_the_workspace_and_none_leave_it(tree: Path, roots: list[str]) -> None:
    config = SandboxConfig(workspace=tree)
    assert narrowed(config, [each.replace("{tree}", str(tree)) for each in roots]) is config


@pytest.mark.parametrize(
    "root",
    [
        "file:///etc",
        "file://{tree}/out",
        "file://{tree}/../elsewhere",
        "file://{tree}/nothing",
        "file://{tree}/one/../../../etc",
        "file://{tree}%2Fone%00",
        "file://example.com{tree}/one",
        "https://example.com{tree}/one",
        "{tree}/one",
        "file:one",
        "file://[",
        "file://" + "/a" * 5000,
    ],
)
def test_roots_elsewhere_open_nothing(tree: Path, root: str) -> None:
    with pytest.raises(ConfigError, match="workspace of this server"):
        narrowed(SandboxConfig(workspace=tree), [root.replace("{tree}", str(tree))])


def test_a_path_is_read_as_a_uri_has_it() -> None:
    assert path_of("file:///no%20such%C3%A9") == "/no such\u00e9"
    assert path_of("file://localhost/no-such") == "/no-such"


@pytest.mark.live("namespaces")
async def test_the_box_of_a_client_is_over_its_root_alone_and_follows_a_change(tree: Path) -> None:
    (tree / "two" / "theirs").write_text("theirs")
    named = ["one"]

    async def roots(context: Any) -> types.ListRootsResult | types.ErrorData:
        if not named:
            return types.ErrorData(code=-32603, message="none of your business")
        return types.ListRootsResult(roots=[types.Root(uri=f"file://{tree}/{name}") for name in named])

    async with over_stdio(tree, list_roots_callback=roots) as client:
        assert text(await client.call_tool("bash", {"command": "pwd; echo mine > mine"})).endswith(f"{tree}/one\n")
        assert (tree / "one" / "mine").exists()
        assert (await client.call_tool("read", {"path": f"{tree}/two/theirs"})).is_error
        named[:] = ["two"]
        await client.session.send_notification(types.RootsListChangedNotification())
        changed = text(await client.call_tool("read", {"path": "theirs"}))
        assert changed.startswith("[sandbox_replaced] ")
        assert changed.endswith("theirs")
        assert (await client.call_tool("read", {"path": f"{tree}/one/mine"})).is_error
        for wrong in (["out"], []):
            named[:] = wrong
            await client.session.send_notification(types.RootsListChangedNotification())
            refused = await client.call_tool("bash", {"command": "touch ran"})
            assert refused.is_error
        assert not list(tree.rglob("ran"))
