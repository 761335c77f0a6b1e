"""Lines of stderr in which a program says that the kernel refused it a path. Text only: nothing here is believed or looked up.

Read are the kernel's words for an errno (strerror(3)) where a program puts them beside a path: `tool: PATH: words`,
`words: 'PATH'`, `words, call 'PATH'`, `PATH (words)`. Words in another place are no refusal. Every line is cut, every search is
linear: the text is a stranger's.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import NamedTuple

from ringfence.denials import OF_FILES

MAX_LINE = 4096
MAX_PATH = 1024
MAX_REFUSALS = 100
"""Different refusals that are looked into; a program can print more than anybody reads."""
LINES_BACK = 6
FRAMES = 10
"""Lines below an error that are its stack, where a runtime prints it there (Node, Java)."""

WORDS = {
    "permission denied": errno.EACCES,
    "read-only file system": errno.EROFS,
    "no such file or directory": errno.ENOENT,
    "no such file": errno.ENOENT,  # dash, as the next one
    "directory nonexistent": errno.ENOENT,
    "device or resource busy": errno.EBUSY,
    "resource busy or locked": errno.EBUSY,  # libuv, as the next but one
    "invalid cross-device link": errno.EXDEV,
    "cross-device link not permitted": errno.EXDEV,
    "accessdeniedexception": errno.EACCES,  # java.nio.file, which has no words for these two
    "nosuchfileexception": errno.ENOENT,
    "too many open files": errno.EMFILE,
    "file too large": errno.EFBIG,
    "no space left on device": errno.ENOSPC,
    "resource temporarily unavailable": errno.EAGAIN,
    "can't start new thread": errno.EAGAIN,
    "unable to create native thread": errno.EAGAIN,
}
OF_CAPS = frozenset((errno.EMFILE, errno.EFBIG, errno.ENOSPC, errno.EAGAIN))
EXCEPTIONS = ("accessdeniedexception", "nosuchfileexception")

_WORDS = re.compile("|".join(re.escape(words) for words in WORDS), re.IGNORECASE)
_QUOTED = re.compile("(?<!\\w)'([^']*)'|\"([^\"]*)\"|`([^`']*)[`']|\u2018([^\u2019]*)\u2019")
_ENDS = re.compile(
    r"\.?\s*$"
    r"|: \S"  # Python, zsh, exceptions of Java
    r"|, [a-z_]+(?: |$)"  # Node
    r"|\)\s*$"  # Java
    r"| \(os error \d+\)(?:\s*$| at path \")"  # Rust
    r"| at \S+ line \d+"  # Perl
    r"| @ \w+ - "  # Ruby
)
"""What comes after the words where they are a message; what else goes on is about them."""
_ERRNO = re.compile(r": \[Errno \d{1,3}\] $")
_WRITES = re.compile(
    r"^tee: |\b(?:creat(?:e|ing)|touch|remov(?:e|ing)|unlink|rmdir|mkdir|mkdtemp|makedirs|renam(?:e|ing)|symlink|link|mov(?:e|ing)"
    r"|writ(?:e|ing)|write_text|write_bytes|writefile|copyfile|truncate|lock|chmod|chown|utimes?|mknod"
    r"|(?:output|temporary|dependency) file|(?:permissions|times|ownership) of)\b"
    r"|open\([^()]{0,200}, ?['\"][wax]",
    re.IGNORECASE,
)
_READS = re.compile(
    r"\b(?:for reading|open directory|read(?:ing)?|cannot (?:access|stat|open)|l?stat|scandir|opendir|readlink|exec(?:ve)?|spawn"
    r"|uv_cwd|chdir|cd)\b",
    re.IGNORECASE,
)
_ENTRIES = re.compile(r"\b(?:remov(?:e|ing)|unlink|rmdir|renam(?:e|ing)|mov(?:e|ing)|replace)\b", re.IGNORECASE)
_RUNTIME_WRITES = re.compile(r"\b(?:writeFile|appendFile|FileOutputStream|newOutputStream|createDirectory|createFile)")
_OWN_LIMITS = re.compile(r"\bulimit\b|\bprlimit\b|setrlimit|RLIMIT_")
_FORKS = re.compile(r"fork|clone|thread|spawn|_execute_child|process", re.IGNORECASE)


class Refused(NamedTuple):
    """One refusal that a line tells of. paths: as they are written there, none for a cap; of a rename both.

    writes: whether the act would change something; None where the line does not say. entry: whether that is the name in its
    folder, and not what it names.
    """

    number: int
    paths: tuple[str, ...]
    writes: bool | None
    entry: bool = False


def refusals(text: str, command: str = "") -> Iterator[Refused]:
    """Every refusal that text tells of, each once, in order. command: what was run, as text.

    A command that has the words in itself proves nothing by printing them.
    """
    if not any(word in text.lower() for word in OF_FILES):
        return
    held = {WORDS[found[0].lower()] for found in _WORDS.finditer(command)}
    if _OWN_LIMITS.search(command):
        held |= OF_CAPS  # it may have met a limit of its own
    if "/dev/full" in command:
        held.add(errno.ENOSPC)
    lines = [line[:MAX_LINE] for line in re.split(r"[\n\r]", text)]
    seen: set[Refused] = set()
    for at, line in enumerate(lines):
        lower = line.lower()
        found = _WORDS.search(line) if any(word in lower for word in OF_FILES) else None
        if found is None:
            continue
        number = WORDS[found[0].lower()]
        if number in held:
            continue
        for refused in _refused(number, found, line, lines[max(0, at - LINES_BACK) : at]):
            if refused.writes is None and refused.paths:
                below = _of_runtime(lines[at + 1 : at + 1 + FRAMES])
                refused = refused._replace(writes=below or redirected(command, refused.paths[0]))
            if refused not in seen:
                seen.add(refused)
                yield refused
        if len(seen) >= MAX_REFUSALS:
            return


def _refused(number: int, found: re.Match[str], line: str, earlier: list[str]) -> Iterator[Refused]:
    before, after = line[: found.start()], line[found.end() :]
    if not _ENDS.match(after):
        return
    if number in OF_CAPS:
        if number != errno.EAGAIN or _FORKS.search("\n".join((*earlier, line))):
            yield Refused(number, (), None)
        return
    if found[0].lower() in EXCEPTIONS:
        paths, said = [after.removeprefix(": ").partition(" -> ")[0].strip()], ""
    elif ' at path "' in after:
        paths, said = _quoted(after)[:1], before
    elif not before.strip():
        paths, said = _said_earlier(earlier)
    elif before.endswith("("):
        paths, said = _last_field(before[:-1].rstrip()), ""
    elif before.endswith(("] ", ": ")) and after[:1] in (":", ",") and after.strip(":, "):
        paths, said = _after(after), after if after[0] == "," else _statement(earlier)
    elif before.endswith((": ", "] ")) and after.startswith(" @ "):
        paths, said = [after.partition(" - ")[2].partition(" (Errno::")[0]], ""
    elif before.endswith(": ") or _ERRNO.search(before):
        before = _ERRNO.sub(": ", before)
        paths, said = _before(before[:-2]), before
    else:
        return
    kept = tuple(dict.fromkeys(path for path in paths if path and len(path) <= MAX_PATH and "\0" not in path))
    if not kept:
        return
    if number == errno.EXDEV:
        yield Refused(number, kept, True)
        return
    lock = ".lock" if "lock config file" in said else ""  # what git makes, and does not name
    for path in kept:
        rest = said.replace(path, "")  # the names of files are no verbs
        writes = True if number == errno.EROFS or _WRITES.search(rest) else False if _READS.search(rest) else None
        yield Refused(number, (path + lock,), writes, bool(_ENTRIES.search(rest)))


def _quoted(text: str) -> list[str]:
    return [next(part for part in found.groups() if part is not None) for found in _QUOTED.finditer(text)]


def _before(before: str) -> list[str]:
    """The paths of `tool: cannot do 'PATH' to 'PATH'`, `tool: PATH`, `tool: line 1: PATH`, `tool: PATH: Cannot open`."""
    fields = before.split(": ")
    last = fields[-1]
    quoted = _quoted(last) or (_quoted(before) if last.endswith(("'", '"', "\u2019")) else [])
    if quoted:
        return quoted[-2:]
    if len(fields) > 1 and last.startswith(("Cannot ", "Could not ", "cannot ", "Failed ")) and "/" not in last and len(fields) > 2:
        return [fields[-2]]
    return _last_field(before)


def _last_field(before: str) -> list[str]:
    """What an unquoted path may be: the whole field, what begins with its first slash, its last word."""
    last = before.rpartition(": ")[2]
    if " " not in last:
        return [last]
    slash = last.find(" /")
    return [last, last[slash + 1 :] if slash >= 0 else last.rpartition(" ")[2]]


def _after(after: str) -> list[str]:
    quoted = _quoted(after)
    if quoted:
        return quoted[:2]
    return [after[1:].strip()] if after.startswith(": ") else []


def _statement(earlier: list[str]) -> str:
    """The statement of a traceback's last frame, without the marks below it, and which of pathlib's writers it is in."""
    frames = [line for line in earlier if line.startswith("  ") and line.strip(" ^~")]
    names = [line.rpartition(", in ")[2] for line in frames if line.startswith("  File ")]
    writers = [name for name in names if name in ("write_text", "write_bytes", "touch", "mkdir", "makedirs")]
    return " ".join((*writers, *frames[-1:]))


def _of_runtime(lines: list[str]) -> bool | None:
    """Whether the runtime's own frames of a stack write; None where they do not say so."""
    own = " ".join(line for line in lines if line.lstrip().startswith("at ") and ("(node:" in line or "java.base/" in line))
    return bool(_RUNTIME_WRITES.search(own)) or None


def redirected(command: str, path: str) -> bool | None:
    """Whether a shell line writes to path (True) or reads from it (False) by a redirection; None where it has none."""
    before = command[: command.find(path)].rstrip(" '\"") if path in command else ""
    return True if before.endswith((">", ">|")) else False if before.endswith("<") else None


def _said_earlier(earlier: list[str]) -> tuple[list[str], str]:
    """Where the words stand alone, as a cause: the path of the last line before that failed to do something with one."""
    for line in reversed(earlier):
        if re.search(r"\b(?:failed|could not|couldn't|cannot|unable)\b", line):
            return (_quoted(line)[-1:] or _last_field(line)[-1:]), line
    return [], ""
