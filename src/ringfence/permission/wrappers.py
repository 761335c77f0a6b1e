"""From a command of a line to what it starts: programs that start what they are given, shells that are fed a text.

Looked through are wrappers whose own options are known to the letter. What is not certain is a doubt; the words behind are still
looked at, since what they certainly start may be closed by a rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ringfence.permission.shell import Command, Doubt, Line, Redirect, read_line
from ringfence.permission.words import Word
from ringfence.values import replace

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh")
INTERPRETERS = (
    "python", "node", "nodejs", "perl", "ruby", "php", "deno", "bun", "lua", "tclsh", "Rscript", "osascript", "awk", "gawk", "mawk",
    "psql", "sqlite3", "mysql", "ex", "ed", "vim", "vi", "gdb", "bc", "dc", "m4", "make",
)  # fmt: skip
STRANGE = ("alias", "unalias", "shopt", "hash", "enable", "bind", "complete", "compgen", "compopt", "fc", "history", "coproc")
"""Builtins that change what later words of the line mean (bash(1), SHELL BUILTIN COMMANDS)."""
RAISES = ("sudo", "doas", "su", "runuser", "pkexec", "chroot", "unshare", "nsenter", "setpriv", "capsh", "bwrap", "firejail")
"""Programs that run others as somebody else, or in another view."""
RUNS_OTHERS = ("xargs", "parallel", "strace", "ltrace", "gdb", "valgrind", "perf", "watch", "flock", "script", "entr", "setarch",
    "taskset", "chrt", "numactl", "unbuffer", "expect", "rlwrap", "dbus-run-session", "xvfb-run", "proxychains", "torsocks",
    "systemd-run", "faketime", "fakeroot", "firejail", "catchsegv", "linux64", "linux32", "i386", "x86_64")  # fmt: skip
VALUED = {"sudo": "ughpCrtTUDR", "doas": "uC", "xargs": "adEILnPs", "strace": "aeEoOpPsSuUXb", "flock": "wE", "watch": "nd",
    "runuser": "ugG", "perf": "eo", "parallel": "jNn"}  # fmt: skip
"""Options with a value of programs that start others (their manual pages)."""
LOADER = re.compile(r"ld(-linux.*|-musl-.*)?\.so(\.\d+)*|ld-linux-.*")


def commands_of(line: Line, variables: Mapping[str, str], depth: int = 0) -> Iterator[Command | Redirect | Doubt]:
    """Every command that a line would start, through wrappers and nested shells; its redirects; its doubts."""
    yield from line.doubts
    for step in line.steps:
        if isinstance(step, Redirect):
            yield step
        else:
            yield from started(step, variables, depth)


def started(command: Command, variables: Mapping[str, str], depth: int = 0) -> Iterator[Command | Redirect | Doubt]:
    """What one command starts: itself, and whatever it is a wrapper of."""
    for _ in range(20):
        if not command.words:
            return
        name = program_name(command.words[0])
        if name is None:
            yield replace(
                command, doubts=(*command.doubts, Doubt("the program that it starts is known only when it runs", firm=True))
            )
            return
        look = CERTAIN.get(name)
        if look is None:
            break
        inner = look(command.words)
        if inner is None:
            break
        doubts = [*command.doubts]
        if name == "env" and (names := [each for each in command.words[1:] if _sets(each) and each not in inner]):
            command = replace(command, assigned=(*command.assigned, *(each.raw.partition("=")[0] for each in names)))
        # The wrapper itself may be closed by a rule.
        yield replace(
            command, words=command.words[: len(command.words) - len(inner)] or command.words, doubts=(LOOKED_THROUGH, *doubts)
        )
        command = replace(command, words=inner, doubts=tuple(doubts))
    yield from _last(command, variables, depth)


LOOKED_THROUGH = Doubt("a wrapper")
"""Marks a wrapper beside what it starts: only what closes is looked for in it."""


def _last(command: Command, variables: Mapping[str, str], depth: int) -> Iterator[Command | Redirect | Doubt]:
    name = program_name(command.words[0]) or ""
    found = command
    inner: tuple[Word, ...] = ()
    if name in SHELLS or name in ("eval", "source", ".", "trap"):
        yield from _shell(command, name, variables, depth)
        return
    if name in STRANGE:
        found = _doubted(command, f"{name} changes what later words of the line start", firm=True)
    elif name in RAISES:
        found, inner = _doubted(command, f"{name} runs a command as somebody else, or in another view", firm=True), _behind(command)
    elif name in RUNS_OTHERS or LOADER.fullmatch(name):
        found, inner = _doubted(command, f"{name} starts what it is given"), _behind(command)
    elif name in ("find", "fd", "fdfind"):
        for each in _executed(command):
            inner = each
            found = _doubted(found, f"{name} starts a command for what it finds")
            yield from _hidden(command, each, variables, depth)
        inner = ()
    elif name == "busybox" and len(command.words) > 1:
        found, inner = _doubted(command, "busybox is many programs"), command.words[1:]
    elif any(name == each or re.fullmatch(rf"{each}[\d.]+", name) for each in INTERPRETERS) and _is_given_text(command):
        found = _doubted(command, f"{name} runs a program that it is given as text")
    yield found
    if inner:
        yield from _hidden(command, inner, variables, depth)


def _hidden(
    command: Command, inner: Sequence[Word], variables: Mapping[str, str], depth: int
) -> Iterator[Command | Redirect | Doubt]:
    """What a wrapper that is not looked through for certain starts: it may be closed, and is never let through by itself."""
    if depth < 4:
        behind = replace(command, words=tuple(inner), doubts=(*command.doubts, Doubt("it is started by another program")))
        yield from started(behind, variables, depth + 1)


def _shell(command: Command, name: str, variables: Mapping[str, str], depth: int) -> Iterator[Command | Redirect | Doubt]:
    """A shell, or a builtin, that is fed a text: read like a line where it is certain; never let through by a rule alone."""
    text, kind = _text_of(command, name)
    if kind == "file":
        yield command
        return
    if text is None:
        why = "a shell is fed what is known only when it runs" if kind else "a shell is started that reads what comes"
        yield _doubted(command, why, firm=True)
        return
    yield _doubted(command, "a shell is fed a text")
    if re.fullmatch(r"fish|t?csh", name):
        yield Doubt(f"{name} is no shell whose lines are read here", firm=True)
    for each in commands_of(read_line(text, variables, depth + 1), variables, depth + 1):
        if isinstance(each, Doubt):
            yield each
        else:
            folders = (None,) if command.folders != ("",) else each.folders
            yield (
                replace(each, folders=folders)
                if isinstance(each, Redirect)
                else _doubted(replace(each, folders=folders), "a shell is fed it")
            )


def _text_of(command: Command, name: str) -> tuple[str | None, str]:
    """What a shell would run: the text, where it is certain; and which kind: text, file, or nothing."""
    words = command.words[1:]
    if name == "eval":
        known = [word.text for word in words]
        return (None if None in known else " ".join(text for text in known if text is not None)), "text"
    if name == "trap":
        plain = [word for word in words if word.text != "--"]
        return (plain[0].text if len(plain) > 1 else "" if not plain or plain[0].text else None), "text"
    if name in ("source", "."):
        known_file = bool(words) and words[0].text is not None and not words[0].raw.startswith("<(")
        return (None, "file") if known_file else (None, "text")
    at = 0
    while at < len(words):
        text = words[at].text
        if text is None:
            return None, "text"
        if re.fullmatch(r"[-+][A-Za-z]+", text):
            if "c" in text[1:] and text[0] == "-":
                rest = words[at + 1 :]
                while rest and rest[0].text is not None and re.fullmatch(r"[-+][A-Za-z]+|--", rest[0].text):
                    text, rest = text + rest[0].text, rest[1:]
                unclear = not rest or "o" in text or "O" in text  # which take the word after them
                return (None if unclear else rest[0].text), "text"
            at += 2 if text[-1] in "oO" else 1
            if "s" in text[1:]:
                return command.stdin, "text"
        elif text.startswith("--"):
            if text in ("--rcfile", "--init-file"):
                return None, "text"
            at += 1
        elif text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            return command.stdin, "text"
        else:
            return None, "file"
    return command.stdin, "text" if command.fed else ""


def program_name(word: Word) -> str | None:
    """What a program is called, whichever path it is started by."""
    return os.path.basename(word.known.rstrip("/")) or None if word.known else None


def _doubted(command: Command, why: str, *, firm: bool = False) -> Command:
    return replace(command, doubts=(*command.doubts, Doubt(why, firm)))


def _behind(command: Command) -> tuple[Word, ...]:
    """The words from the first that is no option and no value of one, as far as that can be told."""
    words = command.words[1:]
    valued = VALUED.get(program_name(command.words[0]) or "", "")
    skip = False
    for at, word in enumerate(words):
        text = word.text
        if text is None:
            return ()
        if skip:
            skip = False
            continue
        skip = len(text) == 2 and text[0] == "-" and text[1] in valued
        if text == "--":
            return words[at + 1 :]
        if not text.startswith("-") and not re.fullmatch(r"\w+=.*|\d+[smhd]?|\{\}", text, re.DOTALL):
            return words[at:]
    return ()


def _executed(command: Command) -> Iterator[tuple[Word, ...]]:
    """The commands of `find -exec`, `fd -x`."""
    words = command.words
    for at, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            end = next((to for to in range(at + 1, len(words)) if words[to].text in (";", "+")), len(words))
            if end > at + 1:
                yield words[at + 1 : end]


def _is_given_text(command: Command) -> bool:
    """Whether an interpreter's program is in its arguments or comes by its stdin."""
    texts = [word.text for word in command.words[1:]]
    if any(
        text is not None and re.match(r"-[A-Za-z]*[ceErp]$|--(eval|execute|print|exec|command|eval=.*)$|-e.+|-c.+", text)
        for text in texts
    ):
        return True
    return command.fed and all(text is not None and (text == "-" or text.startswith("-")) for text in texts)


def _sets(word: Word) -> bool:
    return re.match(r"[A-Za-z_]\w*=", word.raw) is not None


def _after(words: Sequence[Word], flags: Sequence[str], valued: Sequence[str], first: int = 0) -> tuple[Word, ...] | None:
    """The words after a wrapper's own options, and after `first` operands; None where that cannot be told."""
    at = 1
    while at < len(words):
        text = words[at].text
        if text is None:
            return None
        if text == "--":
            at += 1
            break
        if text in valued:
            at += 2
        elif text in flags or any(text.startswith(f"{each}=") for each in valued if each.startswith("--")):
            at += 1
        elif text.startswith("-") and len(text) > 1:
            return None
        else:
            break
    rest = tuple(words[at + first :])
    operands = words[at : at + first]
    return rest if rest and all(word.text is not None for word in operands) else None


def _env(words: Sequence[Word]) -> tuple[Word, ...] | None:
    rest = _after(words, ("-i", "-", "--ignore-environment", "-0", "-v"), ("-u", "--unset"))
    while rest and _sets(rest[0]):
        rest = rest[1:]
    return rest or None


def _nice(words: Sequence[Word]) -> tuple[Word, ...] | None:
    if len(words) > 1 and words[1].text and re.fullmatch(r"-\d+|--\d+|-n-?\d+", words[1].text):
        return tuple(words[2:]) or None
    return _after(words, (), ("-n", "--adjustment"))


def _command(words: Sequence[Word]) -> tuple[Word, ...] | None:
    return _after(words, ("-p",), ())


CERTAIN: Mapping[str, Callable[[Sequence[Word]], tuple[Word, ...] | None]] = {
    "env": _env,
    "nice": _nice,
    "command": _command,
    "builtin": lambda words: _after(words, (), ()),
    "exec": lambda words: _after(words, ("-c", "-l"), ("-a",)),
    "nohup": lambda words: _after(words, (), ()),
    "time": lambda words: _after(words, ("-p", "-v"), ()),
    "setsid": lambda words: _after(words, ("-w", "-f", "-c", "--wait", "--fork"), ()),
    "stdbuf": lambda words: _after([w for w in words if not re.match(r"-[ioe].", w.text or "")], (), ("-i", "-o", "-e")),
    "ionice": lambda words: _after([w for w in words if not re.match(r"-[cn]\d", w.text or "")], ("-t",), ("-c", "-n")),
    "timeout": lambda words: _after(
        words, ("--foreground", "--preserve-status", "-v", "--verbose"), ("-k", "-s", "--kill-after", "--signal"), 1
    ),
}
"""Wrappers of which every option is known here (coreutils, util-linux, bash(1)): from their words to those that they start."""
