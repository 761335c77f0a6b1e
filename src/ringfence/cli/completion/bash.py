"""Completion for bash: one function that reads COMP_WORDS. After `--` it hands over to the completion of the command there."""

from __future__ import annotations

from ringfence.cli.completion import Command


def script(commands: list[Command]) -> str:
    """The script, for a list of all commands."""
    by_kind = {
        "file": "_ringfence_files -f",
        "folder": "_ringfence_files -d",
        "variable": '_ringfence_words "$(compgen -e)"',
        "other": ":",
    }
    values, options, following = [], [], []
    for each in commands:
        at = " ".join(each.words)
        for option in each.options:
            if option.kind:
                shown = by_kind.get(option.kind) or f"_ringfence_words '{option.kind}'"
                values.append(f"        {' | '.join(_quoted(f'{at}:{flag}') for flag in option.flags)}) {shown}; return ;;")
        words = " ".join(flag for option in each.options for flag in option.flags) + (" --" if each.kind == "command" else "")
        options.append(f"        {_quoted(at)}) _ringfence_words '{words}' ;;")
        parts = ([f"_ringfence_words '{' '.join(word for word, _ in each.next)}'"] if each.next else []) + (
            ["_ringfence_words '--'"]
            if each.kind == "command" and not each.next
            else [by_kind[each.kind]]
            if each.kind in by_kind
            else []
        )
        following.append(f"        {_quoted(at)}) {'; '.join(parts) or ':'} ;;")
    known = " | ".join(_quoted(" ".join(each.words)) for each in commands if each.words)
    return BASH.format(known=known, values="\n".join(values), options="\n".join(options), following="\n".join(following))


def _quoted(text: str) -> str:
    return f"'{text}'"


BASH = """\
# Completion of ringfence for bash: eval "$(ringfence completion bash)"

_ringfence_words() {{
    local IFS=$' \\t\\n'
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -W "$1" -- "$cur")
}}

_ringfence_files() {{
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen "$1" -- "$cur")
}}

_ringfence() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} at='' next i
    COMPREPLY=()
    # --tier=x comes as three words.
    if [ "$cur" = '=' ]; then cur=''; elif [ "$prev" = '=' ]; then prev=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [ "${{COMP_WORDS[i]}}" = -- ]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((i + 1 == COMP_CWORD)); then
                _ringfence_files -c
            else
                _ringfence_files -f
            fi
            return
        fi
        next=${{at:+$at }}${{COMP_WORDS[i]}}
        case $next in
        {known}) at=$next ;;
        esac
    done
    case $at:$prev in
{values}
    esac
    if [[ $cur == -* ]]; then
        case $at in
{options}
        esac
        return
    fi
    case $at in
{following}
    esac
}}

complete -F _ringfence ringfence
"""
