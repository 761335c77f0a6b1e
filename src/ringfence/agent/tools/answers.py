"""How an answer to a model is put together: the lines of ours first, then what came out of the box, bounded and marked as such."""

from __future__ import annotations

from ringfence.agent.tools.tool import ToolResult
from ringfence.errors import CommandError, PlantedError, RingfenceError, SandboxLostError
from ringfence.for_model import plain
from ringfence.outcome import Output, Result

MOST_OUTPUT = 24_000
"""Characters of all output in one answer; more is cut out of the middle, and said. About eight thousand tokens."""
MOST_SAID = 400


def of_result(result: Result, most: int = MOST_OUTPUT) -> ToolResult:
    """The lines about a run, then its output, each stream below a line that says whose it is and how much there was."""
    return ToolResult(f"{result.for_model()}{_streams(result.output, result.errors, most)}", result.ok, result)


def of_error(error: RingfenceError) -> ToolResult:
    """The lines about what ringfence could not or would not do, and output that came before."""
    if isinstance(error, (CommandError, PlantedError)) and error.result is not None:
        whole = of_result(error.result)
        return ToolResult(whole.text, False, whole.result, error.code)
    text = error.for_model()
    if isinstance(error, SandboxLostError):
        text += _streams(Output(error.stdout), Output(error.stderr), MOST_OUTPUT)
    return ToolResult(text, False, None, error.code)


def refused(code: str, said: str) -> ToolResult:
    """A call that was not carried out, for what the model gave."""
    return ToolResult(f"[call_refused] The call was not carried out: {said}", False, None, code)


def of_exception(name: str, error: Exception) -> ToolResult:
    """A function of the caller's that raised: its kind and its words, escaped and bounded."""
    said = plain(f"{type(error).__name__}: {error}", MOST_SAID)
    return ToolResult(f"[tool_failed] The tool {name!r} failed, so there is no result. What it says: {said}", False, None, "tool")


def cut(text: str, most: int) -> tuple[str, int]:
    """text with what goes beyond most characters cut out of the middle, and how many those are."""
    if len(text) <= most:
        return text, 0
    left_out = len(text) - most
    head = (most + 1) // 2
    tail = text[len(text) - (most - head) :]
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{tail}", left_out


def _streams(output: Output, errors: Output, most: int) -> str:
    """A stream that needs less than half leaves the rest to the other."""
    texts = {"stdout": output.text, "stderr": errors.text}
    shares = {name: max(most // 2, most - len(other)) for name, other in zip(texts, reversed(texts.values()), strict=True)}
    said = ""
    for name, text in texts.items():
        if text:
            shown, left_out = cut(text, shares[name])
            more = f", {left_out} left out of the middle: write to a file and read parts of it to see all" if left_out else ""
            said += f"\n--- {name}, {len(text)} characters{more} ---\n{shown}"
    return said
