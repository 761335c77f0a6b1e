"""Completion for zsh: one function for compinit's system. After `--` it hands over to the completion of the command there."""

from __future__ import annotations

from ringfence.cli.completion import Command


def _pattern(text: str) -> str:
    return f"'{text}'"


def script(commands: list[Command]) -> str:
    """The script, for a list of all commands."""
    by_kind = {"file": "_files", "folder": "_files -/", "variable": "_parameters -g '*export*'", "other": ":"}
    values, options, following = [], [], []
    for each in commands:
        at = " ".join(each.words)
        for option in each.options:
            if option.kind:
                shown = by_kind.get(option.kind) or f"compadd -- {option.kind}"
                values.append(f"        ({'|'.join(_pattern(f'{at}:{flag}') for flag in option.flags)}) {shown}; return ;;")
        described = " ".join(_zsh_word(flag, option.help) for option in each.options for flag in option.flags)
        options.append(f"        ({_pattern(at)}) found=({described}) ;;")
        words = " ".join(_zsh_word(word, line) for word, line in each.next)
        if each.kind == "command" and not each.next:
            words = "--"
        further = f"; {by_kind[each.kind]}" if each.kind in by_kind else ""
        following.append(f"        ({_pattern(at)}) found=({words}){further} ;;")
    known = "|".join(_pattern(" ".join(each.words)) for each in commands if each.words)
    return ZSH.format(known=known, values="\n".join(values), options="\n".join(options), following="\n".join(following))


def _zsh_word(word: str, line: str) -> str:
    """A word with its description, as _describe takes them."""
    text = f"{word}:{line}" if line else word
    return "'" + text.replace("'", "'\\''") + "'"


ZSH = """\
#compdef ringfence
# Completion of ringfence for zsh: eval "$(ringfence completion zsh)", after compinit

_ringfence() {{
    local at='' next previous=$words[CURRENT-1] i
    local -a found
    for ((i = 2; i < CURRENT; i++)); do
        if [[ $words[i] == -- ]]; then
            shift $i words
            ((CURRENT -= i))
            _normal
            return
        fi
        next=${{at:+$at }}$words[i]
        case $next in
        ({known}) at=$next ;;
        esac
    done
    if [[ $PREFIX == --*=* ]]; then
        previous=${{PREFIX%%=*}}
        compset -P '*='
    fi
    case $at:$previous in
{values}
    esac
    if [[ $PREFIX == -* ]]; then
        case $at in
{options}
        esac
    else
        case $at in
{following}
        esac
    fi
    (( $#found )) && _describe ringfence found
}}

if [[ $funcstack[1] == _ringfence ]]; then _ringfence "$@"; else compdef _ringfence ringfence; fi
"""
