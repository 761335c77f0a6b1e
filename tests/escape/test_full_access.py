"""Mode danger-full-access: the host's files as the caller sees them; what else a box keeps from its programs it keeps."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.outcome import Level
from ringfence.sync import Sandbox, SandboxConfig

pytestmark = pytest.mark.live("namespaces")
FULL = "danger-full-access"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host outside the workspace, in the home."""
    with tempfile.TemporaryDirectory(prefix=".ringfence-full-", dir=Path.home()) as folder:
        yield Path(folder)


def test_the_hosts_files_are_there_to_read_and_write(workspace: Path, outside: Path) -> None:
    (outside / "there").write_text("from the host")
    with Sandbox(SandboxConfig(mode=FULL, workspace=workspace)) as box:
        assert box.execute_command(f"cat {outside}/there && echo written > {outside}/made && echo $HOME").stdout == (
            f"from the host{Path.home()}\n"
        )
        assert box.read_file(str(outside / "there")) == "from the host"
        assert box.run(["pwd"], cwd=str(outside)).stdout == f"{outside}\n"
        assert box.enforcement.protected.level is Level.PARTIAL
    assert (outside / "made").read_text() == "written\n"
    assert (outside / "made").stat().st_uid == workspace.stat().st_uid
    with Sandbox(SandboxConfig(workspace=workspace)) as box:  # the control: without the mode
        assert not box.run(["cat", str(outside / "there")]).ok


def test_the_network_processes_and_environment_are_the_boxs_own(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_TEST_SECRET", "value")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        subprocess.run(["bash", "-c", connect], check=True)  # the control
        with Sandbox(SandboxConfig(mode=FULL, workspace=workspace)) as box:
            assert "Connection refused" in box.run(["bash", "-c", connect]).stderr
            assert "RINGFENCE_TEST_SECRET" not in box.run(["env"]).stdout
            assert box.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]).stdout.strip() in ("3", "4", "5")
            assert not box.run(["ls", "/run"]).ok  # where the host's programs listen


def test_no_way_up_from_the_root_leads_round_what_is_covered(workspace: Path, outside: Path) -> None:
    (outside / "secret").write_text("secret")
    with Sandbox(SandboxConfig(mode=FULL, workspace=workspace, deny=[str(outside / "secret")])) as box:
        assert "Permission denied" in box.run(["cat", f"/..{outside}/secret"]).stderr
        assert box.run(["sh", "-c", "awk '$5 == \"/\"' /proc/self/mountinfo | wc -l"]).stdout.strip() == "1"
    with Sandbox(SandboxConfig(mode=FULL, workspace=workspace)) as box:  # the control
        assert box.run(["cat", f"/..{outside}/secret"]).stdout == "secret"


def test_secrets_are_covered_wherever_they_lie(workspace: Path, outside: Path) -> None:
    (outside / "secret").write_text("secret")
    (workspace / ".env").write_text("secret")
    config = SandboxConfig(mode=FULL, workspace=workspace, deny=[str(outside / "secret"), "**/.env"])
    with Sandbox(config) as box:
        for path in (outside / "secret", workspace / ".env"):
            assert "Permission denied" in box.run(["cat", str(path)]).stderr
            assert not box.run(["rm", "-f", str(path)]).ok
    assert (outside / "secret").read_text() == "secret"


def test_what_is_protected_stays_as_it_is_also_outside_the_workspace(workspace: Path, outside: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    before = (workspace / ".git" / "config").read_bytes()
    held = outside / "a" / "policy.yaml"
    held.parent.mkdir()
    held.write_text("version: 1\n")
    with Sandbox(SandboxConfig(mode=FULL, workspace=workspace, protect=[str(held)])) as box:
        assert box.run(["git", "config", "core.fsmonitor", "./evil"]).ok
        assert not box.execute_command(f"echo x >> {held}").ok
        for taken in (held, held.parent, outside):
            assert "busy" in box.run(["mv", str(taken), f"{taken}.away"]).stderr
        assert box.execute_command(f"echo beside > {held.parent}/beside").ok  # the control: the folder can be written
    assert (workspace / ".git" / "config").read_bytes() == before
    assert held.read_text() == "version: 1\n"


def test_nothing_becomes_set_id_anywhere(workspace: Path, outside: Path) -> None:
    with Sandbox(SandboxConfig(mode=FULL, workspace=workspace)) as box:
        assert not box.execute_command(f"cp /bin/true {outside}/t && chmod 4755 {outside}/t").ok
    assert not (outside / "t").stat().st_mode & 0o6000
    if os.geteuid() == 0:
        with Sandbox(SandboxConfig(mode=FULL, workspace=workspace)) as box:
            assert box.run(["id", "-u"]).stdout != "0\n"
