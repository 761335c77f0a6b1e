"""The built-in tools for files: read, write, edit, list, glob, grep. All work is done inside the box, where its programs work."""

from __future__ import annotations

import codecs
from typing import Annotated

from msgspec import Meta

from ringfence.agent.tools import answers
from ringfence.agent.tools.tool import ToolResult
from ringfence.errors import ArgumentError
from ringfence.for_model import plain, quoted
from ringfence.outcome import Exited
from ringfence.sandbox import Sandbox

MOST_LINES = 2000
MOST_LINE = 2000
"""Characters of one line of a file or of a match; a longer one is cut, and said to be."""
MOST_NAMES = 1000
GREP_SECONDS = 60

Path = Annotated[str, Meta(description="The path, absolute or relative to the workspace.")]


async def read(
    sandbox: Sandbox,
    path: Path,
    first_line: Annotated[int, Meta(description="The first line to show, from 1.", ge=1)] = 1,
    lines: Annotated[int, Meta(description="How many lines to show at most.", ge=1)] = MOST_LINES,
) -> ToolResult:
    """Show the text of a file, or some lines of it. Bytes that are not UTF-8 are shown as replacement characters."""
    whole = await sandbox.read_file(path)
    every = whole.split("\n")
    if every[-1] == "":
        every.pop()
    wanted = every[first_line - 1 : first_line - 1 + min(lines, MOST_LINES)]
    shown: list[str] = []
    left = answers.MOST_OUTPUT
    for line in wanted:
        line = _cut_line(line)
        if shown and left < len(line) + 1:
            break
        shown.append(line)
        left -= len(line) + 1
    last = first_line - 1 + len(shown)
    if not every:
        return ToolResult(f"[read] {quoted(path)} is empty.")
    if not shown:
        return ToolResult(f"[read] {quoted(path)} has {len(every)} lines, and no line {first_line}.", False, None, "arguments")
    more = f" More: first_line={last + 1}." if last < len(every) else ""
    return ToolResult(f"[read] {quoted(path)}, lines {first_line} to {last} of {len(every)}.{more}\n" + "\n".join(shown))


async def write(
    sandbox: Sandbox, path: Path, content: Annotated[str, Meta(description="The whole text of the file.")]
) -> ToolResult:
    """Write a whole file, in place of what was there, and make the folders above it."""
    written = await sandbox.write_file(path, content)
    return ToolResult(f"[written] {quoted(written)}, {len(content.encode())} bytes.")


async def edit(
    sandbox: Sandbox,
    path: Path,
    old: Annotated[str, Meta(description="The text to replace, exactly as it is in the file, with its spaces and line ends.")],
    new: Annotated[str, Meta(description="The text that takes its place.")],
    every: Annotated[bool, Meta(description="Replace every occurrence; else there must be exactly one.")] = False,
) -> ToolResult:
    """Replace a text in a file. Without `every` the text must be there exactly once: give enough around it."""
    if not old or old == new:
        raise ArgumentError(
            "old is empty, or what new is.", hint="Give the text that is there, and another one; write makes files."
        )
    text = await sandbox.read_file(path)
    if "�" in text:  # also what stands for bytes that are no text, which would be lost with writing it back
        _must_be_text(path, await sandbox.files.read_bytes(path))
    times = text.count(old)
    if times == 0 or (times > 1 and not every):
        found = "is not in the file" if times == 0 else f"is in the file {times} times"
        step = "Read the file and give it exactly" if times == 0 else "Give more of what is around it, or every=true"
        return answers.refused("edit", f"`old` {found}, {quoted(path)}. {step}. Nothing was changed.")
    written = await sandbox.write_file(path, text.replace(old, new))
    return ToolResult(f"[edited] {quoted(written)}, {times} {'place' if times == 1 else 'places'}.")


async def list_folder(sandbox: Sandbox, path: Path = ".") -> ToolResult:
    """List what a folder holds: one name a line, folders with a slash at the end, files with their size in bytes."""
    found = await sandbox.files.list(path)
    marks = {"dir": "/", "link": "  (link)", "other": "  (device, FIFO or socket)"}
    lines = [plain(each.path) + marks.get(each.kind, f"  {each.size}") for each in found]
    return ToolResult(_listed("listed", f"{quoted(path)} holds", lines))


async def glob(
    sandbox: Sandbox,
    pattern: Annotated[str, Meta(description="As `src/**/*.py`: `*` and `?` stay within a name, `**` crosses folders.")],
) -> ToolResult:
    """Find files and folders by a pattern, from the workspace; one path a line, sorted."""
    return ToolResult(_listed("found", f"{quoted(pattern)} matches", [plain(path) for path in await sandbox.files.glob(pattern)]))


async def grep(
    sandbox: Sandbox,
    pattern: Annotated[str, Meta(description="An extended regular expression, as grep -E has it.")],
    path: Path = ".",
    files: Annotated[str, Meta(description="Only files with such a name, as `*.py`; empty for all.")] = "",
    ignore_case: bool = False,
) -> ToolResult:
    """Search text files for lines that match, by grep in the sandbox. One match a line: path:number:line. `.git` is left out."""
    options = ["-rnIE", "--exclude-dir=.git", *(["-i"] if ignore_case else []), *([f"--include={files}"] if files else [])]
    result = await sandbox.run(["grep", *options, "-e", pattern, "--", path], timeout=GREP_SECONDS)
    if result.outcome not in (Exited(0), Exited(1)) or (result.denials and not result.output.data):
        return answers.of_result(result)
    lines = [_cut_line(line) for line in result.stdout.split("\n") if line]
    return ToolResult(_listed("found", f"{quoted(pattern)} matches", lines, "lines"), True, result)


def _must_be_text(path: str, data: bytes) -> None:
    try:
        codecs.decode(data, "utf-8")
    except UnicodeDecodeError:
        raise ArgumentError(
            f"{quoted(path)} is not UTF-8 text.", hint="Change it by a program, which can keep its bytes."
        ) from None


def _cut_line(line: str) -> str:
    return line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]} [... {len(line) - MOST_LINE} characters of this line left out]"


def _listed(kind: str, what: str, lines: list[str], unit: str = "names") -> str:
    """A count, then the lines, as many as an answer holds."""
    shown, left = [], answers.MOST_OUTPUT
    for line in lines[:MOST_NAMES]:
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    if not lines:
        return f"[{kind}] {what} nothing."
    more = f", of which the first {len(shown)} are shown: narrow it to see the others" if len(shown) < len(lines) else ""
    return f"[{kind}] {what} {len(lines)} {unit if len(lines) > 1 else unit.removesuffix('s')}{more}.\n" + "\n".join(shown)
