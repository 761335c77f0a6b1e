"""The table: for each tool, how its folder is recognised and which parts of it a box needs."""

from __future__ import annotations

from collections.abc import Iterator

from ringfence.values import frozen

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders that every box sees, whatever PATH says."""

SYSTEM_PATH = frozenset(f"{root}/{name}" for root in ("", "/usr", "/usr/local") for name in ("bin", "sbin"))

HOMES = ("/home", "/var/home")
"""Folders of which each child is somebody's home."""

BARE = (*HOMES, "/media", "/mnt", "/nix", "/opt", "/root", "/snap", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")
"""Folders that hold unrelated things and are never mounted as a whole; a tool below them may be."""

CLOSED = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys")
"""Folders of which the box has its own, or nothing: no PATH entry below them is kept."""

USELESS = {
    "/snap/bin": "starts everything through a set-uid program, which a box does not run",
    "/var/lib/snapd/snap/bin": "starts everything through a set-uid program, which a box does not run",
}
"""Folders whose programs cannot work, so that a later PATH entry's program of the same name is the better one."""

SECRET = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".password-store", ".pki", ".mozilla",
          ".thunderbird", ".config/gcloud", ".config/gh", ".config/google-chrome", ".config/chromium",
          ".local/share/keyrings", ".terraform.d", ".vault-token")  # fmt: skip
"""Names in a home that hold secrets. Nothing below them is mounted, and nothing that contains them."""

CREDENTIALS = ("pip.conf", ".condarc", "condarc", "etc/npmrc", "lib/node_modules/npm/npmrc", ".npmrc", ".netrc",
               ".pypirc", ".git-credentials", ".env", "credentials", "credentials.toml")  # fmt: skip
"""Files that a tool reads from its own prefix and that may hold a registry's password or token."""
PASSED = ("JAVA_HOME", "JDK_HOME", "GOROOT", "CONDA_PREFIX")
"""Variables of the caller that name a tool's folder; passed on only when the box can see that folder."""

WHOLE = ("",)

_VENV = ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg")
VENV_PARTS = _VENV
VENV_OWN = frozenset((*_VENV, "man", "doc", "src", "pip.conf", "pip-selfcheck.json", ".gitignore", ".lock",
                      "CACHEDIR.TAG", "uv-receipt.toml", "pipx_metadata.json"))  # fmt: skip
"""What venv, virtualenv, uv and pipx put into an environment. Anything else beside it (a project made into an
environment by `python -m venv .`) keeps it from being mounted as a whole."""


@frozen
class Row:
    """One tool. A folder belongs to it when a `places` pattern is a leading part of the folder's path, or when the
    folder is named in `at` and everything in `marks` is found beside it.

    In patterns `~` is the home, `*` one name, a leading `**` any folder; in `marks` and `parts` a trailing `*` stands
    for the rest of a name. `parts` are below the prefix; `each` are the parts whose children are prefixes themselves.
    """

    tool: str
    parts: tuple[str, ...]
    places: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    variable: str = ""


@frozen
class Companion:
    """Data that a program keeps elsewhere: where the caller's `variable` says, else the first of `places` that exists.

    A place is relative to the program's folder, or to the home where it begins with `~`.
    """

    program: str
    variable: str
    places: tuple[str, ...]
    row: Row


def _shims(name: str, variable: str) -> Row:
    # pyenv, and those that copied its layout.
    parts = ("bin", "libexec", "shims", "versions", "version", "plugins", f"{name}.d")
    marks = (f"libexec/{name}", "shims")
    return Row(name, parts, (f"~/.{name}",), ("bin", "shims"), marks, ("versions",), variable)


ROWS = (
    Row("conda", WHOLE, at=("bin", "condabin"), marks=("conda-meta",), each=("envs",)),
    Row("pyenv", WHOLE, ("~/.pyenv/versions/*",)),
    Row("rbenv", WHOLE, ("~/.rbenv/versions/*",)),
    _shims("pyenv", "PYENV_ROOT"),
    _shims("rbenv", "RBENV_ROOT"),
    Row("uv", WHOLE, ("~/.local/share/uv/python/*",)),
    Row("nvm", WHOLE, ("~/.nvm/versions/node/*", "~/.config/nvm/versions/node/*")),
    Row("fnm", WHOLE, ("~/.local/share/fnm/node-versions/*/installation", "~/.fnm/node-versions/*/installation")),
    Row("volta", ("bin", "tools"), ("~/.volta",), variable="VOLTA_HOME"),
    Row("asdf", WHOLE, ("~/.asdf/installs/*/*",)),
    Row("asdf", ("bin", "lib", "shims", "plugins", "installs"), ("~/.asdf",), variable="ASDF_DATA_DIR"),
    Row("mise", WHOLE, ("~/.local/share/mise/installs/*/*",)),
    Row("mise", ("shims", "installs", "plugins"), ("~/.local/share/mise",), variable="MISE_DATA_DIR"),
    Row("sdkman", WHOLE, ("~/.sdkman/candidates/*/*",)),
    Row("rustup", WHOLE, ("~/.rustup/toolchains/*",)),
    Row("go", WHOLE, at=("bin",), marks=("bin/go", "VERSION")),
    Row("java", WHOLE, at=("bin",), marks=("bin/java", "release", "lib")),
    Row("opt", WHOLE, ("/opt/*",)),
    Row("snap", WHOLE, ("/snap/*/*",)),
    Row("nix", WHOLE, ("/nix/store",)),
    # Without var, where services keep their data.
    Row("linuxbrew", ("bin", "sbin", "Cellar", "opt", "lib", "libexec", "include", "share", "etc"),
        ("/home/linuxbrew/.linuxbrew", "/var/home/linuxbrew/.linuxbrew", "~/.linuxbrew")),
    Row("node", WHOLE, ("**/node_modules",)),
)  # fmt: skip
"""Tools that own their folder: the first row that matches decides."""

SHARED = (
    Row("python", ("bin", "lib/python3*", "lib/libpython3*", "lib64/python3*", "include/python3*"),
        at=("bin",), marks=("lib/python3*",)),
    Row("node", ("bin", "lib/node_modules", "include/node"), at=("bin",), marks=("lib/node_modules",)),
)  # fmt: skip
"""Tools that share a prefix such as ~/.local with others: every row that matches adds its parts."""

COMPANIONS = (
    # CARGO_HOME stays private and empty: cargo takes a lock in it, and the caller's one holds the registry tokens.
    Companion("rustup", "RUSTUP_HOME", ("../../.rustup", "../../rustup", "~/.rustup"),
              Row("rustup", ("toolchains", "settings.toml", "update-hashes"), each=("toolchains",))),
    Companion("uv", "UV_PYTHON_INSTALL_DIR", ("~/.local/share/uv/python",), Row("uv", WHOLE, each=WHOLE)),
)  # fmt: skip


def prefixes(row: Row, folder: str, home: str) -> Iterator[tuple[str, bool]]:
    """The prefixes that `row` suggests for `folder`, and whether its marks must still be looked for."""
    for place in row.places:
        start, _, rest = place.partition("/")
        root = home if start == "~" else ""
        if root and not folder.startswith(root + "/"):
            continue
        names, pattern = folder[len(root) + 1 :].split("/"), rest.split("/")
        end = len(pattern)
        if start == "**" and rest in names:
            pattern, end = names, names.index(rest) + 1
        if len(names) >= end and all(p in ("*", name) for p, name in zip(pattern, names[:end], strict=False)):
            yield "/".join((root, *names[:end])), False
    parent, _, name = folder.rpartition("/")
    if name in row.at and parent:
        yield parent, True
