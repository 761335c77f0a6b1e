"""Completion for fish: one `complete` line for each word and option."""

from __future__ import annotations

from ringfence.cli.completion import Command

FISH = """\
# Completion of ringfence for fish: ringfence completion fish > ~/.config/fish/completions/ringfence.fish

function __ringfence_command
    set -l words (commandline -opc)
    set -l first (math (contains -i -- -- $words) + 1)
    set -l before (string escape -- $words[$first..-1])
    complete -C (string join ' ' -- $before (commandline -ct))
end

complete -c ringfence -f
complete -c ringfence -n 'contains -- -- (commandline -opc)' -x -a '(__ringfence_command)'
"""


def script(commands: list[Command]) -> str:
    """The script, for a list of all commands."""
    lines = []
    by_kind = {
        "file": " -r -F",
        "folder": " -x -a '(__fish_complete_directories)'",
        "variable": " -x -a '(set -nx)'",
        "other": " -x",
    }
    for each in commands:
        here = _fish_here(each, commands)
        for word, line in each.next:
            lines.append(f"complete -c ringfence -n {here} -a {word} -d {_fish_text(line)}")
        if each.kind in ("file", "folder", "variable"):
            lines.append(f"complete -c ringfence -n {here}{by_kind[each.kind].replace(' -r', '').replace(' -x', '')}")
        for option in each.options:
            flags = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags)
            value = "" if not option.kind else by_kind.get(option.kind) or f" -x -a '{option.kind}'"
            lines.append(f"complete -c ringfence -n {here}{flags}{value} -d {_fish_text(option.help)}")
    return FISH + "\n".join(lines) + "\n"


def _fish_here(command: Command, commands: list[Command]) -> str:
    """The condition under which a command is the one that is typed: its words are there, and none that leads further."""
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.words]
    further = [other.words[-1] for other in commands if other.words[:-1] == command.words and other.words]
    no = [f"not __fish_seen_subcommand_from {' '.join(further)}"] if further else []
    return "'" + "; and ".join([*seen, *no, "not contains -- -- (commandline -opc)"]) + "'"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
