"""What is secret: the built-in lists, always on, and the `deny` patterns of a config, which add to them and never shorten them.

Outside the folders that a box shares with the host nothing of this is mounted, so it is absent. Inside them each match at the
start of a box is covered. IN_HOME are places below the caller's home, whole. ANYWHERE are names that a program would only give
to a secret: where a project has one, in whatever folder, it is covered too. Not among them, because ordinary work reads them
in a project: `.env` (its program does not start without), `.npmrc` and `pip.conf` (npm and pip stop at one that they
cannot read), `settings.xml`, `gradle.properties`, `*.pem` and `*.key` (test certificates). Deny them where they hold a token.

Variables of the caller that say where its credentials lie (IN_VARIABLES) add what they name. What ringfence keeps for itself
(ringfence.state) is closed in the same way, and no shared folder may hold it: a box could make it where it is not there yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ringfence import state
from ringfence.errors import ConfigError
from ringfence.policy.patterns import covers, escaped, is_glob, literal

IN_HOME = (
    # keys
    ".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet",
    ".age", ".config/sops", ".config/age", ".config/Bitwarden CLI", ".config/op",
    # clouds and clusters
    ".aws", ".azure", ".config/gcloud", ".boto", ".gsutil", ".kube", ".docker", ".dockercfg", ".config/containers/auth.json",
    ".oci", ".aliyun", ".config/doctl", ".config/hcloud", ".config/scw", ".fly", ".config/heroku", ".config/netlify",
    ".config/rclone", ".s3cfg", ".terraform.d", ".terraformrc", ".vault-token", ".config/helm/registry", ".databrickscfg",
    ".snowflake", ".pulumi/credentials.json",
    ".config/.wrangler", ".local/share/com.vercel.cli", ".railway",
    # logins of network programs and databases
    ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".dbshell",
    ".config/curlrc", ".curlrc", ".wgetrc", ".smbcredentials", ".fetchmailrc", ".msmtprc", ".mutt",
    # git and its hosts
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".git-credential-cache", ".cache/git/credential", ".config/jj/credentials",
    # package registries
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".config/configstore", ".pypirc", ".pip/pip.conf", ".config/pip/pip.conf", ".condarc",
    ".config/pypoetry/auth.toml", ".config/hatch", ".local/share/uv/credentials", ".config/uv", ".cargo/credentials",
    ".cargo/credentials.toml", ".cargo/config", ".cargo/config.toml", ".gem/credentials", ".bundle/config", ".composer/auth.json",
    ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
    ".gradle/init.gradle", ".gradle/init.d", ".nuget/NuGet", ".config/NuGet", ".hex", ".sbt/.credentials", ".ivy2/.credentials",
    ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle", ".config/kaggle",
    # browsers and mail
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/google-chrome-beta", ".config/chromium", ".config/microsoft-edge",
    ".config/BraveSoftware", ".config/vivaldi", ".config/opera", ".librewolf", ".zen", "snap/firefox", "snap/chromium",
    ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium", ".config/Signal",
    ".config/Slack", ".config/discord", ".local/share/evolution", ".config/evolution",
    # agents and editors
    ".claude", ".claude.json", ".claude.json.backup", ".codex", ".gemini", ".config/claude", ".config/Claude", ".config/openai",
    ".config/anthropic", ".config/github-copilot", ".copilot", ".cursor", ".config/Cursor", ".continue", ".aider.conf.yml",
    ".config/aider", ".config/opencode", ".local/share/opencode", ".config/goose", ".local/share/goose", ".config/amp",
    ".local/share/amp", ".config/crush", ".local/share/crush", ".config/zed", ".config/Code/User", ".windsurf", ".codeium",
    ".qwen", ".config/io.datasette.llm",
    # what was typed
    ".bash_history", ".zsh_history", ".zhistory", ".history", ".sh_history", ".ksh_history", ".local/share/fish/fish_history",
    ".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history",
    ".irb_history", ".local/share/atuin", ".local/state/bash/history", ".local/share/zsh/history", ".lesshst", ".viminfo",
    # sockets of agents
    ".docker/run/docker.sock", ".colima", ".local/share/containers/podman/machine",
)  # fmt: skip
"""Below the caller's home; a folder stands for all that is in it."""

ANYWHERE = (
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss",
    ".gnupg/private-keys-v1.d", ".gnupg/secring.gpg", ".local/share/keyrings", ".password-store",
    ".aws/credentials", ".aws/sso/cache", ".aws/cli/cache", ".azure/msal_token_cache.json", ".azure/accessTokens.json",
    ".azure/service_principal_entries.json", ".config/gcloud", ".boto", ".kube/config", ".docker/config.json", ".dockercfg",
    ".vault-token", "credentials.tfrc.json", ".s3cfg", ".oci/config",
    ".netrc", "_netrc", ".authinfo", ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".git-credentials", ".config/git/credentials", ".config/gh/hosts.yml", ".config/glab-cli/config.yml",
    ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings-security.xml",
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/github-copilot",
    ".mozilla/firefox", ".config/google-chrome", ".config/chromium",
    ".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
    ".rediscli_history", "fish_history",
    # sockets of agents and of what starts containers
    "docker.sock", "podman.sock", "containerd.sock", "S.gpg-agent", "S.gpg-agent.ssh", "S.gpg-agent.extra", "S.gpg-agent.browser",
)  # fmt: skip
"""Names, with the folders right above them where a name alone is an ordinary one."""

ANYWHERE_GLOBS = tuple(f"/**/{name}" for name in ANYWHERE)

IN_VARIABLES = (
    "SSH_AUTH_SOCK", "GNUPGHOME", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE", "KUBECONFIG",
    "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "NETRC", "PGPASSFILE", "NPM_CONFIG_USERCONFIG", "npm_config_userconfig",
    "PIP_CONFIG_FILE", "TWINE_CONFIG_FILE", "GH_CONFIG_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "HISTFILE",
    "PASSWORD_STORE_DIR", "SOPS_AGE_KEY_FILE", "VAULT_TOKEN_PATH",
)  # fmt: skip
"""Variables whose value is a path of credentials, or several with ':' between them."""
BY_VARIABLE = "built in: $"
"""How the rule of such a path begins."""
OWN = "built in: what ringfence keeps"
"""The rule of the state folder, and of each trace that this process writes elsewhere."""


class Secrets(NamedTuple):
    """What must not be read by a box: paths with the rule that names each, and globs; globs of the config come first."""

    paths: tuple[tuple[str, str], ...]
    denied: tuple[str, ...]
    built_in: tuple[str, ...] = ANYWHERE_GLOBS


def secrets_of(deny: Sequence[str], workspace: str, shared: Sequence[str], environment: Mapping[str, str]) -> Secrets:
    """What the absolute patterns of deny and the caller's variables name, and the built-in names; beside IN_HOME.

    A pattern for any folder of the workspace (`**/.env`) holds in the other shared folders too.
    """
    paths = [(literal(pattern), pattern) for pattern in deny if not is_glob(pattern)]
    paths += [(path, f"{BY_VARIABLE}{name}") for name, path in _named_by(environment)]
    paths += [(path, OWN) for path in state.closed()]
    globs = [pattern for pattern in deny if is_glob(pattern)]
    start = f"{escaped(workspace)}/**/"
    for pattern in tuple(globs):
        if pattern.startswith(start):
            globs += [f"{escaped(folder)}/**/{pattern.removeprefix(start)}" for folder in shared if folder != workspace]
    return Secrets(tuple(paths), tuple(globs))


def refuse_open(where: str, path: str, deny: Sequence[str], home: str) -> None:
    """Raise ConfigError where a folder or file that is to be in the box is, or lies in, what must not be read."""
    rule = next((pattern for pattern in deny if covers(pattern, path)), "") or built_in_rule(path, home)
    if rule:
        raise ConfigError(f"{where} names {path}, which must not be read: {rule} closes it.", hint="Take one of the two away.")
    if kept := state.refused(path):
        raise ConfigError(
            f"{where} names {path}, which holds {kept}, where ringfence keeps what no box may have.",
            hint=f"Name a folder without it, or another place for it: {state.VARIABLE}.",
        )


def built_in_rule(path: str, home: str) -> str:
    """The entry of the built-in lists that closes path or a folder above it, or ''."""
    if any(path == kept or path.startswith(f"{kept}/") for kept in state.closed()):
        return OWN
    names = path.split("/")
    below = path.removeprefix(home + "/").split("/") if path.startswith(home + "/") else []
    for count in range(1, len(below) + 1):
        if (name := "/".join(below[:count])) in _IN_HOME:
            return f"built in: ~/{name}"
    for end in range(2, len(names) + 1):
        for entry in _ANYWHERE.get(names[end - 1], ()):
            if names[max(1, end - entry.count("/") - 1) : end] == entry.split("/"):
                return f"built in: **/{entry}"
    return ""


_IN_HOME = frozenset(IN_HOME)
_ANYWHERE: dict[str, list[str]] = {}
for _entry in ANYWHERE:
    _ANYWHERE.setdefault(_entry.rpartition("/")[2], []).append(_entry)


def _named_by(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in IN_VARIABLES:
        for path in environment.get(name, "").split(":"):
            if path.startswith("/") and path.strip("/") and "\0" not in path:
                yield name, os.path.normpath(path)
