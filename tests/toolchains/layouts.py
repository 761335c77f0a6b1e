"""Real tools in a throw-away home, each laid out as its own installer does it.

A function takes the home and returns the PATH entries that the installer adds to the user's shell. The programs are the
machine's own, copied; where it has none, or no package index to get one from, MissingTool says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


class MissingTool(Exception):
    """The machine does not have the tool; the message says how to get it."""


def copy(source: str | Path, target: str | Path) -> None:
    """Copy a file or folder with its links; without the bytes where the file system can share them."""

    def file(one: str, two: str) -> None:
        try:
            os.link(one, two, follow_symlinks=False)
        except OSError:
            shutil.copy2(one, two, follow_symlinks=False)

    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(source):
        skip = shutil.ignore_patterns("test", "tests", "__pycache__", "site-packages", "dist-packages", "config-*")
        shutil.copytree(source, target, symlinks=True, ignore=skip, copy_function=file, dirs_exist_ok=True)
    else:
        file(os.path.realpath(source), str(target))


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MissingTool(f"{name} is not on PATH: install {package}")
    return found


def write(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@cache
def movable_python() -> tuple[Path, str, str]:
    """Prefix, version and full version of a Python that can be copied: it loads no library from its present prefix."""
    ask = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2], '%d.%d.%d' % sys.version_info[:3])\n"
    ask += "print(*(line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line))"
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable):
        try:
            answer = subprocess.run([candidate, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        (prefix, version, full), libraries = answer.splitlines()[0].split(), answer.splitlines()[1].split()
        if all(library.startswith("/usr/") for library in libraries):
            return Path(os.path.realpath(prefix)), version, full
    raise MissingTool("no Python here can be copied to another prefix: install python3")


def python(prefix: Path) -> Path:
    """A Python installation at `prefix`."""
    base, version, _ = movable_python()
    copy(base / f"bin/python{version}", prefix / f"bin/python{version}")
    for name in ("python3", "python"):
        (prefix / f"bin/{name}").symlink_to(f"python{version}")
    copy(base / f"lib/python{version}", prefix / f"lib/python{version}")
    return prefix


def pyenv(home: Path) -> list[Path]:
    """`git clone pyenv ~/.pyenv; pyenv install; pyenv global; pyenv rehash`, with the machine's pyenv if it has one."""
    root = home / ".pyenv"
    _, version, full = movable_python()
    own = Path(os.path.realpath(shutil.which("pyenv") or "/nonexistent/libexec/pyenv")).parent
    if own.name == "libexec" and os.access(own, os.R_OK):
        for name in ("libexec", "pyenv.d"):
            copy(own.parent / name, root / name)
    else:  # The part of it that a shim uses.
        write(
            root / "libexec/pyenv",
            '#!/usr/bin/env bash\n[ "$1" = exec ] || exit 2\nread -r version <"$PYENV_ROOT/version"\nshift\n'
            'exec "$PYENV_ROOT/versions/$version/bin/$1" "${@:2}"\n',
        )
    (root / "bin").mkdir()
    (root / "bin/pyenv").symlink_to("../libexec/pyenv")
    python(root / "versions" / full)
    write(root / "version", f"{full}\n", 0o644)
    shim = f'#!/usr/bin/env bash\nset -e\nexport PYENV_ROOT="{root}"\nexec "{root}/bin/pyenv" exec "${{0##*/}}" "$@"\n'
    for name in ("python", "python3", f"python{version}"):
        write(root / "shims" / name, shim)
    return [root / "shims", root / "bin"]


def environment(home: Path) -> list[Path]:
    """`python -m venv ~/envs/tools` made from an installation in the home, with one package and one program."""
    _, version, full = movable_python()
    base = python(home / "python" / full)
    prefix = home / "envs/tools"
    subprocess.run([base / "bin/python3", "-m", "venv", "--without-pip", prefix], check=True)
    write(
        prefix / f"lib/python{version}/site-packages/greeting.py",
        "def main():\n    print('hello from greeting')\n",
        0o644,
    )
    write(prefix / "bin/greet", f"#!{prefix}/bin/python\nfrom greeting import main\nmain()\n")
    write(prefix / "pip.conf", "[global]\nindex-url = https://user:planted-password@pypi.example.com/simple\n", 0o644)
    return [prefix / "bin"]


def uv(home: Path) -> list[Path]:
    """uv's installer (~/.local/bin/uv) and `uv python install`: a managed Python and its links."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, "uv"]
        if subprocess.run(command, check=False).returncode:
            raise MissingTool("uv could not be installed with pip: a package index must be reachable")
        copy(Path(folder) / "bin/uv", home / ".local/bin/uv")
    _, version, full = movable_python()
    store = home / ".local/share/uv/python"
    name = f"cpython-{full}-linux-{os.uname().machine}-gnu"
    python(store / name)
    minor = store / f"cpython-{version}-linux-{os.uname().machine}-gnu"
    minor.symlink_to(name)
    (home / f".local/bin/python{version}").symlink_to(minor / f"bin/python{version}")
    return [home / ".local/bin"]


def nvm(home: Path) -> list[Path]:
    """`nvm install 20`: node, and npm as one of its global packages."""
    node, npm = program("node", "nodejs"), os.path.realpath(program("npm", "npm"))
    prefix = home / ".nvm/versions/node/v20.0.0"
    copy(node, prefix / "bin/node")
    package = Path(npm).parent.parent
    shutil.copytree(package, prefix / "lib/node_modules/npm", symlinks=False)
    (prefix / "bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    write(home / ".nvm/nvm.sh", "# loaded by the user's shell\n", 0o644)
    return [prefix / "bin"]


def rustup(home: Path) -> list[Path]:
    """rustup-init with the minimal profile: proxies in ~/.cargo/bin, one toolchain, settings; and a registry token."""
    own = Path(os.path.realpath(program("rustup", "rustup")))
    asked = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise MissingTool(f"rustup has no default toolchain: {asked.stderr.strip()}")
    source = Path(asked.stdout.strip())
    target = home / ".rustup/toolchains" / source.name
    copy(own, home / ".cargo/bin/rustup")
    for name in ("cargo", "rustc"):
        (home / ".cargo/bin" / name).symlink_to("rustup")
        copy(source / "bin" / name, target / "bin" / name)
    (home / ".rustup/update-hashes").mkdir()
    for library in source.glob("lib/*.so*"):
        copy(library, target / "lib" / library.name)
    copy(source / "lib/rustlib", target / "lib/rustlib")
    write(
        home / ".rustup/settings.toml",
        f'version = "12"\ndefault_toolchain = "{source.name}"\nprofile = "minimal"\n',
        0o644,
    )
    write(home / ".cargo/credentials.toml", '[registry]\ntoken = "planted-token"\n', 0o600)
    return [home / ".cargo/bin"]


def go(home: Path) -> list[Path]:
    """`go install golang.org/dl/go1.x@latest; go1.x download`: a whole tree in ~/sdk; and ~/go/bin."""
    own = shutil.which("go")
    with tempfile.TemporaryDirectory() as folder:
        if own:
            root = subprocess.run([own, "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
        else:
            root = _go_from_packages(Path(folder))
        target = home / f"sdk/go{Path(root, 'VERSION').read_text().split()[0].removeprefix('go')}"
        for name in ("bin", "pkg", "src", "VERSION", "go.env"):
            if os.path.exists(f"{root}/{name}"):
                copy(os.path.realpath(f"{root}/{name}"), target / name)
        for name in os.listdir(f"{root}/pkg"):  # Debian has links here.
            if os.path.islink(f"{target}/pkg/{name}"):
                os.unlink(f"{target}/pkg/{name}")
                copy(os.path.realpath(f"{root}/pkg/{name}"), target / "pkg" / name)
    (home / "go/bin").mkdir(parents=True)
    return [target / "bin", home / "go/bin"]


def _go_from_packages(folder: Path) -> str:
    """Debian's packages, unpacked and not installed."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise MissingTool("go is not on PATH: install it")
    names = subprocess.run(["apt-cache", "depends", "golang-go"], capture_output=True, text=True, check=False).stdout
    found = [word for word in names.split() if word.startswith("golang-1") and word.endswith(("-go", "-src"))]
    packages = [*found, *(name.removesuffix("-go") + "-src" for name in found if name.endswith("-go"))]
    got = subprocess.run(["apt-get", "download", *dict.fromkeys(packages)], cwd=folder, capture_output=True, check=False)
    files = list(folder.glob("*.deb"))
    if got.returncode or not files:
        raise MissingTool("go is not on PATH and apt-get cannot download it: install golang-go")
    unneeded = [f"--exclude=./usr/{name}" for name in ("share/doc", "share/go-*/test", "share/go-*/api", "lib/go-*/pkg/*_race")]
    for file in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as unpacked:
            subprocess.run(["tar", "-x", "-C", folder, *unneeded], stdin=unpacked.stdout, check=True)
    return str(next(folder.glob("usr/lib/go-*")))


def sdkman(home: Path) -> list[Path]:
    """`sdk install java local /path/to/jdk; sdk default java local`: links, and `current` to the chosen one."""
    jdk = Path(os.path.realpath(program("javac", "a JDK"))).parent.parent
    candidates = home / ".sdkman/candidates/java"
    candidates.mkdir(parents=True)
    (candidates / "local").symlink_to(jdk)
    (candidates / "current").symlink_to("local")
    return [candidates / "current/bin"]
