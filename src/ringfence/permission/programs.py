"""What well-known programs do with their words: which are files that they read or write, which reach a host.

This is a reading of words and no more: a program that is not here may do all of it. It finds what should be asked about because a
line says so; what a line does not say is held by the box.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ringfence.permission.words import Word, places
from ringfence.permission.wrappers import program_name
from ringfence.values import frozen

BUILTINS = (
    "cd", "pushd", "popd", "dirs", ":", "true", "false", "echo", "printf", "test", "[", "pwd", "exit", "return", "break",
    "continue", "shift", "wait", "times", "set", "unset", "export", "declare", "typeset", "local", "readonly", "let", "read",
    "umask", "ulimit", "type", "getopts", "jobs", "exec", "trap", "command", "sleep", "date", "which",
)  # fmt: skip
"""What does nothing beyond the shell by itself: builtins (bash(1)), and three programs that only tell or wait."""
TALKS = ("echo", "printf", "true", "false", ":", "export", "set", "exit", "return", "read", "local", "declare", "alias", "basename",
    "dirname", "expr", "seq", "yes", "type", "which", "command")  # fmt: skip
"""Words of these are no files and no hosts."""
READS = (
    "cat", "head", "tail", "less", "more", "grep", "egrep", "fgrep", "rg", "ag", "wc", "sort", "uniq", "cut", "diff", "cmp", "file",
    "stat", "ls", "tree", "od", "xxd", "hexdump", "strings", "nl", "tac", "md5sum", "sha1sum", "sha256sum", "sha512sum", "base64",
    "cksum", "jq", "yq", "du", "find", "fd", "comm", "paste", "join", "column", "fold", "fmt", "realpath", "readlink", "bat",
    "zcat", "awk", "gawk", "tr", "test", "[", "cd", "source", ".",
)  # fmt: skip
WRITES = ("rm", "rmdir", "mkdir", "touch", "tee", "truncate", "shred", "chmod", "chown", "chgrp", "mv", "unlink", "mkfifo", "mknod")
WRITES_LAST = ("cp", "ln", "install", "rsync", "scp")
NAMES_PATTERNS = ("grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "gawk", "jq", "yq", "tr", "perl")
"""The first operand of these is no file."""

LEAVES: dict[str, tuple[str, ...]] = {
    "git": ("push", "send-email", "send-pack", "svn", "p4", "instaweb", "daemon"),
    "npm": ("publish", "unpublish", "deprecate", "login", "adduser", "token", "owner", "access", "dist-tag"),
    "pnpm": ("publish", "login"), "yarn": ("publish", "npm", "login"), "cargo": ("publish", "login", "owner", "yank"),
    "poetry": ("publish",), "mkdocs": ("gh-deploy",), "uv": ("publish",), "flit": ("publish",), "hatch": ("publish",),
    "gem": ("push", "yank", "signin"),
    "helm": ("install", "upgrade", "uninstall", "rollback", "push"), "mvn": ("deploy",), "dotnet": ("nuget",),
    **dict.fromkeys((
        "gh", "glab", "hub", "twine", "docker", "podman", "nerdctl", "docker-compose", "kubectl", "oc", "terraform", "tofu",
        "pulumi",
        "aws", "gcloud", "gsutil", "az", "doctl", "heroku", "vercel", "netlify", "flyctl", "fly", "wrangler", "ansible",
        "ansible-playbook", "systemctl", "service", "launchctl", "crontab", "at", "batch", "mail", "sendmail", "mutt", "ssh", "scp",
        "sftp", "ftp", "lftp", "mosh", "telnet", "nc", "ncat", "netcat", "socat", "rclone", "mount", "umount", "insmod", "modprobe",
        "reboot", "shutdown", "halt", "poweroff", "iptables", "nft", "ip", "mkfs", "fdisk", "wall", "write", "nmap", "ping", "dig",
        "nslookup", "host", "whois", "traceroute", "vault", "op", "gpg", "s3cmd", "ngrok", "cloudflared",
    ), ()),
}  # fmt: skip
"""What acts outside of every box, so that no box covers it: a program's first words, or the whole program where there are none."""
LOCAL = {"docker": ("--version", "version"), "git": (), "gh": ("--version",), "terraform": ("fmt", "validate", "version"),
    "kubectl": ("version",), "ip": ("addr", "a", "link", "route"), "gpg": ("--version",), "podman": ("--version",)}  # fmt: skip
FETCHES: dict[str, tuple[str, ...]] = {
    "git": ("fetch", "pull", "clone", "ls-remote", "submodule", "archive"),
    "pip": ("install", "download", "wheel", "index"), "pipx": ("install", "run", "upgrade"),
    "conda": ("install", "create", "update"),
    "uv": ("sync", "add", "lock", "tool", "python"), "poetry": ("install", "add", "update", "lock"), "pipenv": ("install", "sync"),
    "npm": ("install", "i", "ci", "add", "update", "audit", "view", "outdated", "exec"), "pnpm": ("install", "i", "add", "update"),
    "yarn": ("install", "add", "upgrade"), "bun": ("install", "add"), "cargo": ("fetch", "install", "update", "add", "search"),
    "go": ("get", "install"), "gem": ("install", "update"), "bundle": ("install", "update"), "composer": ("install", "require"),
    "apt": ("install", "update", "upgrade"), "apt-get": ("install", "update", "upgrade"), "apk": ("add", "update"),
    "dnf": ("install",), "yum": ("install",), "brew": ("install", "update", "upgrade"), "rustup": ("update", "install", "toolchain",
    "component", "target"), "helm": ("repo", "pull"), "dvc": ("pull", "fetch"), "huggingface-cli": ("download",),
    "playwright": ("install",), **dict.fromkeys(("npx", "curl", "wget", "http", "https", "aria2c", "yt-dlp"), ()),
}  # fmt: skip
"""What fetches from hosts that its words may not name."""
PORTS = {"http": 80, "https": 443, "ftp": 21, "ssh": 22, "git": 9418, "ws": 80, "wss": 443, "git+https": 443, "git+ssh": 22,
    "postgres": 5432, "postgresql": 5432, "mysql": 3306, "redis": 6379, "mongodb": 27017, "amqp": 5672}  # fmt: skip
URL = re.compile(
    r"(?:^|=|\+)(?P<scheme>[a-z][a-z0-9+]*)://(?:[^/@\s]*@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^/:?#\s]+)(?::(?P<port>\d+))?",
    re.IGNORECASE,
)
SSH = re.compile(r"(?:[\w.-]+@)(?P<host>[\w.-]+):")
SILENT = re.compile(r"/dev/(null|zero|full|random|urandom|stdin|stdout|stderr|tty|fd/\d+)")
"""Devices of every box (null(4), fd(4)): what is read from them or written to them is kept nowhere."""
DEVICE = re.compile(r"/dev/(?:tcp|udp)/(?P<host>[^/]+)/(?P<port>\d+)")


@frozen
class Mention:
    """A file or a host that the words of a command name. kind: read, write, net.

    sure: whether the program certainly does that. plain: a word that is a file only if there is one of that name.
    """

    kind: str
    what: str
    sure: bool = True
    plain: bool = False


def mentions(words: Sequence[Word]) -> Iterator[Mention]:
    """The files and hosts that a command's words name, as far as they are known."""
    name = (program_name(words[0]) or "") if words else ""
    if name in TALKS or (name == "git" and _verb(words) in ("commit", "tag", "log")):
        return
    yield from _hosts(words)
    operands = [word for word in words[1:] if word.known is not None and not word.known.startswith("-")]
    if name in NAMES_PATTERNS:
        operands = operands[1:]
    changes = name in WRITES or (name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", word.known or "") for word in words[1:]))
    for word in words[1:]:
        text = word.known
        if text is None:
            continue
        at = next((at for at, each in enumerate(operands) if each is word), None)
        for path in places(text):
            if URL.search(path) or SSH.match(path) or SILENT.fullmatch(path):
                continue
            last = name in WRITES_LAST and at == len(operands) - 1 > 0
            if (name == "dd" and text.startswith("of=")) or (at is not None and (changes or last)):
                yield Mention("write", path)
            elif at is not None and (name in READS or name in WRITES_LAST or name == "sed"):
                yield Mention("read", path)
            elif name not in NAMES_PATTERNS:
                yield Mention("read", path, sure=False, plain=not _is_path(path))


def leaves(words: Sequence[Word]) -> bool:
    """Whether a command certainly acts outside of the box that it runs in."""
    if module := _module(words):
        return leaves(module)
    if "/" in words[0].raw and not re.match(r"/(usr/)?(local/)?s?bin/", words[0].known or ""):
        return False  # a program of the project that is called like one that does
    return _is_one_of(words, LEAVES) and (_verb(words) or "-") not in LOCAL.get(program_name(words[0]) or "", ())


def fetches(words: Sequence[Word]) -> bool:
    """Whether a command certainly needs a host."""
    name = program_name(words[0]) or ""
    if module := _module(words):
        return fetches(module)
    if any(word.text in ("--offline", "--no-index", "--version", "--help", "-h", "-V") for word in words[1:]):
        return False
    if name in ("pip3",):
        words = (Word("pip", "pip", "pip"), *words[1:])
    if name == "uv" and _verb(words) == "pip":
        return fetches(tuple(word for word in words[1:]))
    return _is_one_of(words, FETCHES)


def _module(words: Sequence[Word]) -> Sequence[Word]:
    """The words of `python -m` from the module on, which is a program like others."""
    found = re.fullmatch(r"python[\d.]*", program_name(words[0]) or "") is not None and len(words) > 2 and words[1].text == "-m"
    return words[2:] if found else ()


def _is_one_of(words: Sequence[Word], table: dict[str, tuple[str, ...]]) -> bool:
    verbs = table.get(program_name(words[0]) or "")
    return verbs is not None and (not verbs or _verb(words) in verbs)


def _verb(words: Sequence[Word]) -> str:
    """The subcommand: the first word that is no option, nor the value of one of those that git and its like take before it."""
    value = False
    for word in words[1:]:
        text = word.known or ""
        if not text.startswith("-") and not value:
            return text
        value = text in ("-C", "-c", "--git-dir", "--work-tree", "--prefix", "--manifest-path", "-f", "--cwd", "--directory")
    return next((word.known or "" for word in words[1:]), "")


def _hosts(words: Sequence[Word]) -> Iterator[Mention]:
    name = program_name(words[0]) or ""
    for word in words[1:]:
        text = word.known or ""
        if name in NAMES_PATTERNS:
            continue
        if found := URL.search(text):
            if found["scheme"].lower() != "file":
                yield Mention("net", f"{found['host'].lower()}:{found['port'] or PORTS.get(found['scheme'].lower(), 443)}")
        elif (name in ("git", "scp", "rsync", "ssh", "sftp", "pip", "npm")) and (found := SSH.match(text)):
            yield Mention("net", f"{found['host'].lower()}:22")
        elif name in ("ssh", "sftp", "mosh") and not text.startswith("-") and text:
            yield Mention("net", f"{text.rpartition('@')[2].lower()}:22")
            return
        elif name in ("curl", "wget", "http") and re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?(/\S*)?", text) and "." in text:
            host, _, port = text.partition("/")[0].partition(":")
            yield Mention("net", f"{host.lower()}:{port or 80}", sure=False)


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~", "../", "./")) or text == ".." or "/../" in text or "/" in text
