"""What a model is told of a run: one line for how it ended, one for each denial, one for each thing more that matters.

Each line begins with its kind in brackets, `[exited]`, `[cap:memory]`, `[sandbox_denial]`, and says what happened, why, and
what can be done. The kinds and the order are stable; the words may get better. Names and texts that come from inside a box are
quoted or escaped, so that nothing of them ends a line, hides, or changes the order of what is read; every line and the whole
are bounded. The output of the command is not in it: a harness shows that beside it.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Iterator

from ringfence import errors
from ringfence.outcome import (
    REPORT_AS,
    CapHit,
    Denial,
    Exited,
    NotStarted,
    Outcome,
    Reason,
    Result,
    Signaled,
    amount,
)

MOST_LINE = 700
"""Characters of one line: what is left of a long one is said to be cut."""
MOST_DENIALS = 10
MOST_NOTES = 3
MOST_CHARACTERS = (MOST_DENIALS + MOST_NOTES + 5) * (MOST_LINE + 1)
MOST_NAME = 200
"""Characters of a path, a host or another name in a line."""

# Kind of a cap: what was reached, in which unit, what helps, and the key of a policy file that raises it.
CAPS = {
    "wall": ("time of one run", "Make it faster, or do it in smaller steps", "resources.run_seconds"),
    "cpu": ("CPU time of all its processes", "Make it compute less, or in smaller steps", "resources.cpu_seconds"),
    "memory": ("memory of all its processes", "Hold less at once", "resources.memory_gib.limit"),
    "idle": ("time without use of the box", "Go on in a new box", "resources.idle_min"),
    "processes": ("number of processes and threads", "Start fewer at once", "resources.max_processes"),
    "open_files": ("number of open files of a process", "Close files that are done with", "resources.open_files"),
    "file_size": ("size of a file", "Write less, or several files", "resources.file_size_mib"),
    "disk": ("space that files may take", "Write less, or remove what is done with", "resources.disk_gib"),
    "inodes": ("number of files", "Make fewer files, or remove what is done with", "resources.inodes"),
}
LIFETIME = ("life of the box", "Go on in a new box", "resources.wall_clock_min")

# Kind of a denial: what was not to be, with the target in the middle.
DENIED = {
    "read": "reading {} was refused",
    "write": "writing {} was refused",
    "exec": "starting {} was refused",
    "net": "connecting to {} was refused",
    "syscall": "the system call {} was refused",
    "cap": "more of {} was refused, at the limit of the box",
    "planted": "{} was left where a program outside the sandbox would run it",
    "unprotected": "the protection of {} was off for a part of the run",
}
KILLED_FOR_MEMORY = "a process of the command was ended at the {} limit of the box, and the command went on"
WITHOUT_REMEDY = {"planted": "Remove it, unless it is meant to be there.", "unprotected": "Nothing is to be done in the code."}

NOT_STARTED = {
    Reason.NOT_FOUND: "no program of that name is in the box. Check the name, or use a program that is there",
    Reason.NOT_EXECUTABLE: "it may not be executed. Check its mode (chmod +x), or start it by its interpreter",
    Reason.IS_A_DIRECTORY: "it is a folder. Name the program in it",
    Reason.MISSING_INTERPRETER: "the interpreter that its first line or header names is not in the box. Correct the first line",
    Reason.BAD_FORMAT: "it is not in a format that this machine runs. Check its first line and its architecture",
    Reason.TOO_LARGE: "its arguments and environment are larger than the kernel takes. Pass them in a file or by stdin",
    Reason.BAD_CWD: "the working directory cannot be entered. Name a folder that is there",
    Reason.NO_PROCESS: "no further process may be started in the box. End some that are no longer needed",
    Reason.NO_RESOURCES: "the machine is out of a resource. Try again when less runs",
    Reason.NO_SPACE: "the private folders of the box are full. Remove what is done with from its home and temporary folder",
    Reason.REFUSED: "the kernel refused it",
}
CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}

_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\x1b": "\\e", "\\": "\\\\"}
# Printable for Python, and nothing to see: fillers, and what only changes the letter before it (Unicode's Default_Ignorable).
UNSEEN = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, range(0xE0100, 0xE01F0)))


def of_result(result: Result) -> str:
    """Lines about a result; see Result.for_model."""
    denials = _unique(_of_denial(denial) for denial in result.denials)
    lines = [_of_outcome(result.outcome, result.argv, bool(denials)), *_first(denials, MOST_DENIALS, REPORT_AS, "denials")]
    if result.truncated:
        lines.append(_of_cut(result))
    notes = [f"[note] {plain(note)}" for note in result.notes]
    return _joined([*lines, *_first(notes, MOST_NOTES, "note", "notes")])


def of_error(error: errors.RingfenceError) -> str:
    """Lines about what ringfence could not do; see RingfenceError.for_model."""
    if isinstance(error, (errors.CommandError, errors.PlantedError)) and error.result is not None:
        return of_result(error.result)
    if isinstance(error, errors.PlantedError):
        return _joined(_first([_of_denial(denial) for denial in error.denials], MOST_DENIALS, REPORT_AS, "denials"))
    said = plain(error.message, 400)
    step = f" {plain(error.next_step)}" if error.next_step else ""
    if isinstance(error, errors.SandboxLostError):
        line = (
            "[sandbox_lost] The sandbox died while the command ran, and nobody knows how the command would have ended. This was "
            f"not your code: do not change it for this. What happened: {said}{step}"
        )
    elif isinstance(error, errors.NotPermittedError):
        line = f"[not_permitted] {said} Nothing of it was run. It is not asked about again: do it another way, or do without."
    elif isinstance(error, (errors.ArgumentError, errors.PathError, errors.ConnectError)):
        line = f"[call_refused] The call was not carried out, and no command ran for it: {said}{step}"
    else:
        line = (
            "[sandbox_error] The sandbox failed, so there is no result. This was not your code: do not change it for this. "
            f"What happened: {said}{step}"
        )
    return _joined([line])


def _of_outcome(outcome: Outcome, argv: tuple[str, ...], denied: bool) -> str:
    match outcome:
        case Exited(code=code):
            ended = f"[exited] The command ran to its end and returned {code}"
            if denied:
                return f"{ended}, with the denials below{', which may be why' if code else ''}."
            return f"{ended}.{' That is its own result; the sandbox did not end it.' if code else ''}"
        case Signaled(signal=number):
            crash = number in CRASHES
            why = "It crashed" if crash else "A process of the box sent it, for no limit of the sandbox was reached"
            return f"[signaled] The command was ended by signal {number} ({_signal_name(number)}). {why}."
        case CapHit():
            return _of_cap(outcome)
        case NotStarted(reason=reason, path=path, errno=number):
            said = f"{quoted(path or ' '.join(argv))} was not started: {NOT_STARTED.get(reason, reason)}"
            name = errno.errorcode.get(number, str(number))
            return f"[not_started:{reason.name.lower()}] {said} ({name}). Nothing ran, so there is no exit code."
    return "[cancelled] The run was given up by its caller, and everything of it was ended. Its result is not known."


def _of_cap(cap: CapHit) -> str:
    lifetime = cap.kind == "wall" and cap.enforced_by.startswith("lifetime")
    what, advice, key = LIFETIME if lifetime else CAPS.get(cap.kind, (plain(cap.kind, 40), "Use less of it", ""))
    observed = "" if cap.observed is None else f"; {amount(cap.kind, cap.observed)} seen"
    raised = f", or ask for a higher {key}" if key else ""
    kind, limit, by = plain(cap.kind, 40), amount(cap.kind, cap.limit), plain(cap.enforced_by, 80)
    return (
        f"[cap:{kind}] The sandbox ended the command at the limit of {limit} for the {what} ({by}{observed}). "
        f"What it wrote until then is kept. {advice}{raised}."
    )


def _of_denial(denial: Denial) -> str:
    template = KILLED_FOR_MEMORY if (denial.kind, denial.target) == ("cap", "memory") else DENIED.get(denial.kind)
    what = (template or f"{plain(denial.kind, 40)} of {{}} was refused").replace("{}", quoted(denial.target), 1)
    detail = f"; {quoted(denial.detail)}" if denial.detail else ""
    if denial.remedy:
        step = f"The sandbox decided this, not the code. The policy line that would allow it: {plain(denial.remedy)}"
    else:
        step = WITHOUT_REMEDY.get(denial.kind, "The sandbox decided this, not the code, and no policy line allows it: do without.")
    return f"[{REPORT_AS}] {what} ({plain(denial.evidence, 20)}; rule {quoted(denial.rule)}{detail}). {step}"


def _of_cut(result: Result) -> str:
    parts = [
        f"{cut.omitted} bytes of {name}" for name, cut in (("stdout", result.output), ("stderr", result.errors)) if cut.omitted
    ]
    return f"[output_cut] {' and '.join(parts)} were left out of the middle. Write to a file and read parts of it to see all."


def _unique(lines: Iterable[str]) -> list[str]:
    """Each line once, with how often it was there."""
    counted: dict[str, int] = {}
    for line in lines:
        counted[line] = counted.get(line, 0) + 1
    return [line if times == 1 else f"{line} ({times} times)" for line, times in counted.items()]


def _first(lines: list[str], most: int, kind: str, name: str) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"[{kind}] {len(lines) - most} more {name} are not shown."


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(line if len(line) <= MOST_LINE else line[: MOST_LINE - 12] + " [... cut]" for line in lines)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"


def quoted(text: str, most: int = MOST_NAME) -> str:
    """text in double quotes, with all escaped that would not be seen as itself; cut past most characters, and then that is said."""
    shown, left = _escaped(text, most, quotes=True)
    return f'"{shown}"' + (f" (cut, {left} more characters)" if left else "")


def plain(text: str, most: int = MOST_NAME) -> str:
    """The same without quotes, for a sentence of ours that may have names from inside in it."""
    shown, left = _escaped(text, most, quotes=False)
    return shown + (f" (cut, {left} more characters)" if left else "")


def _escaped(text: str, most: int, *, quotes: bool) -> tuple[str, int]:
    parts: list[str] = []
    size = 0
    for at, char in enumerate(text):
        part = char if char.isprintable() and char not in UNSEEN and char != "\\" else _escape(char)
        if quotes and char == '"':
            part = '\\"'
        size += len(part)
        if size > most:
            return "".join(parts), len(text) - at
        parts.append(part)
    return "".join(parts), 0


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if 0xDC80 <= code < 0xDD00:  # a byte of a name that is not UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
