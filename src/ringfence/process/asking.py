"""From the arguments of the public calls to a Command. Shared by the awaiting and the blocking surface."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ringfence.errors import ArgumentError
from ringfence.policy.config import checked_environment
from ringfence.process.command import Command, as_bytes, checked_text, checked_timeout, of_argv

LANGUAGES = ("python", "bash", "node")


def argv(
    words: object,
    data: object,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    timeout: object,
    terminal: object = None,
) -> Command:
    """run() and spawn()."""
    checked = of_argv(words)
    environment = checked_environment(env if env is not None else {}, "env")
    folder = None if cwd is None else os.fspath(cwd)
    request: dict[str, object] = {"op": "run", "argv": list(checked)}
    if terminal is not None:
        from ringfence.process.terminal import checked_size  # with it comes termios

        request["terminal"] = checked_size(terminal)
        environment = {"TERM": "xterm-256color", **environment}
    return Command(checked, request, as_bytes(data, "input"), folder, environment, checked_timeout(timeout))


def shell_line(command: object, data: object, timeout: object) -> Command:
    """execute_command(): the line as bash takes it where the box has bash, else as sh does."""
    if not isinstance(command, str):
        raise TypeError("execute_command() takes one shell line; for a list of arguments use run(argv).")
    line = checked_text(command, "the command")
    words = ("/bin/sh", "-c", 'if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; fi; exec /bin/sh -c "$1"', "sh", line)
    of_argv(words)
    return Command((line,), {"op": "run", "argv": list(words)}, as_bytes(data, "stdin"), None, {}, checked_timeout(timeout))


def program(code: object, language: object, timeout: object) -> Command:
    """execute(): a whole program, in a fresh interpreter."""
    if not isinstance(code, str):
        raise TypeError(f"execute() takes the text of a program, not {type(code).__name__}.")
    if language not in LANGUAGES:
        raise ArgumentError(f"execute() runs {', '.join(LANGUAGES)}, not {language!r}.", hint="Use run(argv) for others.")
    source = code.encode("utf-8", "surrogateescape")
    request: dict[str, object]
    if language == "python":
        request = {"op": "program", "code": source}
    elif language == "bash":
        request = {"op": "run", "argv": ["bash"], "script": source, "suffix": ".sh"}
    else:
        request = {"op": "run", "argv": ["node"], "script": source, "suffix": ".js"}
    return Command((f"<{language} program>",), request, None, None, {}, checked_timeout(timeout))
