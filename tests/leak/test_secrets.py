"""Secrets of the caller are absent outside what a box shares with the host, and covered inside. Each beside its control."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ringfence import errors
from ringfence.outcome import Level
from ringfence.policy.secrets import ANYWHERE, IN_HOME
from ringfence.sync import Sandbox, SandboxConfig

PYTHON = "/usr/bin/python3"
SECRET = "s3cr3t-of-the-host"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the caller that holds something in every place of the built-in list."""
    folder = tmp_path / "home"
    for name in IN_HOME:
        if not any(name.startswith(other + "/") for other in IN_HOME):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(SECRET)
    (folder / "plain").write_text("plain")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def readable(box: Sandbox, root: Path) -> list[str]:
    """Which files below root a program in the box can read."""
    code = (
        "import os, sys\n"
        "for folder, _, names in os.walk(sys.argv[1]):\n"
        "    for name in names:\n"
        "        try: open(os.path.join(folder, name)).read()\n"
        "        except OSError: continue\n"
        "        print(os.path.relpath(os.path.join(folder, name), sys.argv[1]))"
    )
    result = box.run([PYTHON, "-c", code, str(root)])
    assert result.ok, result.stderr
    return sorted(result.stdout.splitlines())


def test_nothing_of_the_home_is_in_a_box_over_a_project_of_it(home: Path) -> None:
    project = home / "project"
    project.mkdir()
    (project / "file").write_text("x")
    with Sandbox(SandboxConfig(workspace=project)) as box:
        assert readable(box, home) == ["project/file"]
    with Sandbox(SandboxConfig(workspace=project, tier="process")) as box:
        assert len(readable(box, home)) > len(IN_HOME) / 2


def test_the_built_in_places_are_covered_where_the_home_itself_is_shared(home: Path, workspace: Path) -> None:
    with Sandbox(SandboxConfig(workspace=workspace, read_only=[home])) as box:
        assert readable(box, home) == ["plain"]
        assert box.enforcement.secrets.level is Level.FULL
        assert "covered inside" in box.enforcement.secrets.note
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        assert len(readable(box, home)) > 100
        assert box.enforcement.secrets.level is Level.NONE


def test_names_of_secrets_are_covered_wherever_they_lie_in_a_project(workspace: Path) -> None:
    ordinary = [
        ".env",
        ".npmrc",
        "pip.conf",
        "settings.xml",
        "gradle.properties",
        "config.json",
        "credentials",
        "id_rsa.pub",
        "server.key",
    ]
    for place in ("", "deep/er"):
        for name in (*ANYWHERE, *ordinary):
            path = workspace / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(SECRET)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert readable(box, workspace) == sorted([*ordinary, *(f"deep/er/{name}" for name in ordinary)])
    with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
        assert len(readable(box, workspace)) == 2 * len({*ANYWHERE, *ordinary})


@pytest.mark.parametrize("field", ["read_only", "writable", "workspace"])
def test_a_folder_that_is_a_secret_cannot_be_asked_for(home: Path, tmp_path: Path, field: str) -> None:
    (home / "safe").mkdir()
    (home / ".config/gcloud").unlink()
    (home / ".config/gcloud").mkdir()
    for place in (home / ".config/gcloud", tmp_path / "work"):
        place.mkdir(exist_ok=True)
        deny = [str(tmp_path / "w*")]
        value = place if field == "workspace" else [place]
        with pytest.raises(errors.ConfigError, match=f"{field} names .*must not be read"):
            Sandbox(SandboxConfig(**{field: value}, deny=deny)).__enter__()  # type: ignore[arg-type]
    value = home / "safe" if field == "workspace" else [home / "safe"]
    with Sandbox(SandboxConfig(**{field: value}, deny=deny)) as box:  # type: ignore[arg-type]
        assert box.run(["/bin/true"]).ok


def test_a_place_of_the_home_that_links_into_the_workspace_is_covered_there(home: Path, workspace: Path) -> None:
    (workspace / "dot" / "ssh").mkdir(parents=True)
    (workspace / "dot" / "ssh" / "key").write_text(SECRET)
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert readable(box, workspace) == ["dot/ssh/key"]
    (home / ".ssh").unlink()
    (home / ".ssh").symlink_to(workspace / "dot" / "ssh")
    with Sandbox(SandboxConfig(workspace=workspace, environment={"now": "1"})) as box:
        assert readable(box, workspace) == []


def test_a_place_of_the_home_that_links_to_the_workspace_itself_is_a_contradiction(home: Path, workspace: Path) -> None:
    (home / ".gnupg").unlink()
    (home / ".gnupg").symlink_to(workspace)
    with pytest.raises(errors.ConfigError, match=r"must not be read \(built in: ~/.gnupg\)"):
        Sandbox(SandboxConfig(workspace=workspace)).__enter__()


def test_a_home_in_a_pattern_is_the_callers_and_other_relative_ones_are_of_the_workspace(home: Path, workspace: Path) -> None:
    for folder in (home, workspace):
        (folder / "secrets").mkdir()
        (folder / "secrets" / "x").write_text(SECRET)
    for deny, expected in (
        (["~/secrets"], ["w/secrets/x"]),
        (["secrets"], ["h/secrets/x"]),
        (["./secrets/"], ["h/secrets/x"]),
        (["~/s*/x", "s*/x"], []),
        (["/secrets"], ["h/secrets/x", "w/secrets/x"]),
    ):
        with Sandbox(SandboxConfig(workspace=workspace, read_only=[home / "secrets"], deny=[])) as box:
            assert box.run(["/bin/true"]).ok  # the control of the next line
        with Sandbox(SandboxConfig(workspace=workspace, read_only=[home], deny=deny)) as box:
            seen = [f"h/{name}" for name in readable(box, home) if name != "plain"]
            assert seen + [f"w/{name}" for name in readable(box, workspace)] == expected, deny


def test_a_variable_that_names_a_folder_above_the_workspace_is_a_note(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(workspace.parent))
    (workspace / "file").write_text("x")
    with Sandbox(SandboxConfig(workspace=workspace)) as box:
        assert readable(box, workspace) == ["file"]
        assert any("$CODEX_HOME" in note for note in box.run(["/bin/true"]).notes)


def test_what_the_callers_variables_name_is_covered(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "kube.yaml").write_text(SECRET)
    (workspace / "other.yaml").write_text("plain")
    agent = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(workspace)  # a path of a socket has 107 bytes at most
    agent.bind("agent.sock")
    agent.listen()
    act = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('agent.sock'); print('connected')"
    with agent:
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            assert readable(box, workspace) == ["kube.yaml", "other.yaml"]
            assert box.run([PYTHON, "-c", act]).stdout == "connected\n"
        monkeypatch.setenv("KUBECONFIG", f"/missing:{workspace}/kube.yaml")
        monkeypatch.setenv("SSH_AUTH_SOCK", f"{workspace}/agent.sock")
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            assert readable(box, workspace) == ["other.yaml"]
            result = box.run([PYTHON, "-c", act])
            assert "PermissionError" in result.stderr or "ConnectionRefusedError" in result.stderr
            assert box.run(["/bin/sh", "-c", 'echo "$SSH_AUTH_SOCK$KUBECONFIG"']).stdout == "\n"


def test_an_agent_outside_is_neither_announced_nor_there(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSH_AUTH_SOCK", f"{tmp_path}/agent.sock")
    act = f"import os, socket; os.chdir({str(tmp_path)!r}); socket.socket(socket.AF_UNIX).connect('agent.sock'); print('connected')"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind("agent.sock")
        agent.listen()
        with Sandbox(SandboxConfig(workspace=workspace)) as box:
            assert "FileNotFoundError" in box.run([PYTHON, "-c", act]).stderr
            assert "SSH_AUTH_SOCK" not in box.run(["/usr/bin/env"]).stdout
        with Sandbox(SandboxConfig(workspace=workspace, tier="process")) as box:
            assert box.run([PYTHON, "-c", act]).stdout == "connected\n"


@pytest.mark.parametrize(
    ("name", "deny"), [("docker.sock", ()), ("S.gpg-agent.ssh", ()), ("app.sock", ("**/*.sock",)), ("app.sock", ())]
)
def test_a_socket_of_the_host_in_the_workspace_is_covered_by_its_name_or_a_pattern(
    workspace: Path, name: str, deny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    act = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('connected')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        (workspace / name).chmod(0o777)
        server.listen()
        with Sandbox(SandboxConfig(workspace=workspace, deny=list(deny))) as box:
            result = box.run([PYTHON, "-c", act])
        if name == "app.sock" and not deny:  # the control, and what is said not to be promised
            assert result.stdout == "connected\n"
        else:
            assert "PermissionError" in result.stderr or "ConnectionRefusedError" in result.stderr


def test_a_pattern_for_any_folder_holds_in_the_other_shared_folders(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for folder in (workspace, other):
        (folder / "a").mkdir(parents=True)
        (folder / "a" / ".env").write_text(SECRET)
    for deny, expected in ((["**/.env"], []), (["a/.env"], ["a/.env"]), ([f"{tmp_path}/oth[e]r/**"], [])):
        with Sandbox(SandboxConfig(workspace=workspace, read_only=[other], deny=deny)) as box:
            assert readable(box, other) == expected
    with Sandbox(SandboxConfig(workspace=workspace, read_only=[other])) as box:
        assert readable(box, other) == ["a/.env"]


def test_thousands_of_denied_paths_and_matches_are_covered(workspace: Path) -> None:
    for number in range(60):
        (workspace / f"d{number}").mkdir()
        for at in range(50):
            (workspace / f"d{number}" / f"s{at}.secret").write_text(SECRET)
            (workspace / f"d{number}" / f"s{at}.plain").write_text("x")
    deny = [*(str(workspace / f"{number:0>120}") for number in range(5000)), "**/*.secret"]
    with Sandbox(SandboxConfig(workspace=workspace, deny=deny)) as box:
        seen = readable(box, workspace)
        assert len(seen) == 3000
        assert all(name.endswith(".plain") for name in seen)
        assert len(box.run(["/bin/true"]).notes) < 100


def test_a_workspace_that_is_too_large_to_be_looked_through_is_refused(workspace: Path) -> None:
    for number in range(30):
        (workspace / f"f{number}").write_text("")
    with pytest.raises(errors.WorkspaceError, match="walk_entries"):
        Sandbox(SandboxConfig(workspace=workspace, walk_entries=29)).__enter__()
    with Sandbox(SandboxConfig(workspace=workspace, walk_entries=30)) as box:
        assert box.run(["/bin/true"]).ok
