"""A real build or use of each tool in a box, with the tool in a home as its own installer leaves it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ringfence import Result, Sandbox, SandboxConfig
from toolchains import layouts

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # What is built does not depend on the loop.


@dataclass(frozen=True)
class Build:
    """What a user does with a tool: `command` is a shell line in a workspace of `files`; it prints `output`."""

    layout: Callable[[Path], list[Path]]
    program: str
    command: str
    output: str
    files: dict[str, str] = field(default_factory=dict)


GREETING = {"greeting/__init__.py": "print('built')\n", "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n'}

BUILDS = {
    "pyenv": Build(
        layouts.pyenv,
        "python3",
        "python3 -m venv --without-pip env && env/bin/python -c 'import ssl, sqlite3, greeting'",
        "built",
        GREETING,
    ),
    "venv": Build(layouts.environment, "python", "greet && python -c 'import greeting; greeting.main()'", "hello"),
    "uv": Build(layouts.uv, "uv", "uv run --offline python -c 'import greeting'", "built", GREETING),
    "uv-python": Build(
        layouts.uv,
        "uv",
        "uv run --no-project --offline python -c 'import sys; print(sys.base_prefix)'",
        "share/uv/python",
    ),
    "nvm": Build(
        layouts.nvm,
        "node",
        "npm run --silent build && npm --version >/dev/null",
        "built",
        {
            "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"build": "node build.js"}}',
            "build.js": "const fs = require('fs');\n"
            "fs.writeFileSync('out', 'built'); console.log(String(fs.readFileSync('out')));\n",
        },
    ),
    "cargo": Build(
        layouts.rustup,
        "cargo",
        "cargo build --quiet && target/debug/hello && rustc --version >/dev/null",
        "built",
        {
            "Cargo.toml": '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/main.rs": 'fn main() { println!("built") }\n',
        },
    ),
    "go": Build(
        layouts.go,
        "go",
        "go build -o hello . && ./hello",
        "built",
        {"go.mod": "module x\n", "main.go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("built") }\n'},
    ),
    "java": Build(
        layouts.sdkman,
        "javac",
        'javac Hello.java && java Hello && [ -x "$JAVA_HOME/bin/java" ]',
        "built",
        {"Hello.java": 'class Hello { public static void main(String[] a) { System.out.println("built"); } }\n'},
    ),
    "gcc": Build(
        lambda home: [Path(layouts.program("gcc", "gcc")).parent],
        "gcc",
        "gcc -O2 -o hello hello.c && ./hello",
        "built",
        {"hello.c": '#include <stdio.h>\n\nint main(void) { puts("built"); return 0; }\n'},
    ),
}


class Place:
    """A throw-away home as HOME, a workspace, and PATH as the user's shell would have it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.workspace, self._monkeypatch = root / "home", root / "workspace", monkeypatch
        self.home.mkdir()
        self.workspace.mkdir()

    def install(self, layout: Callable[[Path], list[Path]]) -> list[Path]:
        try:
            entries = layout(self.home)
        except layouts.MissingTool as missing:
            pytest.skip(str(missing))
        self.set_path(*entries)
        if layout is layouts.sdkman:
            self._monkeypatch.setenv("JAVA_HOME", str(entries[0].parent))
        return entries

    def set_path(self, *entries: Path) -> None:
        """From here on the caller is the throw-away home's user; what copies the machine's tools comes before."""
        for name in ("PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "CARGO_HOME", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV"):
            self._monkeypatch.delenv(name, raising=False)
        self._monkeypatch.setenv("HOME", str(self.home))
        self._monkeypatch.setenv("PATH", ":".join((*map(str, entries), SYSTEM_PATH)))

    async def run(self, command: str) -> Result:
        async with Sandbox(SandboxConfig(tier="namespaces", workspace=self.workspace)) as box:
            return await box.run(["sh", "-ec", command], timeout=100)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.live("namespaces", name)) for name in BUILDS])
async def test_a_tool_from_a_home_builds_in_a_box(place: Place, name: str) -> None:
    build = BUILDS[name]
    entries = place.install(build.layout)
    for file, text in build.files.items():
        layouts.write(place.workspace / file, text, 0o644)
    result = await place.run(f"command -v {build.program} && {build.command}")
    assert result.exit_code == 0, result.stdout + result.stderr
    found, *lines = result.stdout.splitlines()
    assert Path(found).parent in entries
    assert any(build.output in line for line in lines)


@pytest.mark.live("namespaces")
async def test_a_token_beside_a_tool_is_absent_and_one_inside_a_tools_folder_is_covered(place: Place) -> None:
    prefix = place.install(layouts.environment)[0].parent
    token = layouts.write(place.home / ".cargo/credentials.toml", "planted-token\n", 0o644)
    for file in (token, prefix / "pip.conf"):
        assert "planted" in subprocess.run(["cat", file], capture_output=True, text=True, check=True).stdout
    result = await place.run(f"cat {token} || true; cat {prefix}/pip.conf || true; ls -a {place.home}; cat {prefix}/pyvenv.cfg")
    assert "planted" not in result.stdout + result.stderr
    assert f"{token}: No such file or directory" in result.stderr
    assert f"{prefix}/pip.conf: Permission denied" in result.stderr
    assert "home = " in result.stdout


@pytest.mark.live("namespaces")
async def test_a_tools_folder_cannot_be_written_from_a_box(place: Place) -> None:
    prefix = place.install(layouts.environment)[0].parent
    planted = prefix / "bin/git"
    result = await place.run(f"touch {planted}")
    assert result.exit_code != 0
    assert "Read-only file system" in result.stderr
    assert not planted.exists()
    subprocess.run(["touch", planted], check=True)
    assert planted.exists()


@pytest.mark.live("namespaces")
async def test_an_environment_of_the_workspace_cannot_point_the_next_box_at_the_home(place: Place) -> None:
    base = place.install(layouts.environment)[0]
    secret = layouts.write(place.home / ".ssh/id_ed25519", "planted-key\n", 0o644)
    planted = place.workspace / ".venv"
    layouts.write(planted / "pyvenv.cfg", f"home = {place.home}/.ssh\n", 0o644)
    (planted / "bin").mkdir()
    (planted / "bin/python").symlink_to(base / "python")
    (planted / "bin/keys").symlink_to(secret.parent)
    place.set_path(planted / "bin", base)
    result = await place.run(f"cat {planted}/bin/keys/id_ed25519 {secret} || true; echo $PATH; greet")
    assert "planted-key" not in result.stdout + result.stderr
    assert str(planted) not in result.stdout
    assert "hello from greeting" in result.stdout
    assert (planted / "bin/keys/id_ed25519").read_text() == "planted-key\n"


@pytest.mark.live("namespaces")
async def test_a_program_of_pip_user_finds_its_packages_and_the_box_may_add_its_own(place: Place) -> None:
    place.set_path(place.home / ".local/bin")
    base, version, _ = layouts.movable_python()
    site = place.home / f".local/lib/python{version}/site-packages"
    layouts.write(site / "greeting.py", "def main():\n    print('hello from user site')\n", 0o644)
    python = base / f"bin/python{version}"
    layouts.write(place.home / ".local/bin/greet", f"#!{python}\nfrom greeting import main\nmain()\n")
    result = await place.run(f"greet; {python} -c 'import site, os; print(os.access(site.getusersitepackages(), os.W_OK))'")
    assert result.stdout.split("\n") == ["hello from user site", "True", ""], result.stderr
