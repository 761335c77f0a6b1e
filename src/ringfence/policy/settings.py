"""The built-in set: names of settings that something outside runs on its own, when a folder is opened, entered or committed from.

Not in it are files that somebody has to start: build files, scripts, sources, tests, text that an agent reads.
"""

SETTINGS = (
    # Editors: tasks and debuggers that start when the folder is opened, paths of the programs that they call.
    ".vscode", ".idea", ".vs", ".fleet", ".zed", ".cursor", ".windsurf", ".devcontainer", ".devcontainer.json", ".nvim.lua",
    ".exrc", ".dir-locals.el",
    # Shells that load a folder's environment on the way in.
    ".envrc", ".mise.toml", "mise.toml", ".autoenv.zsh",
    # Agents: hooks, servers to start, commands allowed without asking.
    ".mcp.json", ".claude", ".codex", ".gemini", ".kiro", ".roo", ".continue", ".opencode", "opencode.json", ".aider.conf.yml",
)  # fmt: skip
"""Looked for at the top of each writable folder and of each repository in it: held where they are, else watched for."""

SHELLS = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile",
    ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".xinitrc", ".xsession",
)  # fmt: skip
"""Start files of shells: held at the top of a writable folder where they are, since a home is often linked to such a folder.
A home itself is never writable, so that nothing is watched for."""

HOOK_MANAGERS = (
    ".husky", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", ".lefthook.yml", "lefthook.yaml",
    ".lefthook.yaml", "lefthook-local.yml", ".lefthook", ".lefthook-local", ".overcommit.yml", ".git-hooks", "captainhook.json",
    "grumphp.yml",
)  # fmt: skip
"""What installed hooks read and run. Held where a repository has hooks that git runs; a repository without them runs none of it."""

GIT = ".git"
CONFIG, WORKTREE_CONFIG, HOOKS, COMMON, LINK = "config", "config.worktree", "hooks", "commondir", "gitdir"
"""Entries of a git directory (gitrepository-layout(5)). `commondir` names the folder whose settings are read instead of its own."""

SAMPLE = ".sample"
"""Ending of the hooks that git's templates bring, which it never runs (githooks(5))."""

HOOK_NAMES = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg",
    "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive",
    "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite", "sendemail-validate",
    "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit", "post-index-change",
)  # fmt: skip
"""Every hook that git runs (githooks(5))."""
