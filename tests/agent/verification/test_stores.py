"""A project whose dependencies the caller has fetched is built in the box as outside, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import Verification

pytestmark = pytest.mark.live("namespaces", "process")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # what a compiler finds does not depend on the loop


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def ran(*argv: str, cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A home for a store; go makes its folders read-only."""
    yield tmp_path / "store"
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


async def verified(workspace: Path, good: dict[str, str], bad: dict[str, str]) -> None:
    write(workspace, good)
    for gate in (Verification.sandboxed(), Verification.no_sandbox()):
        verdict = await gate.verify(workspace)
        assert verdict.passed, verdict.for_model()
        verdict = await gate.verify(workspace, files=bad)
        assert verdict.failed, verdict.for_model()


@pytest.mark.live("cargo")
async def test_cargo_finds_the_crates_of_the_caller(
    workspace: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on this caller's PATH: .ci/run installs it for those who have none")
    one = {
        "Cargo.toml": '[package]\nname = "one"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "pub const ONE: i32 = 1;\n",
    }
    crate = write(tmp_path / "one", one)
    ran("git", "init", "-q", cwd=crate)
    ran("git", "add", ".", cwd=crate)
    ran("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x", cwd=crate)
    monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup"))
    monkeypatch.setenv("CARGO_HOME", str(store))
    manifest = (
        f'[package]\nname = "two"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\none = {{ git = "file://{crate}" }}\n'
    )
    good = {"Cargo.toml": manifest, "src/lib.rs": "#[test]\nfn one() {\n    assert_eq!(one::ONE, 1);\n}\n"}
    ran("cargo", "fetch", cwd=write(workspace, good))
    await verified(workspace, good, {"src/lib.rs": good["src/lib.rs"].replace(", 1", ", 2")})


@pytest.mark.live("go")
async def test_go_finds_the_modules_of_the_caller(
    workspace: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = write(
        tmp_path / "proxy/example.org/one/@v",
        {"list": "v1.0.0\n", "v1.0.0.info": '{"Version": "v1.0.0"}', "v1.0.0.mod": "module example.org/one\n"},
    )
    with zipfile.ZipFile(proxy / "v1.0.0.zip", "w") as packed:
        packed.writestr("example.org/one@v1.0.0/go.mod", "module example.org/one\n")
        packed.writestr("example.org/one@v1.0.0/one.go", "package one\n\nconst One = 1\n")
    monkeypatch.setenv("GOMODCACHE", str(store))
    monkeypatch.setenv("GOFLAGS", "-modcacherw")
    monkeypatch.setenv("GONOSUMDB", "*")
    monkeypatch.setenv("GOPROXY", f"file://{tmp_path}/proxy")
    test = 'package two\n\nimport (\n\t"testing"\n\n\t"example.org/one"\n)\n\n'
    test += "func TestOne(t *testing.T) {\n\tif one.One != 1 {\n\t\tt.Fatal()\n\t}\n}\n"
    good = {
        "go.mod": "module example.org/two\n\ngo 1.18\n\nrequire example.org/one v1.0.0\n",
        "two_test.go": test,
        "two.go": "package two\n",
    }
    ran("go", "mod", "tidy", cwd=write(workspace, good))
    await verified(workspace, {"two.go": "package two\n"}, {"two_test.go": test.replace("!= 1", "!= 2")})
