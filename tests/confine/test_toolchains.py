"""What a box must see of the caller's tools: each tool laid out as its installer does it, and what must never count."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.confine.toolchains import Toolchains, discover
from ringfence.confine.toolchains.claims import MAX_FOLLOWED
from ringfence.confine.toolchains.hostfiles import MAX_CALLS
from ringfence.confine.toolchains.table import ROWS, prefixes

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Host:
    """A throw-away home and workspace."""

    def __init__(self, root: Path) -> None:
        self.home, self.workspace = root / "home", root / "ws"
        self.home.mkdir()
        self.workspace.mkdir()

    def file(self, path: str | Path, text: str = "", mode: int = 0o755) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def link(self, path: str | Path, target: str | Path) -> Path:
        link = self.home / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return link

    def python(self, prefix: str | Path, version: str = "3.12") -> Path:
        """An installation as `make install` leaves it."""
        self.file(self.home / prefix / f"bin/python{version}")
        self.link(self.home / prefix / "bin/python3", f"python{version}")
        self.file(self.home / prefix / f"lib/python{version}/os.py", mode=0o644)
        return self.home / prefix

    def environment(self, prefix: str | Path, base: Path) -> Path:
        """An environment as `python -m venv` leaves it."""
        self.file(
            self.home / prefix / "pyvenv.cfg", f"home = {base}/bin\ninclude-system-site-packages = false\n", 0o644
        )
        self.link(self.home / prefix / "bin/python", base / "bin/python3")
        self.link(self.home / prefix / "bin/python3", "python")
        self.file(self.home / prefix / "lib/python3.12/site-packages/x.py", mode=0o644)
        self.link(self.home / prefix / "lib64", "lib")
        return self.home / prefix

    def pyenv(self) -> Path:
        """~/.pyenv after `pyenv install 3.11.7 3.12.1; pyenv global 3.11.7`."""
        for name in ("libexec/pyenv", "plugins/python-build/bin/python-build", "pyenv.d/exec/x.bash", "shims/python3"):
            self.file(f".pyenv/{name}", "#!/bin/sh\n")
        for name in ("version", "README.md", ".git/config", "src/configure"):
            self.file(f".pyenv/{name}", mode=0o644)
        self.link(".pyenv/bin/pyenv", "../libexec/pyenv")
        self.python(".pyenv/versions/3.11.7", "3.11")
        self.python(".pyenv/versions/3.12.1")
        return self.home / ".pyenv"

    def discover(
        self, *entries: str | Path, interpreter: str | Path = "/usr/bin/python3", **options: object
    ) -> Toolchains:
        found = discover(
            path=":".join(map(str, entries)),
            home=str(self.home),
            interpreter=str(interpreter),
            writable=[str(self.workspace)],
            **options,  # type: ignore[arg-type]
        )
        self.check(found)
        return found

    def mounts(self, found: Toolchains) -> set[str]:
        """Mounts below the home by their name there, others by their path."""
        return {m.removeprefix(os.path.realpath(self.home) + "/") for m in found.read_only}

    def check(self, found: Toolchains) -> None:
        """What holds for every result."""
        roots = [os.path.realpath(self.workspace), str(self.workspace)]
        for mount in found.read_only:
            assert os.path.realpath(mount) == mount
            assert not any(below(mount, other) for other in found.read_only if other != mount)
            assert not below(str(self.home), mount)
            assert not below(os.path.realpath(self.home), mount)
            assert not any(below(mount, root) or below(root, mount) for root in roots)
            assert not below(mount, os.path.realpath(self.home / ".ssh"))
        for link, _ in found.links:
            assert not any(below(os.path.dirname(link), mount) for mount in found.read_only)
        for file in found.covered:
            assert any(below(file, mount) for mount in (*found.read_only, "/usr"))
        for entry in found.path:
            assert in_box(found, entry) == os.path.realpath(entry)
        for note in found.notes:
            assert note.endswith(".")
            assert "\n" not in note


def below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def in_box(found: Toolchains, path: str) -> str | None:
    """Where `path` leads in a box made from `found`; None when it leads nowhere."""
    links = dict(found.links)
    names, real = path.split("/")[::-1], ""
    for _ in range(500):
        if not names:
            return real
        name = names.pop()
        step = f"{real}/{name}" if name not in ("", ".", "..") else os.path.dirname(real) if name == ".." else real
        text = links.get(step)
        if text is None and any(below(step, folder) for folder in (*found.read_only, "/usr", "/bin", "/sbin", "/lib")):
            text = os.readlink(step) if os.path.islink(step) else None
            if text is None and not os.path.exists(step):
                return None
        if text is None:
            real = step
            continue
        names.extend(text.split("/")[::-1])
        real = "" if text.startswith("/") else real
    return None


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# The tools


def test_a_system_path_needs_nothing_mounted(host: Host) -> None:
    found = host.discover(*SYSTEM_PATH.split(":"))
    assert (found.read_only, found.links, found.environment) == ((), (), {})
    assert found.path == tuple(entry for entry in SYSTEM_PATH.split(":") if os.path.isdir(entry))


def test_pyenv_shims_bring_what_a_shim_reads_and_nothing_else_of_the_folder(host: Host) -> None:
    root = host.pyenv()
    found = host.discover(root / "shims", root / "bin", "/usr/bin")
    parts = ("bin", "libexec", "shims", "versions", "version", "plugins", "pyenv.d")
    assert host.mounts(found) == {f".pyenv/{part}" for part in parts}
    assert found.path == (f"{root}/shims", f"{root}/bin", "/usr/bin")
    assert found.environment == {"PYENV_ROOT": str(root)}
    assert found.notes == ()


def test_a_pyenv_kept_elsewhere_is_recognised_by_its_layout(host: Host) -> None:
    (host.pyenv()).rename(host.home / "tools")
    found = host.discover(host.home / "tools/shims")
    assert "tools/versions" in host.mounts(found)
    assert "tools/src" not in host.mounts(found)
    assert found.environment == {"PYENV_ROOT": f"{host.home}/tools"}


def test_one_pyenv_version_on_path_brings_that_version_alone(host: Host) -> None:
    root = host.pyenv()
    found = host.discover(root / "versions/3.12.1/bin")
    assert host.mounts(found) == {".pyenv/versions/3.12.1"}


def test_a_folder_inside_one_that_a_later_entry_brings_is_mounted_once(host: Host) -> None:
    root = host.pyenv()
    found = host.discover(root / "versions/3.12.1/bin", root / "shims")
    assert f"{root}/versions" in found.read_only
    assert f"{root}/versions/3.12.1" not in found.read_only


def test_a_version_that_pyenv_only_links_to_is_mounted_where_it_lies(host: Host) -> None:
    root = host.pyenv()
    host.python("builds/py313", "3.13")
    host.link(".pyenv/versions/3.13-dev", host.home / "builds/py313")
    host.link(".pyenv/versions/odd", host.file("notes/diary.txt").parent)
    found = host.discover(root / "shims")
    assert {"builds/py313/bin", "builds/py313/lib/python3.13"} <= host.mounts(found)
    assert not any(mount.startswith("notes") for mount in host.mounts(found))
    assert any("versions/odd" in note for note in found.notes)


def test_an_environment_brings_the_installation_it_was_made_from(host: Host) -> None:
    base = host.python("py/3.12")
    bin_folder = host.environment("envs/a", base) / "bin"
    found = host.discover(bin_folder)
    assert host.mounts(found) == {"envs/a", "py/3.12/bin", "py/3.12/lib/python3.12"}


def test_an_environment_made_by_the_real_venv_module(host: Host) -> None:
    prefix = host.home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    found = host.discover(prefix / "bin", interpreter=prefix / "bin/python")
    base = [] if below(sys.base_prefix, "/usr") else [os.path.realpath(sys.base_prefix)]
    assert [m for m in found.read_only if below(m, str(host.home))] == [str(prefix)]
    for folder in base:
        assert any(below(f"{folder}/bin", mount) for mount in found.read_only)
    assert in_box(found, f"{prefix}/bin/python") == os.path.realpath(sys.executable)


def test_a_project_made_into_an_environment_shows_no_more_than_the_environment(host: Host) -> None:
    host.environment("project", host.python("py/3.12"))
    host.file("project/.env", "TOKEN=1")
    host.file("project/pip.conf")
    found = host.discover(host.home / "project/bin")
    wanted = {"project/bin", "project/lib", "project/pyvenv.cfg"}
    assert {mount for mount in host.mounts(found) if mount.startswith("project")} == wanted
    assert (f"{host.home}/project/lib64", "lib") in found.links


def test_uv_brings_its_managed_pythons_and_their_folder_by_name(host: Host) -> None:
    store = ".local/share/uv/python"
    host.python(f"{store}/cpython-3.12.5-linux-x86_64-gnu")
    host.link(f"{store}/cpython-3.12-linux-x86_64-gnu", "cpython-3.12.5-linux-x86_64-gnu")
    host.link(".local/bin/python3.12", host.home / f"{store}/cpython-3.12-linux-x86_64-gnu/bin/python3.12")
    host.file(".local/share/keyrings/login.keyring")
    without = host.discover(host.home / ".local/bin")
    assert host.mounts(without) == {".local/bin", f"{store}/cpython-3.12.5-linux-x86_64-gnu"}
    assert in_box(without, f"{host.home}/.local/bin/python3.12") == os.path.realpath(
        host.home / ".local/bin/python3.12"
    )
    host.file(".local/bin/uv")
    found = host.discover(host.home / ".local/bin")
    assert host.mounts(found) == {".local/bin", store}
    assert found.environment == {"UV_PYTHON_INSTALL_DIR": f"{host.home}/{store}"}


@pytest.mark.parametrize("store", [".local/share/uv/tools", ".local/share/pipx/venvs", ".local/pipx/venvs"])
def test_a_program_linked_from_an_environment_of_its_own_brings_that_environment(host: Host, store: str) -> None:
    host.environment(f"{store}/black", host.python(".local/share/uv/python/cpython-3.12.5-linux-x86_64-gnu"))
    program = host.file(f"{store}/black/bin/black")
    host.environment(f"{store}/other", host.python("py/3.11"))
    host.link(".local/bin/black", program)
    found = host.discover(host.home / ".local/bin")
    python = ".local/share/uv/python/cpython-3.12.5-linux-x86_64-gnu"
    assert host.mounts(found) == {".local/bin", f"{store}/black", python}


def test_packages_of_pip_user_installs_are_found_from_the_private_home(host: Host) -> None:
    host.file(".local/bin/black")
    host.file(".local/lib/python3.12/site-packages/black.py", mode=0o644)
    host.file(".local/lib/secret/x")
    found = host.discover(host.home / ".local/bin")
    assert host.mounts(found) == {".local/bin", ".local/lib/python3.12"}
    ((path, line),) = found.home_files
    assert path == ".local/lib/python3.12/site-packages/host-user-site.pth"
    assert repr(f"{host.home}/.local/lib/python3.12/site-packages") in line


def test_nvm_brings_one_node_with_its_global_packages(host: Host) -> None:
    prefix = ".nvm/versions/node/v20.11.0"
    host.file(f"{prefix}/bin/node")
    host.file(f"{prefix}/lib/node_modules/npm/bin/npm-cli.js")
    host.link(f"{prefix}/bin/npm", "../lib/node_modules/npm/bin/npm-cli.js")
    token = host.file(f"{prefix}/etc/npmrc", "//registry.example.com/:_authToken=1")
    host.file(".nvm/versions/node/v18.0.0/bin/node")
    host.file(".nvm/nvm.sh")
    found = host.discover(host.home / prefix / "bin")
    assert host.mounts(found) == {prefix}
    assert str(token) in found.covered


def test_an_npm_prefix_brings_its_packages_but_not_what_else_lies_there(host: Host) -> None:
    host.file(".npm-global/lib/node_modules/eslint/bin/eslint.js")
    host.link(".npm-global/bin/eslint", "../lib/node_modules/eslint/bin/eslint.js")
    host.file(".npm-global/cache/x")
    found = host.discover(host.home / ".npm-global/bin")
    assert host.mounts(found) == {".npm-global/bin", ".npm-global/lib/node_modules"}


def test_what_lies_beside_the_homes_own_bin_folder_is_left_alone(host: Host) -> None:
    host.file("bin/x")
    host.file("lib/node_modules/x/index.js")
    host.file("conda-meta/history")
    assert host.mounts(host.discover(host.home / "bin")) == {"bin"}


def test_rustup_brings_toolchains_and_settings_and_leaves_the_registry_token(host: Host) -> None:
    host.file(".cargo/bin/rustup")
    host.link(".cargo/bin/cargo", "rustup")
    for name in ("credentials.toml", "credentials", "config.toml", "registry/index/x"):
        host.file(f".cargo/{name}")
    name = "stable-x86_64-unknown-linux-gnu"
    host.file(f".rustup/toolchains/{name}/bin/cargo")
    host.file(".rustup/settings.toml", f'version = "12"\ndefault_toolchain = "{name}"\n', 0o644)
    host.file(".rustup/tmp/x")
    found = host.discover(host.home / ".cargo/bin", host.home / ".cargo/bin")
    assert host.mounts(found) == {".cargo/bin", ".rustup/toolchains", ".rustup/settings.toml"}
    assert found.environment == {"RUSTUP_HOME": f"{host.home}/.rustup"}
    assert found.path == (f"{host.home}/.cargo/bin",)


def test_the_callers_own_rustup_home_comes_before_the_usual_one(host: Host) -> None:
    host.file(".cargo/bin/rustup")
    host.file(".rustup/toolchains/a/bin/cargo")
    host.file("rust/toolchains/b/bin/cargo")
    found = host.discover(host.home / ".cargo/bin", environment={"RUSTUP_HOME": str(host.home / "rust")})
    assert host.mounts(found) == {".cargo/bin", "rust/toolchains"}
    assert found.environment == {"RUSTUP_HOME": f"{host.home}/rust"}


def test_go_brings_its_root_and_the_folder_of_installed_programs(host: Host) -> None:
    host.file("sdk/go1.22.0/bin/go")
    host.file("sdk/go1.22.0/VERSION")
    host.file("sdk/go1.22.0/src/fmt/print.go")
    host.file("go/bin/gopls")
    host.file("go/src/private/x.go")
    found = host.discover(host.home / "sdk/go1.22.0/bin", host.home / "go/bin")
    assert host.mounts(found) == {"sdk/go1.22.0", "go/bin"}


def test_sdkman_brings_the_current_candidate_and_java_home_passes_when_it_is_seen(host: Host) -> None:
    java = ".sdkman/candidates/java"
    host.file(f"{java}/17.0.2-tem/bin/java")
    host.file(f"{java}/21.0.1-tem/bin/java")
    host.link(f"{java}/current", "17.0.2-tem")
    host.file(".sdkman/etc/config")
    current, other = host.home / java / "current", host.home / java / "21.0.1-tem"
    found = host.discover(current / "bin", environment={"JAVA_HOME": str(current)})
    assert host.mounts(found) == {f"{java}/17.0.2-tem"}
    assert found.path == (f"{current}/bin",)
    assert found.links == ((str(current), "17.0.2-tem"),)
    assert found.environment == {"JAVA_HOME": str(current)}
    assert host.discover(current / "bin", environment={"JAVA_HOME": str(other)}).environment == {}


@pytest.mark.parametrize(
    ("files", "entry", "mounts", "environment"),
    [
        ((".rbenv/libexec/rbenv", ".rbenv/shims/ruby", ".rbenv/versions/3.3.0/bin/ruby", ".rbenv/log/x"),
         ".rbenv/shims", {".rbenv/libexec", ".rbenv/shims", ".rbenv/versions"}, {"RBENV_ROOT": ".rbenv"}),
        ((".volta/bin/node", ".volta/tools/image/node/20.0.0/bin/node", ".volta/log/x"),
         ".volta/bin", {".volta/bin", ".volta/tools"}, {"VOLTA_HOME": ".volta"}),
        ((".asdf/shims/ruby", ".asdf/installs/ruby/3.3.0/bin/ruby", ".asdf/.git/config"),
         ".asdf/shims", {".asdf/shims", ".asdf/installs"}, {"ASDF_DATA_DIR": ".asdf"}),
        ((".asdf/installs/ruby/3.3.0/bin/ruby", ".asdf/installs/ruby/3.2.0/bin/ruby"),
         ".asdf/installs/ruby/3.3.0/bin", {".asdf/installs/ruby/3.3.0"}, {}),
        ((".local/share/mise/shims/node", ".local/share/mise/installs/node/20/bin/node", ".local/share/mise/x/y"),
         ".local/share/mise/shims", {".local/share/mise/shims", ".local/share/mise/installs"},
         {"MISE_DATA_DIR": ".local/share/mise"}),
        ((".local/share/fnm/node-versions/v20/installation/bin/node", ".local/share/fnm/x"),
         ".local/share/fnm/node-versions/v20/installation/bin",
         {".local/share/fnm/node-versions/v20/installation"}, {}),
        (("miniconda3/bin/python", "miniconda3/conda-meta/history"), "miniconda3/bin", {"miniconda3"}, {}),
        ((".linuxbrew/bin/jq", ".linuxbrew/Cellar/jq/1.7/bin/jq", ".linuxbrew/var/postgres/data"),
         ".linuxbrew/bin", {".linuxbrew/bin", ".linuxbrew/Cellar"}, {}),
        ((".config/yarn/global/node_modules/.bin/tsc", ".config/yarn/global/.yarnrc"),
         ".config/yarn/global/node_modules/.bin", {".config/yarn/global/node_modules"}, {}),
        (("jdk-21/bin/java", "jdk-21/release", "jdk-21/lib/modules"), "jdk-21/bin", {"jdk-21"}, {}),
        (("bin/mine",), "bin", {"bin"}, {}),
        ((".foo/bin/foo", ".foo/token"), ".foo/bin", {".foo/bin"}, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_tool_brings_exactly_what_its_row_names(
    host: Host, files: tuple[str, ...], entry: str, mounts: set[str], environment: dict[str, str]
) -> None:
    for name in files:
        host.file(name)
    found = host.discover(host.home / entry)
    assert host.mounts(found) == mounts
    assert found.environment == {name: f"{host.home}/{path}" for name, path in environment.items()}
    assert found.path == (f"{host.home}/{entry}",)


def test_fnms_link_for_each_shell_is_recreated(host: Host) -> None:
    version = host.file(".local/share/fnm/node-versions/v20/installation/bin/node").parent.parent
    host.link(".local/share/fnm/aliases/default", version)
    shell = host.link("shells/4711_1", host.home / ".local/share/fnm/aliases/default")
    found = host.discover(shell / "bin")
    assert host.mounts(found) == {".local/share/fnm/node-versions/v20/installation"}
    assert found.path == (f"{shell}/bin",)
    assert len(found.links) == 2


def test_credentials_in_a_tools_own_folder_are_covered_for_every_version(host: Host) -> None:
    root = host.pyenv()
    kept = host.file(".pyenv/versions/3.12.1/pip.conf", "[global]\nindex-url = https://u:p@pypi.example.com/\n", 0o644)
    host.file("venv/pip.conf", mode=0o644)
    host.environment("venv", root / "versions/3.12.1")
    found = host.discover(root / "shims", host.home / "venv/bin")
    assert {str(kept), f"{host.home}/venv/pip.conf"} <= set(found.covered)
    assert not any(file.endswith("3.11.7/pip.conf") for file in found.covered)


def test_a_link_to_a_program_that_no_row_knows_is_noted_and_not_mounted(host: Host) -> None:
    host.file("src/tool/run.sh")
    host.link(".local/bin/tool", host.home / "src/tool/run.sh")
    found = host.discover(host.home / ".local/bin")
    assert host.mounts(found) == {".local/bin"}
    (note,) = found.notes
    assert "run.sh" in note


def test_a_folder_that_appears_later_is_seen_by_the_next_look_up(host: Host) -> None:
    assert host.discover(host.home / "bin").path == ()
    host.file("bin/x")
    assert host.discover(host.home / "bin").path == (f"{host.home}/bin",)


# The interpreter


def test_the_interpreters_installation_is_mounted_without_being_on_path(host: Host) -> None:
    root = host.pyenv()
    found = host.discover("/usr/bin", interpreter=root / "versions/3.12.1/bin/python3")
    assert host.mounts(found) == {".pyenv/versions/3.12.1"}
    assert found.path == ("/usr/bin",)


def test_an_interpreter_of_the_workspace_works_by_what_it_says_of_itself(host: Host) -> None:
    base = host.pyenv() / "versions/3.12.1"
    environment = host.environment(host.workspace / ".venv", base)
    unnamed = host.discover(interpreter=environment / "bin/python")
    assert unnamed.read_only == ()
    assert any("writable" in note for note in unnamed.notes)
    found = host.discover(interpreter=environment / "bin/python", base_prefix=str(base))
    assert host.mounts(found) == {".pyenv/versions/3.12.1"}


@pytest.mark.parametrize("base_prefix", ["", "home"])
def test_an_interpreter_whose_prefix_is_the_home_is_noted_and_the_home_is_not_mounted(
    host: Host, base_prefix: str
) -> None:
    host.python(".")
    found = host.discover(interpreter=host.home / "bin/python3", base_prefix=str(host.home) if base_prefix else "")
    assert found.read_only == ()
    assert any("prefix" in note for note in found.notes)


def test_an_interpreter_reached_by_a_chain_of_links_gets_the_chain_back(host: Host) -> None:
    host.python("builds/python-3.12.1")
    host.link("builds/python", "python-3.12.1")
    interpreter = host.home / "builds/python/bin/python3"
    found = host.discover(interpreter=interpreter)
    assert in_box(found, str(interpreter)) == os.path.realpath(interpreter)


# What is dropped


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "relative"),
        (".", "relative"),
        ("bin", "relative"),
        ("/nonexistent/bin", "does not exist"),
        ("{home}/file", "not a folder"),
        ("{home}", "home folder"),
        ("{home}/../home", "home folder"),
        ("{home}/to-home", "home folder"),
        ("{home}/..", "home folder"),
        ("/", "home folder"),
        ("/tmp", "one tool|home folder"),
        ("/etc", "one tool"),
        ("/proc/self", "one tool"),
        ("/dev/shm", "one tool"),
        ("{home}/.ssh/bin", "secrets"),
        ("{home}/to-ssh", "secrets"),
        ("{home}/.config", "dot folder"),
        ("{home}/.local/share", "secrets"),
        ("{home}/loop", "loop"),
        ("{ws}/bin", "writable folder"),
        ("{ws}/.venv/bin", "writable folder"),
        ("{home}/to-ws", "writable folder"),
        ("{ws}/../home/bin", "writable folder"),
        ("{ws}/..", "home folder|writable folder"),
        ("{home}/locked", "not readable"),
        ("{home}/shared", "every user can write"),
        ("/usr/bin\0/x", "does not exist"),
    ],
)
def test_a_path_entry_that_must_not_be_followed_is_dropped_and_the_note_says_why(
    host: Host, entry: str, why: str
) -> None:
    for name in ("file", ".ssh/bin/x", ".ssh/id_ed25519", ".config/x", ".local/share/x", "locked/x", "shared/x"):
        host.file(name)
    for name in ("bin/x", ".venv/bin/x"):
        host.file(host.workspace / name)
    (host.home / "locked").chmod(0o710)  # root's box is another user; a user's own group does not count
    os.chmod(host.home / "locked", 0o010 if os.geteuid() else 0o710)
    (host.home / "shared").chmod(0o1777)
    for name, target in (("to-home", host.home), ("to-ssh", ".ssh/bin"), ("to-ws", host.workspace / "bin")):
        host.link(name, target)
    host.link("loop", "loop")
    found = host.discover(entry.format(home=host.home, ws=host.workspace), "/usr/bin")
    os.chmod(host.home / "locked", 0o755)
    assert found.path == ("/usr/bin",)
    assert found.read_only == ()
    (note,) = found.notes
    assert note.startswith("PATH entry ")
    assert any(reason in note for reason in why.split("|"))


def test_the_same_kinds_of_entry_are_kept_where_nothing_is_wrong_with_them(host: Host) -> None:
    for name in ("bin/x", ".config/tool/bin/x", ".local/share/tool/x", "shared/x"):
        host.file(name)
    host.link("to-bin", "bin")
    entries = [host.home / name for name in ("bin", ".config/tool/bin", ".local/share/tool", "shared", "to-bin")]
    found = host.discover(*entries)
    assert found.path == tuple(map(str, entries))
    assert found.notes == ()


def test_an_environment_that_is_the_home_itself_is_dropped(host: Host) -> None:
    host.environment(".", host.python("py/3.12"))
    found = host.discover(host.home / "bin")
    assert found.path == ()
    assert found.read_only == ()
    assert "home folder" in found.notes[0]


def test_a_folder_beside_the_workspace_is_not_widened_over_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.file("conda/conda-meta/history")
    host.file("conda/bin/python")
    host.workspace = host.home / "conda/ws"
    host.workspace.mkdir()
    found = host.discover(host.home / "conda/bin")
    assert found.read_only == ()
    assert "contains a writable folder" in found.notes[0]


def test_a_path_of_thousands_of_entries_is_cut_with_a_note(host: Host) -> None:
    kept = host.file("tools/bin/x").parent
    found = host.discover(kept, *(host.home / f"missing{n}" for n in range(MAX_CALLS)), "/srv", "/usr/bin")
    assert found.path == (str(kept), "/usr/bin")
    assert "too many" in found.notes[-1]
    found = host.discover(kept, *(host.home / f"missing{n}" for n in range(100)), "/usr/bin")
    assert found.path == (str(kept), "/usr/bin")


def test_a_folder_of_hundreds_of_links_leaves_the_later_entries_alone(host: Host) -> None:
    for n in range(MAX_FOLLOWED + 1):
        host.file(f".linuxbrew/Cellar/p{n}/1.0/bin/p{n}")
        host.link(f".linuxbrew/bin/p{n}", f"../Cellar/p{n}/1.0/bin/p{n}")
        host.file(f"src/{n}/x{n}")
        host.link(f"bin/x{n}", host.home / f"src/{n}/x{n}")
    own = host.file("tools/bin/x").parent
    found = host.discover(host.home / ".linuxbrew/bin", host.home / "bin", own)
    assert len(found.path) == 3
    assert any("too many links" in note for note in found.notes)
    assert not any("linuxbrew" in note for note in found.notes)


@pytest.mark.parametrize(
    ("folder", "tool", "prefix"),
    [
        ("/opt/cmake-3.29/bin", "opt", "/opt/cmake-3.29"),
        ("/opt/vendor/tool/usr/bin", "opt", "/opt/vendor"),
        ("/snap/go/10500/bin", "snap", "/snap/go/10500"),
        ("/nix/store/0a-jq-1.7/bin", "nix", "/nix/store"),
        ("/home/linuxbrew/.linuxbrew/sbin", "linuxbrew", "/home/linuxbrew/.linuxbrew"),
        ("/home/u/.pyenv/versions/3.12.1/envs/x/bin", "pyenv", "/home/u/.pyenv/versions/3.12.1"),
        ("/home/u/.pyenv/plugins/pyenv-virtualenv/shims", "pyenv", "/home/u/.pyenv"),
        ("/home/v/.pyenv/versions/3.12.1/bin", "", ""),
        ("/optional/bin", "", ""),
        ("/opt", "", ""),
        ("/nix/storeroom/bin", "", ""),
        ("/home/u/.nvm/versions", "", ""),
    ],
)
def test_the_place_of_a_folder_tells_its_tool(folder: str, tool: str, prefix: str) -> None:
    places = ((row.tool, found) for row in ROWS for found, marked in prefixes(row, folder, "/home/u") if not marked)
    assert next(places, ("", "")) == (tool, prefix)


# What an agent could plant


def plant_environment(host: Host, prefix: Path, base: Path) -> None:
    host.file(prefix / "pyvenv.cfg", f"home = {base}/bin\n", 0o644)
    host.link(prefix / "bin/python", base / "bin/python3")
    host.link(prefix / "bin/home", host.home)
    host.file(prefix / "lib/python3.12/x.py")


def test_an_environment_in_the_workspace_decides_nothing(host: Host) -> None:
    base = host.python("py/3.12")
    planted = host.workspace / ".venv"
    plant_environment(host, planted, base)
    for interpreter in (planted / "bin/python", Path("/usr/bin/python3")):
        assert host.discover(planted / "bin", interpreter=interpreter).read_only == ()
    outside = host.home / "venv"
    plant_environment(host, outside, base)
    assert "py/3.12/bin" in host.mounts(host.discover(outside / "bin"))


@pytest.mark.parametrize("base", [".ssh", ".", "ws", "docs", "js/node_modules/private"])
def test_an_environment_never_brings_a_base_that_is_no_python_installation(host: Host, base: str) -> None:
    host.file(".ssh/bin/python3")
    host.file(".ssh/lib/python3.12/os.py")
    host.file("docs/bin/python3")
    host.file("js/node_modules/private/bin/python3.9")  # the planted link dangles: the settings file alone names it
    host.python(host.workspace / "py")
    target = host.workspace / "py" if base == "ws" else host.home / base
    plant_environment(host, host.home / "venv", target)
    found = host.discover(host.home / "venv/bin", interpreter=host.home / "venv/bin/python")
    assert host.mounts(found) == {"venv"}


def test_links_planted_in_the_workspace_lead_nowhere(host: Host) -> None:
    host.python("py/3.12")
    host.link(host.workspace / "tools", host.home / "py")
    host.link("tools", host.workspace / "tools")
    found = host.discover(host.home / "tools/3.12/bin", interpreter=host.home / "tools/3.12/bin/python3")
    assert found.read_only == ()
    (host.home / "tools").unlink()
    host.link("tools", host.home / "py")
    assert "py/3.12/bin" in host.mounts(host.discover(host.home / "tools/3.12/bin"))


def test_nothing_is_run_and_a_pipe_in_place_of_a_settings_file_blocks_nothing(host: Host) -> None:
    ran = host.home / "ran"
    for name in (
        ".cargo/bin/rustup",
        ".cargo/bin/uv",
        ".pyenv/libexec/pyenv",
        ".pyenv/shims/python3",
        "venv/bin/python",
    ):
        host.file(name, f"#!/bin/sh\necho >{ran}\n")
    os.mkfifo(host.home / "venv/pyvenv.cfg")
    host.discover(
        host.home / ".cargo/bin",
        host.home / ".pyenv/shims",
        host.home / "venv/bin",
        interpreter=host.home / "venv/bin/python",
    )
    assert not ran.exists()
    subprocess.run([host.home / ".cargo/bin/rustup"], check=True)
    assert ran.exists()


# A home behind a link


def test_a_home_behind_a_link_keeps_its_name_inside(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.home.rename(tmp_path / "disk")
    host.home.symlink_to("disk")
    host.file(".cargo/bin/rustup")
    host.file(".rustup/toolchains/a/bin/cargo")
    host.file("dots/foo/bin/x")
    host.link(".foo", "dots/foo")
    found = host.discover(host.home / ".cargo/bin", host.home / ".foo/bin")
    assert set(found.read_only) == {
        f"{tmp_path}/disk/{n}" for n in (".cargo/bin", ".rustup/toolchains", "dots/foo/bin")
    }
    assert found.path == (f"{host.home}/.cargo/bin", f"{host.home}/.foo/bin")
    assert not any(link == str(host.home) for link, _ in found.links)


def test_a_home_that_is_not_absolute_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute"):
        discover(path="/usr/bin", home="", interpreter="/usr/bin/python3", writable=[])


# Whatever PATH is made of

NAMES = ("bin", "lib", "python3.12", ".pyenv", "versions", "shims", "node_modules", ".ssh", ".local", "opt", "a")
FOLDERS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
ROOTS = st.sampled_from(("home", "ws", "home/ws2", "other", "."))
MARKS = st.sampled_from(("pyvenv.cfg", "conda-meta", "uv", "rustup", "VERSION", "go", "pip.conf"))


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]], list[tuple[str, str]], list[str]]:
    folders = [f"{draw(ROOTS)}/{folder}" for folder in draw(st.lists(FOLDERS, min_size=1, max_size=8))]
    anywhere = st.sampled_from([*folders, "home", "ws", "home/ws2", ".", "home/.ssh"])
    marks = [(draw(anywhere), mark) for mark in draw(st.lists(MARKS, max_size=6))]
    links = [
        (f"{draw(anywhere)}/{draw(st.sampled_from(NAMES))}", draw(anywhere)) for _ in range(draw(st.integers(0, 5)))
    ]
    deeper = st.builds(lambda a, b: f"{a}/{b}", anywhere, st.sampled_from((*NAMES, "..")))
    return folders, marks, links, draw(st.lists(anywhere | deeper, min_size=1, max_size=8))


@settings(max_examples=150, deadline=None)
@given(tree=trees(), interpreter=st.integers(0, 7))
def test_no_path_whatever_mounts_the_home_the_root_or_what_a_box_can_write(
    tree: tuple[list[str], list[tuple[str, str]], list[tuple[str, str]], list[str]], interpreter: int
) -> None:
    folders, marks, links, entries = tree
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        host = Host(root)
        for folder in ("home/ws2", "other", "home/.ssh", *folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for folder, mark in marks:
            if (root / folder).is_dir() and not (root / folder / mark).exists():
                (root / folder / mark).write_text(f"home = {root / entries[0]}\n")
        attempt(lambda link, target: (root / link).symlink_to(root / target), links)
        found = discover(
            path=":".join(str(root / entry) for entry in entries),
            home=str(host.home),
            interpreter=str(root / entries[interpreter % len(entries)] / "python"),
            writable=[str(host.workspace), str(host.home / "ws2")],
        )
        host.check(found)
        for mount in found.read_only:
            for writable in (os.path.realpath(host.workspace), str(host.home / "ws2")):
                assert not below(mount, writable)
                assert not below(writable, mount)
            assert mount not in ("/", str(root))


def attempt(act: Callable[[str, str], object], arguments: list[tuple[str, str]]) -> None:
    for one, two in arguments:
        try:
            act(one, two)
        except FileExistsError:
            pass
