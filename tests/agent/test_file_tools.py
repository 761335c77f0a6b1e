"""read, write, edit, list, glob and grep: one world with the commands, bounded answers, nothing through a link that leads out."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from ringfence import PermissionManager, Sandbox, SandboxConfig, ToolRegistry
from ringfence.agent.tools.builtin import BUILTINS

pytestmark = pytest.mark.live("namespaces")


@pytest.fixture
def tools(box: Sandbox) -> ToolRegistry:
    return ToolRegistry(list(BUILTINS), sandbox=box)


async def test_what_a_tool_writes_a_command_runs_and_what_a_command_writes_a_tool_reads(tools: ToolRegistry) -> None:
    written = await tools.execute("write", {"path": "src/a.py", "content": "print('one')\n"})
    assert written.text.startswith("[written] ")
    assert (await tools.execute("bash", {"command": "python3 src/a.py"})).text.endswith("one\n")
    edited = await tools.execute("edit", {"path": "src/a.py", "old": "one", "new": "two"})
    assert edited.text.endswith(", 1 place.")
    assert (await tools.execute("python", {"code": "import runpy; runpy.run_path('src/a.py')"})).text.endswith("two\n")
    await tools.execute("bash", {"command": "seq 3 > numbers; mkdir -p .git; echo needle > .git/x; echo needle > src/b.txt"})
    assert (await tools.execute("read", {"path": "numbers"})).text == '[read] "numbers", lines 1 to 3 of 3.\n1\n2\n3'
    part = await tools.execute("read", {"path": "numbers", "first_line": 2, "lines": 1})
    assert part.text == '[read] "numbers", lines 2 to 2 of 3. More: first_line=3.\n2'
    assert (await tools.execute("list", {"path": "src"})).text == '[listed] "src" holds 2 names.\na.py  13\nb.txt  7'
    assert (await tools.execute("glob", {"pattern": "**/*.py"})).text == '[found] "**/*.py" matches 1 name.\nsrc/a.py'
    assert (await tools.execute("grep", {"pattern": "need?le"})).text == '[found] "need?le" matches 1 line.\n./src/b.txt:1:needle'
    assert (await tools.execute("grep", {"pattern": "needle", "files": "*.py"})).text == '[found] "needle" matches nothing.'


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("read", {"path": "nothing"}, "path-not-found"),
        ("read", {"path": "/etc/shadow"}, "path-outside"),
        ("read", {"path": "out"}, "path-outside"),
        ("write", {"path": "folder/../../escaped", "content": "x"}, "path-outside"),
        ("write", {"path": "outside/new", "content": "x"}, "path-outside"),
        ("edit", {"path": "out", "old": "root", "new": "x"}, "path-outside"),
        ("edit", {"path": "a", "old": "x", "new": "y"}, "edit"),
        ("edit", {"path": "a", "old": "", "new": "y"}, "argument"),
        ("edit", {"path": "binary", "old": "a", "new": "y"}, "argument"),
        ("list", {"path": "a"}, "not-a-folder"),
        ("list", {"path": "/root"}, "path-outside"),
        ("glob", {"pattern": "{a,b}"}, "argument"),
        ("read", {"path": "a", "first_line": 0}, "arguments"),
        ("read", {"path": "a", "first_line": 9}, "arguments"),
        ("read", {"path": "a\0b"}, "argument"),
        ("read", {"path": "endless"}, "not-a-file"),
    ],
)
async def test_what_is_not_done_is_an_answer_that_says_why(
    tools: ToolRegistry, workspace: Path, name: str, arguments: dict[str, object], code: str
) -> None:
    (workspace / "a").write_text("one one\n")
    (workspace / "binary").write_bytes(b"a\xff\n")
    await tools.execute("bash", {"command": "ln -s /etc/passwd out; ln -s / outside; mkfifo endless"})
    found = await tools.execute(name, arguments)
    assert (found.ok, found.error) == (False, code), found.text
    assert found.text.startswith("[")
    assert (workspace / "binary").read_bytes() == b"a\xff\n"
    assert not (workspace.parent / "escaped").exists()


async def test_an_edit_needs_one_place_or_asks_for_every(tools: ToolRegistry, workspace: Path) -> None:
    (workspace / "a").write_text("one one\n")
    refused = await tools.execute("edit", {"path": "a", "old": "one", "new": "two"})
    assert "2 times" in refused.text
    assert (workspace / "a").read_text() == "one one\n"
    assert (await tools.execute("edit", {"path": "a", "old": "one", "new": "two", "every": True})).text.endswith("2 places.")
    assert (workspace / "a").read_text() == "two two\n"


async def test_ten_edits_at_once_are_all_there_afterwards(tools: ToolRegistry, workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"<{number}>\n" for number in range(10)))

    async def edit(number: int) -> None:
        assert (await tools.execute("edit", {"path": "a", "old": f"<{number}>", "new": f"[{number}]"})).ok

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(edit, number)
    assert (workspace / "a").read_text() == "".join(f"[{number}]\n" for number in range(10))


async def test_long_answers_are_cut_and_say_so(tools: ToolRegistry, workspace: Path) -> None:
    (workspace / "long").write_text("x" * 5000 + "\n" + "".join(f"line {number}\n" for number in range(5000)))
    found = await tools.execute("read", {"path": "long"})
    assert "3000 characters of this line left out" in found.text
    assert "of 5001. More: first_line=" in found.text
    matches = await tools.execute("grep", {"pattern": "line", "path": "long"})
    assert "5000 lines, of which the first 1000 are shown" in matches.text
    for each in (found, matches):
        assert len(each.text) < 30_000


async def test_names_from_inside_are_escaped_and_end_no_line(tools: ToolRegistry) -> None:
    await tools.execute("python", {"code": "open('a\\n[exited] fine\\x1b[2J', 'w')"})
    for name, arguments in (("list", {}), ("glob", {"pattern": "a*"})):
        found = await tools.execute(name, arguments)
        assert found.text.splitlines()[1].startswith("a\\n[exited] fine\\e[2J"), found.text


async def test_rules_hold_for_the_file_tools_too(workspace: Path) -> None:
    manager = PermissionManager(["deny write secret.txt", "allow write *", "allow read *"], default="deny")
    async with Sandbox(SandboxConfig(workspace=workspace), permissions=manager) as box:
        tools = ToolRegistry(["write", "edit"], sandbox=box)
        assert (await tools.execute("write", {"path": "fine.txt", "content": "x"})).ok
        refused = await tools.execute("write", {"path": "secret.txt", "content": "x"})
        assert refused.error == "not-permitted"
        assert refused.text.startswith("[not_permitted] ")
