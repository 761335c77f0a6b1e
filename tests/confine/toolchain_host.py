"""A throw-away home with tools laid out in it, and what holds for whatever is found there."""

from __future__ import annotations

import os
from pathlib import Path

from ringfence.confine.toolchains import Toolchains, discover


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
        self.file(self.home / prefix / "pyvenv.cfg", f"home = {base}/bin\ninclude-system-site-packages = false\n", 0o644)
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

    def discover(self, *entries: str | Path, interpreter: str | Path = "/usr/bin/python3", **options: object) -> Toolchains:
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
