"""What a box must see of the caller's tools: each tool laid out as its installer does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from confine.toolchain_host import Host, below, in_box

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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
    assert in_box(without, f"{host.home}/.local/bin/python3.12") == os.path.realpath(host.home / ".local/bin/python3.12")
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
def test_an_interpreter_whose_prefix_is_the_home_is_noted_and_the_home_is_not_mounted(host: Host, base_prefix: str) -> None:
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
