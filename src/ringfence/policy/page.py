"""The page "A policy, line by line", made from the schema: what each key means is said in one place."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ringfence.policy.config import UNBUILT
from ringfence.policy.keys import FIELDS
from ringfence.policy.schema import Property, properties

EXAMPLE = """\
version: 1
tier: auto                       # or one by name, which nothing else stands in for
mode: workspace-write            # read-only | workspace-write | danger-full-access
filesystem:
  workspace: {path: .}           # relative to the folder of this file
  read_only: [/usr/share/dict]
  deny: [~/.ssh, "**/.env"]      # beside the built-in list of secrets
  protect: [Makefile]            # beside the built-in list of settings that something outside would run
environment: {pass: [LANG], set: {CI: "true"}}
resources:
  cpu_seconds: 60                # each process
  run_seconds: 120               # one call
  output_mib: {head: 1, tail: 1}
examples:
  allowed: ["read ./README.md", "write ./out/x", "exec git status"]
  refused: ["read ~/.ssh/id_rsa", "write .git/hooks/pre-commit", "connect 203.0.113.9:443"]
"""

INTRODUCTION = """\
# A policy, line by line

A policy file says what a box may do. Everything that it does not name is closed. It is YAML or TOML, by the ending of its name,
and is used with `ringfence run --policy FILE -- CMD`, `SandboxConfig.from_file(FILE)` and `ringfence check FILE`.

```yaml
{example}```

## How it is read

- Strictly. A key that is not on this page, another type, a key that is said twice, an empty file: each is an error with its line
  and column, and nothing is started. Nothing that is wrong becomes a default.
- YAML as its version 1.2 has it, without anchors, aliases, merge keys, tags, directives and further documents. A word that
  readers of YAML take for different things (`no`, `on`, `~`, `0777`, `22:22`, `1e3`, a date) is an error that asks for quotes.
  A key without a value is one too.
- The file is a regular one with one name, in UTF-8, of at most 64 KiB. A link to it is refused.
- Relative paths start at the folder of the file, wherever the caller is; `~` is the caller's home. In `deny` and `protect`, `*` and
  `?` stay within a name, `**` is any number of folders, and a pattern that begins with `**/` holds at any depth of each folder that
  the box shares with the host.
- No file is looked for: a policy is used where the caller names it. A box can never write the file that it is governed by.
- TOML has no null: a key is left out there.

## What wins

What closes wins over what opens, whatever order the lines have: `deny` and the built-in list of secrets over everything,
`protect` and the built-in set of settings over what is writable. Of the folders that are opened the innermost that holds a path
decides. What nothing names is closed. `ringfence check` tries the examples by this rule and says which line decides;
`ringfence explain --policy FILE path P` (or `host H`, `env NAME`, `-- CMD`) says it for one act, before anything runs.

## Several files

`--policy A --policy B` means what A and B both allow. B can take away and never add: what B would add is an error that names the
key. `deny` and `protect` are joined. `ringfence policy diff A B` says what differs, and which of the two allows more.

## What cannot be enforced yet

A key that waits for something has no mechanism in this version. A value that asks for something is refused by name when a box
is made, all of them at once, unless `best_effort` names the key; then the box goes without, and its notes say so. So is a limit
for which the host has no mechanism, with the step that adds one, and a guaranteed share of more than there is; see docs/caps.md.

## The keys
"""


def page() -> str:
    """The page as Markdown."""
    return "\n".join([INTRODUCTION.replace("{example}", EXAMPLE), *_keys()])


def _keys() -> Iterator[str]:
    part = ""
    for key, each in properties().items():
        if each.kind == "map":
            continue
        above = key.partition(".")[0] if "." in key else "the file"
        if above != part:
            yield f"\n### {above[0].upper()}{above[1:]}\n" if above == "the file" else f"\n### `{above}`\n"
            part = above
        yield f"- `{key}`: {each.description} {_facts(key, each)}"


def _facts(key: str, each: Property) -> str:
    quoted = [f"`{value}`" for value in each.values]
    words = [word for word in each.kind.split(" or ") if word not in each.values]
    said = "`true` or `false`" if each.kind == "true or false" else " or ".join([*quoted, *words])
    default = "must be there" if each.required else f"default `{json.dumps(each.default)}`"
    _, waits = UNBUILT.get(FIELDS[key][0] if key in FIELDS else "", ((), ""))
    return f"*{said[0].upper()}{said[1:]}; {default}." + (f" Waits for {waits}.*" if waits else "*")
